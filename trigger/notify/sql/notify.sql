-- Tells whoever listens on channel $1: one statement, so it passes a transaction-mode pooler. Nobody hears of
-- it before its commit, and a server forgets it if nobody listens. It is a transaction of its own: one that notifies
-- holds the server's only lock for notifications while it commits, which would queue up whoever inserts jobs.
-- Index: none. Locks: that lock, until its commit.
SELECT pg_catalog.pg_notify($1::text, $2::text)
