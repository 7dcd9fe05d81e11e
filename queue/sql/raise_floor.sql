-- Raises a queue's floor to its oldest live job, or to two seconds ago: what is committed from now on and due before is
-- rung for by somebody who lowers it (lower_floor.sql). After lock_floor.sql in one transaction: looking and only then
-- locking would undo what somebody has lowered meanwhile. It moves the row on to its next epoch, too.
-- A floor in the future is from before the clock was set back: it counts as none.
-- Index: bells_pkey, from the newest epoch; jobs_ready, one probe a priority from the floor. Locks: the bell's row.
WITH old AS MATERIALIZED (
    SELECT b.epoch, CASE WHEN b.floor > now() THEN '-infinity' ELSE b.floor END AS floor
      FROM doze.bells b WHERE b.queue = $1::text ORDER BY b.epoch DESC LIMIT 1
), higher AS MATERIALIZED (
    SELECT least(now() - interval '2 seconds', min(oldest.run_at)) AS floor
      FROM old
     CROSS JOIN generate_series(-10, 10) AS lane(priority)
      LEFT JOIN LATERAL (SELECT j.run_at FROM doze.jobs j
                          WHERE j.queue = $1::text AND j.priority = lane.priority
                            AND j.run_at >= old.floor AND j.run_at < now() - interval '2 seconds'
                          ORDER BY j.run_at LIMIT 1) oldest ON true
)
UPDATE doze.bells b SET floor = greatest(o.floor, h.floor), epoch = b.epoch + 1
  FROM higher h, old o
 WHERE b.queue = $1::text AND b.epoch >= o.epoch
