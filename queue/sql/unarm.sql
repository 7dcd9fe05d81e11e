-- Forgets an alarm: one that the service outside did not take, or a drain's own watch, before its last look.
-- Index: bells_pkey, from the newest epoch. Locks: the bell's row.
UPDATE doze.bells b SET armed_at = NULL, armed_id = NULL
 WHERE b.queue = $1::text AND b.epoch >= (SELECT e.epoch FROM doze.bells e WHERE e.queue = $1::text ORDER BY e.epoch DESC LIMIT 1)
   AND b.armed_id = $2::text::uuid
