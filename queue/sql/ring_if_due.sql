-- Rings as ring.sql does, but only if the queue has a due job, from its floor on: for a drain that has all
-- it can run, after its slot was marked busy and that was committed.
-- Index: queues_pkey, slots_pkey, jobs_ready. Locks: the queue's row, only if it may ring.
UPDATE doze.queues q SET bell_until = clock_timestamp() + $2::bigint * interval '1 millisecond'
 WHERE q.queue = $1::text AND q.paused_at IS NULL AND (q.bell_until IS NULL OR q.bell_until < now() OR q.bell_until > clock_timestamp() + ($2::bigint + 60000) * interval '1 millisecond')
   AND NOT EXISTS (SELECT FROM doze.slots s WHERE s.queue = $1::text AND s.state = 'open' AND s.locked_until > now())
   AND EXISTS (SELECT FROM doze.slots s WHERE s.queue = $1::text AND s.slot <= q.slots AND (s.state = 'free' OR s.locked_until <= now()))
   AND EXISTS (SELECT FROM generate_series(-10, 10) AS lane(priority)
                CROSS JOIN LATERAL (SELECT FROM doze.jobs j
                                     WHERE j.queue = $1::text AND j.priority = lane.priority
                                       AND j.run_at >= CASE WHEN q.floor > now() THEN '-infinity' ELSE q.floor END
                                       AND j.run_at <= now() AND j.locked_until <= now() ORDER BY j.run_at LIMIT 1) due)
RETURNING 1
