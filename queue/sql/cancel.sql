-- Ends a live job as cancelled. A running one is taken from its drain: the fence refuses what
-- its handler reports, and the next renewal stops it.
-- Index: jobs_pkey, keys_pkey. Locks: the job's row.
WITH gone AS (
    DELETE FROM doze.jobs WHERE id = $1::text::uuid RETURNING *
), filed AS (
    INSERT INTO doze.history (id, bucket, queue, kind, state, priority, run_at, attempts, failures, max_attempts, reaps,
                              created_at, finished_at, key, last_error, payload)
    SELECT id, doze.history_bucket('cancelled'), queue, kind, 'cancelled', priority, run_at, attempts, failures, max_attempts, reaps,
           created_at, now(), key, last_error, payload FROM gone
    RETURNING id, finished_at
), freed AS (
    UPDATE doze.keys k SET expires_at = now() + k.hold
      FROM gone g WHERE g.key IS NOT NULL AND k.kind = g.kind AND k.key = g.key AND k.job_id = g.id
)
SELECT g.id::text, g.queue, g.kind, 'cancelled' AS state, g.priority, g.run_at, g.attempts, g.failures, g.max_attempts, g.reaps,
       g.created_at, f.finished_at, coalesce(g.key, '') AS key, coalesce(g.last_error, '') AS last_error, g.payload
  FROM gone g JOIN filed f ON f.id = g.id
