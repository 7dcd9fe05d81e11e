-- Up to $5 jobs, newest first, older than id $4; empty strings ask for any. No payloads.
-- Index: jobs_pkey and history's primary keys, read backwards. Locks: none.
SELECT id::text, queue, kind, state, priority, run_at, attempts, failures,
       max_attempts, reaps, created_at, finished_at, coalesce(key, '') AS key, coalesce(last_error, '') AS last_error, NULL::json AS payload
  FROM doze.job_list
 WHERE ($1::text = '' OR queue = $1::text) AND ($2::text = '' OR kind = $2::text) AND ($3::text = '' OR state = $3::text)
   AND ($4::text = '' OR id < nullif($4::text, '')::uuid)
 ORDER BY job_list.id DESC
 LIMIT $5::integer
