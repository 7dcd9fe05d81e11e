-- Rings a queue's bell after the commit of a job: sets it unless it is set, an open slot
-- will look anyway, or every slot is held. A bell far ahead is from before the clock was set back: it counts as none. rang: whoever asks must fire the trigger.
-- Not rang: somebody will see the job (the proof is in docs/wake.md). Must be a
-- transaction of its own, begun after the job's commit. known is false if the
-- queue has no row yet. high: a job that was committed just now may lie below the queue's floor, since the clock was set back.
-- Its commit does not wait for the disk: without the bell somebody else rings, too.
-- Index: queues_pkey; bells_pkey and slots_pkey, a probe for each row from its newest epoch. Locks: the bell's row, only if it may ring.
WITH rung AS (
    UPDATE doze.bells b SET bell_until = clock_timestamp() + $2::bigint * interval '1 millisecond'
      FROM doze.queues q
     WHERE q.queue = $1::text AND q.paused_at IS NULL
       AND b.queue = $1::text AND b.epoch >= (SELECT e.epoch FROM doze.bells e WHERE e.queue = $1::text ORDER BY e.epoch DESC LIMIT 1)
       AND (b.bell_until IS NULL OR b.bell_until < now() OR b.bell_until > clock_timestamp() + ($2::bigint + 60000) * interval '1 millisecond')
       AND (SELECT NOT bool_or(s.state = 'open' AND s.locked_until > now()) AND bool_or(nr <= q.slots AND (s.state = 'free' OR s.locked_until <= now()))
              FROM generate_series(1, (SELECT m.slot FROM doze.slots m WHERE m.queue = $1::text ORDER BY m.slot DESC LIMIT 1)) AS nr
            CROSS JOIN LATERAL (SELECT s.state, s.locked_until FROM doze.slots s
                                 WHERE s.queue = $1::text AND s.slot = nr ORDER BY s.epoch DESC LIMIT 1) s)
    RETURNING set_config('synchronous_commit', 'off', true)
)
SELECT EXISTS (TABLE rung) AS rang, count(*) > 0 AS known, coalesce(bool_or(newest.floor > now() - interval '1 second'), false) AS high
  FROM (SELECT b.floor FROM doze.bells b WHERE b.queue = $1::text ORDER BY b.epoch DESC LIMIT 1) newest
