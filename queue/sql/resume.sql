-- Lets a queue be claimed from again. Resuming one that runs changes nothing.
-- Index: queues_pkey. Locks: the queue's row.
UPDATE doze.queues SET paused_at = NULL WHERE queue = $1::text RETURNING queue
