-- Lowers a queue's floor to its oldest live job, wherever that is: for what was committed nobody knows when, by
-- an enqueuer that may have died. It locks the row whatever it finds, as lower_floor.sql does and for the same reason.
-- Index: queues_pkey; jobs_ready, one probe a priority from the head. Locks: the queue's row.
UPDATE doze.queues
   SET floor = least(floor, (SELECT min(oldest.run_at)
                               FROM generate_series(-10, 10) AS lane(priority)
                              CROSS JOIN LATERAL (SELECT j.run_at FROM doze.jobs j
                                                   WHERE j.queue = $1::text AND j.priority = lane.priority
                                                   ORDER BY j.run_at LIMIT 1) oldest))
 WHERE queue = $1::text
