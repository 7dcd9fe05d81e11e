-- In how many milliseconds a slot of the queue is free at the latest: its lease may end later, if it is
-- renewed, or it is given up before. -1: one is free now, or there is none.
-- Index: slots_pkey. Locks: none.
SELECT coalesce(ceil(extract(epoch FROM min(s.locked_until) - now()) * 1000)::bigint, -1) AS free_ms
  FROM doze.slots s JOIN doze.queues q ON q.queue = s.queue
 WHERE s.queue = $1::text AND s.slot <= q.slots
HAVING bool_and(s.state <> 'free' AND s.locked_until > now())
