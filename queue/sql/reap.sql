-- Takes up to $1 jobs back from drains that let their lease expire, and counts a reap for each.
-- One guarded statement: a job that is finished or renewed meanwhile is left alone.
-- Index: jobs_ready, over the due jobs of each queue. Locks: the rows it takes, skipping locked ones.
WITH RECURSIVE named AS (
    (SELECT queue FROM doze.jobs ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (SELECT j.queue FROM doze.jobs j WHERE j.queue > n.queue ORDER BY j.queue LIMIT 1) FROM named n WHERE n.queue IS NOT NULL
), expired AS MATERIALIZED (
    SELECT j.id
      FROM named n
     CROSS JOIN generate_series(-10, 10) AS lane(priority)
     CROSS JOIN LATERAL (
           SELECT id FROM doze.jobs
            WHERE queue = n.queue AND priority = lane.priority AND run_at <= now() AND token IS NOT NULL AND locked_until <= now()
            ORDER BY run_at, id LIMIT $1::integer FOR NO KEY UPDATE SKIP LOCKED) j
     LIMIT $1::integer
)
UPDATE doze.jobs j SET token = NULL, locked_until = '-infinity', reaps = j.reaps + 1
  FROM expired e WHERE j.id = e.id
RETURNING j.id
