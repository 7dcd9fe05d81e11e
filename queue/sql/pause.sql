-- Stops claims of a queue; running jobs go on. Pausing twice changes nothing.
-- Index: queues_pkey. Locks: the queue's row.
UPDATE doze.queues SET paused_at = coalesce(paused_at, now()) WHERE queue = $1::text RETURNING queue
