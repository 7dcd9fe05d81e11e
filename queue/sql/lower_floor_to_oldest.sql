-- Lowers a queue's floor to its oldest live job, wherever that is: for what was committed nobody knows when, by
-- an enqueuer that may have died. It locks the row whatever it finds, as lower_floor.sql does and for the same reason.
-- Index: bells_pkey, from the newest epoch; jobs_ready, one probe a priority from the head. Locks: the bell's row.
UPDATE doze.bells b
   SET floor = least(b.floor, (SELECT min(oldest.run_at)
                               FROM generate_series(-10, 10) AS lane(priority)
                              CROSS JOIN LATERAL (SELECT j.run_at FROM doze.jobs j
                                                   WHERE j.queue = $1::text AND j.priority = lane.priority
                                                   ORDER BY j.run_at LIMIT 1) oldest))
 WHERE b.queue = $1::text AND b.epoch >= (SELECT e.epoch FROM doze.bells e WHERE e.queue = $1::text ORDER BY e.epoch DESC LIMIT 1)
