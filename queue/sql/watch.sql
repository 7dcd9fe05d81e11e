-- Sets the queue's alarm to when this drain's lease has ended ($3 milliseconds from now), for the holder of
-- a slot: should it vanish, its jobs are taken back then. Not if one is set that goes off no
-- later and has not been missed by more than $5 milliseconds. A row back: set the alarm outside.
-- Index: queues_pkey, slots_pkey. Locks: the queue's row, only if it may change.
UPDATE doze.queues q
   SET armed_at = now() + $3::bigint * interval '1 millisecond', armed_id = $4::text::uuid
 WHERE q.queue = $1::text
   AND EXISTS (SELECT FROM doze.slots s WHERE s.queue = $1::text AND s.token = $2::text::uuid)
   AND (q.armed_at IS NULL OR q.armed_at > now() + $3::bigint * interval '1 millisecond'
        OR q.armed_at < now() - $5::bigint * interval '1 millisecond')
RETURNING 1
