-- Rings as ring.sql does, but only if the queue has a due job, from its floor on: for a drain that has all
-- it can run, after its slot was marked busy and that was committed.
-- Index: queues_pkey; bells_pkey and slots_pkey, a probe for each row from its newest epoch; jobs_ready. Locks: the bell's row, only if it may ring.
UPDATE doze.bells b SET bell_until = clock_timestamp() + $2::bigint * interval '1 millisecond'
  FROM doze.queues q
 WHERE q.queue = $1::text AND q.paused_at IS NULL
   AND b.queue = $1::text AND b.epoch >= (SELECT e.epoch FROM doze.bells e WHERE e.queue = $1::text ORDER BY e.epoch DESC LIMIT 1)
   AND (b.bell_until IS NULL OR b.bell_until < now() OR b.bell_until > clock_timestamp() + ($2::bigint + 60000) * interval '1 millisecond')
   AND (SELECT NOT bool_or(s.state = 'open' AND s.locked_until > now()) AND bool_or(nr <= q.slots AND (s.state = 'free' OR s.locked_until <= now()))
          FROM generate_series(1, (SELECT m.slot FROM doze.slots m WHERE m.queue = $1::text ORDER BY m.slot DESC LIMIT 1)) AS nr
        CROSS JOIN LATERAL (SELECT s.state, s.locked_until FROM doze.slots s
                             WHERE s.queue = $1::text AND s.slot = nr ORDER BY s.epoch DESC LIMIT 1) s)
   AND EXISTS (SELECT FROM generate_series(-10, 10) AS lane(priority)
                CROSS JOIN LATERAL (SELECT FROM doze.jobs j
                                     WHERE j.queue = $1::text AND j.priority = lane.priority
                                       AND j.run_at >= CASE WHEN b.floor > now() THEN '-infinity' ELSE b.floor END
                                       AND j.run_at <= now() AND j.locked_until <= now() ORDER BY j.run_at LIMIT 1) due)
RETURNING 1
