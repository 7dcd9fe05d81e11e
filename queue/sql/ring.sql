-- Rings a queue's bell after the commit of a job: sets it unless it is set, an open slot
-- will look anyway, or every slot is held. A bell far ahead is from before the clock was set back: it counts as none. rang: whoever asks must fire the trigger.
-- Not rang: somebody will see the job (the proof is in docs/wake.md). Must be a
-- transaction of its own, begun after the job's commit. known is false if the
-- queue has no row yet. high: a job that was committed just now may lie below the queue's floor, since the clock was set back.
-- Its commit does not wait for the disk: without the bell somebody else rings, too.
-- Index: queues_pkey, slots_pkey. Locks: the queue's row, only if it may ring.
WITH rung AS (
    UPDATE doze.queues q SET bell_until = clock_timestamp() + $2::bigint * interval '1 millisecond'
     WHERE q.queue = $1::text AND q.paused_at IS NULL AND (q.bell_until IS NULL OR q.bell_until < now() OR q.bell_until > clock_timestamp() + ($2::bigint + 60000) * interval '1 millisecond')
       AND NOT EXISTS (SELECT FROM doze.slots s WHERE s.queue = $1::text AND s.state = 'open' AND s.locked_until > now())
       AND EXISTS (SELECT FROM doze.slots s WHERE s.queue = $1::text AND s.slot <= q.slots AND (s.state = 'free' OR s.locked_until <= now()))
    RETURNING set_config('synchronous_commit', 'off', true)
)
SELECT EXISTS (TABLE rung) AS rang, count(*) > 0 AS known, coalesce(bool_or(q.floor > now() - interval '1 second'), false) AS high
  FROM doze.queues q WHERE q.queue = $1::text
