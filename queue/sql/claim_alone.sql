-- Claims one job whose drain vanished before, for the holder of a slot. It runs alone, so
-- that a job that kills its function takes no neighbour with it.
-- Index: queues_pkey, slots_pkey, jobs_alone. Locks: the row it takes, skipping locked ones.
WITH held AS MATERIALIZED (
    SELECT
      FROM doze.queues q
     CROSS JOIN generate_series(1, (SELECT m.slot FROM doze.slots m WHERE m.queue = $1::text ORDER BY m.slot DESC LIMIT 1)) AS nr
     CROSS JOIN LATERAL (SELECT s.token, s.locked_until FROM doze.slots s WHERE s.queue = $1::text AND s.slot = nr ORDER BY s.epoch DESC LIMIT 1) s
     WHERE q.queue = $1::text AND q.paused_at IS NULL AND s.token = $2::text::uuid AND s.locked_until > now()
     LIMIT 1
), picked AS MATERIALIZED (
    SELECT id FROM doze.jobs
     WHERE queue = $1::text AND reaps > 0 AND run_at <= now() AND locked_until <= now() AND EXISTS (TABLE held)
     ORDER BY priority, run_at, id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE doze.jobs j
   SET attempts = j.attempts + 1, reaps = j.reaps + (j.token IS NOT NULL)::integer,
       token = $3::text::uuid, locked_until = clock_timestamp() + $4::bigint * interval '1 millisecond'
  FROM picked p
 WHERE j.id = p.id
RETURNING true AS claimed, j.id, j.kind, j.priority, j.run_at, j.attempts, j.failures, j.max_attempts,
          j.reaps, j.created_at, coalesce(j.key, '') AS key, coalesce(j.last_error, '') AS last_error, j.payload
