-- Locks a queue's bell, so that raise_floor.sql in the same transaction sees the jobs of all who lowered the floor.
-- Index: bells_pkey, from the newest epoch. Locks: the bell's row.
SELECT FROM doze.bells b WHERE b.queue = $1::text AND b.epoch >= (SELECT e.epoch FROM doze.bells e WHERE e.queue = $1::text ORDER BY e.epoch DESC LIMIT 1) FOR UPDATE
