-- Ends attempts as done, for whoever still holds them by (id, attempts, token); returns the ids that were.
-- finish.sql does that too, and whatever else an attempt can come to; this is for a batch of one queue ($4) in which all
-- are done, as most are, and takes half as long: history's columns are only read where it is kept.
-- Index: jobs_pkey, keys_pkey. Locks: as finish.sql does.
WITH outcome AS MATERIALIZED (
    SELECT o.id, o.attempts, o.token FROM unnest($1::uuid[], $2::integer[], $3::uuid[]) AS o(id, attempts, token)
), kept AS (
    DELETE FROM doze.jobs j USING outcome o
     WHERE (SELECT q.history FROM doze.queues q WHERE q.queue = $4::text) IS NOT FALSE
       AND j.id = o.id AND j.attempts = o.attempts AND j.token = o.token
    RETURNING j.id, j.queue, j.kind, j.priority, j.run_at, j.attempts, j.failures, j.max_attempts, j.reaps, j.created_at,
              j.key, j.last_error, j.payload
), filed AS (
    INSERT INTO doze.history (id, bucket, queue, kind, state, priority, run_at, attempts, failures, max_attempts, reaps,
                              created_at, finished_at, key, last_error, payload)
    SELECT k.id, doze.history_bucket('done'), k.queue, k.kind, 'done', k.priority, k.run_at, k.attempts, k.failures,
           k.max_attempts, k.reaps, k.created_at, now(), k.key, k.last_error, k.payload
      FROM kept k
), forgotten AS (
    DELETE FROM doze.jobs j USING outcome o
     WHERE (SELECT q.history FROM doze.queues q WHERE q.queue = $4::text) IS FALSE
       AND j.id = o.id AND j.attempts = o.attempts AND j.token = o.token
    RETURNING j.id, j.kind, j.key
), gone AS (
    SELECT id, kind, key FROM kept UNION ALL SELECT id, kind, key FROM forgotten
), let_go AS MATERIALIZED (
    SELECT k.kind, k.key
      FROM gone g JOIN doze.keys k ON k.kind = g.kind AND k.key = g.key AND k.job_id = g.id
     WHERE g.key IS NOT NULL
     ORDER BY k.kind, k.key FOR NO KEY UPDATE OF k
), freed AS (
    UPDATE doze.keys k SET expires_at = now() + k.hold
      FROM let_go l WHERE k.kind = l.kind AND k.key = l.key
)
SELECT id FROM gone
