-- One job, live or finished, with its payload; of an id that was used twice, the latest.
-- Index: jobs_pkey, history's primary keys. Locks: none.
SELECT id::text, queue, kind, CASE WHEN token IS NULL THEN 'queued' ELSE 'running' END AS state, priority, run_at, attempts, failures,
       max_attempts, reaps, created_at, NULL::timestamptz AS finished_at, coalesce(key, '') AS key, coalesce(last_error, '') AS last_error, payload
  FROM doze.jobs WHERE id = $1::text::uuid
UNION ALL
SELECT id::text, queue, kind, state, priority, run_at, attempts, failures,
       max_attempts, reaps, created_at, finished_at, coalesce(key, ''), coalesce(last_error, ''), payload
  FROM doze.history WHERE id = $1::text::uuid
ORDER BY finished_at DESC NULLS FIRST LIMIT 1
