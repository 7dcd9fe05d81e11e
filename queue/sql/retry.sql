-- Queues a failed or cancelled job again, from no failures and no reaps, or makes a waiting one due now.
-- Attempts go on counting: they are the fence. Its key is its own again unless another
-- job has it, for no longer than it lives if the key's row was pruned meanwhile.
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
    INSERT INTO doze.keys (kind, key, job_id, hold) SELECT kind, key, id, interval '0' FROM queued WHERE key IS NOT NULL
    ON CONFLICT (kind, key) DO UPDATE
       SET job_id = excluded.job_id, expires_at = 'infinity',
           hold = CASE WHEN keys.job_id = excluded.job_id THEN keys.hold ELSE excluded.hold END
     WHERE keys.job_id = excluded.job_id OR keys.expires_at <= now()
), found AS (
    SELECT * FROM queued UNION ALL SELECT * FROM hurried
)
SELECT id::text, queue, kind, 'queued' AS state, priority, run_at, attempts, failures, max_attempts, reaps, created_at,
       NULL::timestamptz AS finished_at, coalesce(key, '') AS key, coalesce(last_error, '') AS last_error, payload
  FROM found LIMIT 1
