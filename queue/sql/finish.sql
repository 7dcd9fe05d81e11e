-- Ends attempts, each in its own way, for whoever still holds them by (id, attempts, token);
-- returns the ids that were. A job that goes on is queued again (delay_ms -1: where it was; else it
-- was run to an end, so it is not what made drains vanish and may have company again);
-- the others leave the table, for history where it is kept, and start their key's hold.
-- Index: jobs_pkey, keys_pkey. Locks: the jobs' rows, in the order given (sorted by id), then
-- their keys' rows in key order, as insert.sql does.
WITH outcome AS MATERIALIZED (
    SELECT o.id, o.attempts, o.token, o.state, o.delay_ms, o.failed, o.error
      FROM unnest($1::uuid[], $2::integer[], $3::uuid[], $4::text[], $5::bigint[], $6::integer[], $7::text[])
           AS o(id, attempts, token, state, delay_ms, failed, error)
), kept AS (
    UPDATE doze.jobs j
       SET token = NULL, locked_until = '-infinity',
           run_at = CASE WHEN o.delay_ms < 0 THEN j.run_at ELSE now() + o.delay_ms * interval '1 millisecond' END,
           failures = j.failures + o.failed,
           reaps = CASE WHEN o.delay_ms < 0 THEN j.reaps ELSE 0 END,
           last_error = coalesce(nullif(o.error, ''), j.last_error)
      FROM outcome o
     WHERE o.state = 'queued' AND j.id = o.id AND j.attempts = o.attempts AND j.token = o.token
    RETURNING j.id
), gone AS (
    DELETE FROM doze.jobs j USING outcome o
     WHERE o.state <> 'queued' AND j.id = o.id AND j.attempts = o.attempts AND j.token = o.token
    RETURNING j.id, j.queue, j.kind, o.state, j.priority, j.run_at, j.attempts, j.failures + o.failed AS failures,
              j.max_attempts, j.reaps, j.created_at, j.key, coalesce(nullif(o.error, ''), j.last_error) AS last_error, j.payload
), filed AS (
    INSERT INTO doze.history (id, bucket, queue, kind, state, priority, run_at, attempts, failures, max_attempts, reaps,
                              created_at, finished_at, key, last_error, payload)
    SELECT g.id, doze.history_bucket(g.state), g.queue, g.kind, g.state, g.priority, g.run_at, g.attempts, g.failures,
           g.max_attempts, g.reaps, g.created_at, now(), g.key, g.last_error, g.payload
      FROM gone g LEFT JOIN doze.queues q ON q.queue = g.queue
     WHERE g.state <> 'done' OR q.history IS NOT FALSE
), let_go AS MATERIALIZED (
    SELECT k.kind, k.key
      FROM gone g JOIN doze.keys k ON k.kind = g.kind AND k.key = g.key AND k.job_id = g.id
     WHERE g.key IS NOT NULL
     ORDER BY k.kind, k.key FOR NO KEY UPDATE OF k
), freed AS (
    UPDATE doze.keys k SET expires_at = now() + k.hold
      FROM let_go l WHERE k.kind = l.kind AND k.key = l.key
)
SELECT id FROM kept UNION ALL SELECT id FROM gone
