-- Queues a failed or cancelled job again, from no failures and no reaps, or makes a waiting one due now.
-- Attempts go on counting: they are the fence. Its key is its own again if nobody took it.
-- Index: jobs_pkey, history's primary keys, keys_pkey. Locks: the job's row.
WITH back AS (
    DELETE FROM doze.history WHERE id = $1::text::uuid AND state IN ('failed', 'cancelled') RETURNING *
), queued AS (
    INSERT INTO doze.jobs (id, queue, kind, priority, run_at, attempts, max_attempts, created_at, key, last_error, payload)
    SELECT id, queue, kind, priority, now(), attempts, max_attempts, created_at, key, last_error, payload FROM back
    ON CONFLICT (id) DO NOTHING
    RETURNING *
), hurried AS (
    UPDATE doze.jobs SET run_at = least(run_at, now()) WHERE id = $1::text::uuid AND token IS NULL RETURNING *
), retaken AS (
    UPDATE doze.keys k SET expires_at = 'infinity'
      FROM queued g WHERE g.key IS NOT NULL AND k.kind = g.kind AND k.key = g.key AND k.job_id = g.id
), found AS (
    SELECT * FROM queued UNION ALL SELECT * FROM hurried
)
SELECT id::text, queue, kind, 'queued' AS state, priority, run_at, attempts, failures, max_attempts, reaps, created_at,
       NULL::timestamptz AS finished_at, coalesce(key, '') AS key, coalesce(last_error, '') AS last_error, payload
  FROM found LIMIT 1
