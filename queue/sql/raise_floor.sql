-- Raises a queue's floor to its oldest live job, or to two seconds ago: what is committed from now on and due before is
-- rung for by somebody who lowers it (lower_floor.sql). After lock_floor.sql in one transaction: looking and only then
-- locking would undo what somebody has lowered meanwhile. Not for less than a second's gain.
-- A floor in the future is from before the clock was set back: it counts as none.
-- Index: queues_pkey; jobs_ready, one probe a priority from the floor. Locks: the queue's row.
WITH old AS MATERIALIZED (
    SELECT CASE WHEN floor > now() THEN '-infinity' ELSE floor END AS floor FROM doze.queues WHERE queue = $1::text
), higher AS MATERIALIZED (
    SELECT least(now() - interval '2 seconds', min(oldest.run_at)) AS floor
      FROM old
     CROSS JOIN generate_series(-10, 10) AS lane(priority)
      LEFT JOIN LATERAL (SELECT j.run_at FROM doze.jobs j
                          WHERE j.queue = $1::text AND j.priority = lane.priority
                            AND j.run_at >= old.floor AND j.run_at < now() - interval '2 seconds'
                          ORDER BY j.run_at LIMIT 1) oldest ON true
)
UPDATE doze.queues q SET floor = h.floor
  FROM higher h, old o
 WHERE q.queue = $1::text AND h.floor > o.floor + interval '1 second'
