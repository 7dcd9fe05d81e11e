-- Sets the queue's alarm to $2 milliseconds from now, unless one is set that goes off no later (by more
-- than a tenth of a second: the same due time comes out a little different each time) and has not
-- been missed by more than $4 milliseconds. A row back: whoever asks must set the timer outside.
-- Index: bells_pkey, from the newest epoch. Locks: the bell's row, only if it may change.
UPDATE doze.bells b
   SET armed_at = now() + $2::bigint * interval '1 millisecond', armed_id = $3::text::uuid
 WHERE b.queue = $1::text AND b.epoch >= (SELECT e.epoch FROM doze.bells e WHERE e.queue = $1::text ORDER BY e.epoch DESC LIMIT 1)
   AND (b.armed_at IS NULL OR b.armed_at > now() + ($2::bigint + 100) * interval '1 millisecond'
        OR b.armed_at < now() - $4::bigint * interval '1 millisecond')
RETURNING 1
