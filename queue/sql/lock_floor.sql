-- Locks a queue's row, so that raise_floor.sql in the same transaction sees the jobs of all who lowered the floor.
-- Index: queues_pkey. Locks: the queue's row.
SELECT FROM doze.queues WHERE queue = $1::text FOR NO KEY UPDATE
