-- The queues that have something to wait for: a live job or a schedule.
-- Index: jobs_ready, a probe for each queue; schedules_next. Locks: none.
WITH RECURSIVE named AS (
    (SELECT queue FROM doze.jobs ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (SELECT j.queue FROM doze.jobs j WHERE j.queue > n.queue ORDER BY j.queue LIMIT 1) FROM named n WHERE n.queue IS NOT NULL
)
SELECT w.queue
  FROM (SELECT queue FROM named WHERE queue IS NOT NULL
        UNION
        SELECT queue FROM doze.schedules WHERE paused_at IS NULL AND next_at IS NOT NULL) w
  LEFT JOIN doze.queues q ON q.queue = w.queue
 WHERE q.paused_at IS NULL
 ORDER BY w.queue
