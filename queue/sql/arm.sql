-- Sets the queue's alarm to $2 milliseconds from now, unless one is set that goes off no later (by more
-- than a tenth of a second: the same due time comes out a little different each time) and has not
-- been missed by more than $4 milliseconds. A row back: whoever asks must set the timer outside.
-- Index: queues_pkey. Locks: the queue's row, only if it may change.
UPDATE doze.queues
   SET armed_at = now() + $2::bigint * interval '1 millisecond', armed_id = $3::text::uuid
 WHERE queue = $1::text
   AND (armed_at IS NULL OR armed_at > now() + ($2::bigint + 100) * interval '1 millisecond'
        OR armed_at < now() - $4::bigint * interval '1 millisecond')
RETURNING 1
