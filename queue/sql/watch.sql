-- Sets the queue's alarm to when this drain's lease has ended ($3 milliseconds from now), for the holder of
-- a slot: should it vanish, its jobs are taken back then. Not if one is set that goes off no
-- later and has not been missed by more than $5 milliseconds. A row back: set the alarm outside.
-- Index: bells_pkey and slots_pkey, a probe for each row from its newest epoch. Locks: the bell's row, only if it may change.
UPDATE doze.bells b
   SET armed_at = now() + $3::bigint * interval '1 millisecond', armed_id = $4::text::uuid
 WHERE b.queue = $1::text AND b.epoch >= (SELECT e.epoch FROM doze.bells e WHERE e.queue = $1::text ORDER BY e.epoch DESC LIMIT 1)
   AND EXISTS (SELECT FROM generate_series(1, (SELECT m.slot FROM doze.slots m WHERE m.queue = $1::text ORDER BY m.slot DESC LIMIT 1)) AS nr
                CROSS JOIN LATERAL (SELECT s.token FROM doze.slots s
                                     WHERE s.queue = $1::text AND s.slot = nr ORDER BY s.epoch DESC LIMIT 1) s
                WHERE s.token = $2::text::uuid)
   AND (b.armed_at IS NULL OR b.armed_at > now() + $3::bigint * interval '1 millisecond'
        OR b.armed_at < now() - $5::bigint * interval '1 millisecond')
RETURNING 1
