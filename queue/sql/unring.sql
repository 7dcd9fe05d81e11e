-- Takes back a ring whose trigger could not be fired, so that the next enqueue rings.
-- Index: queues_pkey. Locks: the queue's row.
UPDATE doze.queues SET bell_until = NULL WHERE queue = $1::text
