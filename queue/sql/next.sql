-- The last look: is a job or a schedule's tick due, and if not, how many milliseconds until the next
-- due time, tick or lease end (ten years at most, which every alarm and duration can hold). One statement, hence one now(): in two, a job that becomes due between them is
-- seen by neither. A plain read in a fresh snapshot: a row that somebody locks still counts.
-- Each look asks for the first in the index's order, or statistics from when there was a backlog have the
-- planner read the whole table for each priority.
-- It begins at the queue's floor.
-- Index: queues_pkey, bells_pkey; jobs_ready, three probes a priority; schedules_next. Locks: none.
WITH unpaused AS MATERIALIZED (
    SELECT CASE WHEN b.floor > now() THEN '-infinity' ELSE b.floor END AS floor
      FROM doze.queues q
     CROSS JOIN LATERAL (SELECT b.floor FROM doze.bells b WHERE b.queue = $1::text ORDER BY b.epoch DESC LIMIT 1) b
     WHERE q.queue = $1::text AND q.paused_at IS NULL
)
SELECT coalesce(bool_or(lane.due), false) AS due,
       CASE WHEN min(least(lane.run_at, lane.locked_until)) IS NULL THEN -1
            ELSE ceil(extract(epoch FROM least(min(least(lane.run_at, lane.locked_until)), now() + interval '10 years') - now()) * 1000)::bigint
       END AS next_ms
  FROM (SELECT s.next_at <= now() AS due, s.next_at AS run_at, NULL::timestamptz AS locked_until
          FROM (SELECT next_at FROM doze.schedules
                 WHERE queue = $1::text AND paused_at IS NULL AND next_at IS NOT NULL ORDER BY next_at LIMIT 1) s
        UNION ALL
        SELECT found.due, found.run_at,
               CASE WHEN NOT found.due THEN
                    (SELECT min(j.locked_until) FROM doze.jobs j
                      WHERE j.queue = $1::text AND j.priority = found.priority AND j.run_at >= found.floor AND j.run_at <= now() AND j.locked_until > now())
               END AS locked_until
          FROM (SELECT level.priority, unpaused.floor,
                       (SELECT true FROM doze.jobs j
                         WHERE j.queue = $1::text AND j.priority = level.priority
                           AND j.run_at >= unpaused.floor AND j.run_at <= now() AND j.locked_until <= now()
                         ORDER BY j.run_at LIMIT 1) IS TRUE AS due,
                       (SELECT j.run_at FROM doze.jobs j
                         WHERE j.queue = $1::text AND j.priority = level.priority AND j.run_at > now()
                         ORDER BY j.run_at LIMIT 1) AS run_at
                  FROM unpaused CROSS JOIN generate_series(-10, 10) AS level(priority)) found) lane
 WHERE EXISTS (TABLE unpaused)
