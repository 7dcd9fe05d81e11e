-- Claims up to $5 due jobs under one fresh token, most urgent first; for the holder of a slot
-- only, and not while the queue is paused or this drain ($6: the token of its lone
-- claim) runs a job that must run alone.
-- Each priority's walk begins after ($7, $8), see [Cursor], or at the queue's floor. Dead rows that vacuum may not remove,
-- because some old snapshot is still open, lie before and are not walked over again.
-- An expired lease found on the way is reaped, not claimed: it counts one reap, and its job
-- runs alone from then on.
-- Index: queues_pkey, bells_pkey, slots_pkey; jobs_ready, one probe a priority, in order (see in_order.sql). Locks: the rows it takes, skipping locked ones.
-- FOR NO KEY UPDATE, so that a foreign key's check on a job does not hide it.
WITH held AS MATERIALIZED (
    SELECT CASE WHEN b.floor > now() THEN '-infinity' ELSE b.floor END AS floor
      FROM doze.queues q
     CROSS JOIN generate_series(1, (SELECT m.slot FROM doze.slots m WHERE m.queue = $1::text ORDER BY m.slot DESC LIMIT 1)) AS nr
     CROSS JOIN LATERAL (SELECT s.token, s.locked_until FROM doze.slots s WHERE s.queue = $1::text AND s.slot = nr ORDER BY s.epoch DESC LIMIT 1) s
     CROSS JOIN LATERAL (SELECT b.floor FROM doze.bells b WHERE b.queue = $1::text ORDER BY b.epoch DESC LIMIT 1) b
     WHERE q.queue = $1::text AND q.paused_at IS NULL AND s.token = $2::text::uuid AND s.locked_until > now()
       AND NOT EXISTS (SELECT FROM doze.jobs j WHERE j.queue = $1::text AND j.reaps > 0 AND j.token = nullif($6::text, '')::uuid)
     LIMIT 1
), picked AS MATERIALIZED (
    SELECT j.id, j.expired
      FROM held
     CROSS JOIN unnest($7::timestamptz[], $8::uuid[]) WITH ORDINALITY AS lane(run_at, id, nr)
     CROSS JOIN LATERAL (
           SELECT id, token IS NOT NULL AS expired FROM doze.jobs
            WHERE queue = $1::text AND priority = lane.nr - 11 AND run_at <= now()
              AND (run_at, id) > (greatest(lane.run_at, held.floor), CASE WHEN lane.run_at >= held.floor THEN lane.id ELSE '00000000-0000-0000-0000-000000000000' END)
              AND locked_until <= now() AND reaps = 0
            ORDER BY run_at, id LIMIT $5::integer FOR NO KEY UPDATE SKIP LOCKED) j
     LIMIT $5::integer
)
UPDATE doze.jobs j
   SET attempts     = CASE WHEN p.expired THEN j.attempts ELSE j.attempts + 1 END,
       reaps        = CASE WHEN p.expired THEN j.reaps + 1 ELSE j.reaps END,
       token        = CASE WHEN p.expired THEN NULL ELSE $3::text::uuid END,
       locked_until = CASE WHEN p.expired THEN '-infinity' ELSE clock_timestamp() + $4::bigint * interval '1 millisecond' END
  FROM picked p
 WHERE j.id = p.id
RETURNING NOT p.expired AS claimed, j.id, j.kind, j.priority, j.run_at, j.attempts, j.failures, j.max_attempts,
          j.reaps, j.created_at, coalesce(j.key, '') AS key, coalesce(j.last_error, '') AS last_error, j.payload
