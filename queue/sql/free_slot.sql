-- Gives a slot up. It must be committed before the last look (next.sql).
-- Index: slots_pkey. Locks: the slot's row.
UPDATE doze.slots SET state = 'free', token = NULL, locked_until = NULL
 WHERE queue = $1::text AND token = $2::text::uuid
