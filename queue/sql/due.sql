-- The queues with a due job, those without a row in queues included (jobs that were added in
-- a caller's transaction and never rung for).
-- Index: jobs_ready, a probe for each queue and priority. Locks: none.
WITH RECURSIVE named AS (
    (SELECT queue FROM doze.jobs ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (SELECT j.queue FROM doze.jobs j WHERE j.queue > n.queue ORDER BY j.queue LIMIT 1) FROM named n WHERE n.queue IS NOT NULL
)
SELECT n.queue
  FROM named n LEFT JOIN doze.queues q ON q.queue = n.queue
 WHERE n.queue IS NOT NULL AND q.paused_at IS NULL
   AND EXISTS (SELECT FROM generate_series(-10, 10) AS lane(priority)
                CROSS JOIN LATERAL (SELECT FROM doze.jobs j
                                     WHERE j.queue = n.queue AND j.priority = lane.priority
                                       AND j.run_at <= now() AND j.locked_until <= now() ORDER BY j.run_at LIMIT 1) due)
 ORDER BY n.queue
