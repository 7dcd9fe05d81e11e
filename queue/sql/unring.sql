-- Takes back a ring whose trigger could not be fired, so that the next enqueue rings.
-- Index: bells_pkey, from the newest epoch. Locks: the bell's row.
UPDATE doze.bells b SET bell_until = NULL WHERE b.queue = $1::text AND b.epoch >= (SELECT e.epoch FROM doze.bells e WHERE e.queue = $1::text ORDER BY e.epoch DESC LIMIT 1)
