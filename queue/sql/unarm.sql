-- Forgets an alarm: one that the service outside did not take, or a drain's own watch, before its last look.
-- Index: queues_pkey. Locks: the queue's row.
UPDATE doze.queues SET armed_at = NULL, armed_id = NULL WHERE queue = $1::text AND armed_id = $2::text::uuid
