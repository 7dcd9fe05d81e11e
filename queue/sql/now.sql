-- The database's time.
-- Index: none. Locks: none.
SELECT now()
