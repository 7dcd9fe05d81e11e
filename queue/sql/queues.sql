-- Every queue with how many live jobs it has, and its failed ones. Counts rows: for people, not for loops.
-- Index: none, it reads the live jobs and the failed ones. Locks: none.
SELECT n.queue, coalesce(q.paused_at IS NOT NULL, false) AS paused, coalesce(q.slots, 0)::integer AS slots,
       (SELECT count(*) FROM doze.slots s WHERE s.queue = n.queue AND s.state <> 'free' AND s.locked_until > now()) AS held,
       coalesce(l.queued, 0) AS queued, coalesce(l.due, 0) AS due, coalesce(l.running, 0) AS running, coalesce(f.failed, 0) AS failed,
       coalesce(ceil(extract(epoch FROM now() - l.oldest) * 1000)::bigint, 0) AS oldest_ms
  FROM (SELECT queue FROM doze.queues UNION SELECT queue FROM doze.jobs UNION SELECT queue FROM doze.history_failed) n
  LEFT JOIN doze.queues q ON q.queue = n.queue
  LEFT JOIN (SELECT queue, count(*) FILTER (WHERE token IS NULL) AS queued,
                    count(*) FILTER (WHERE token IS NULL AND run_at <= now()) AS due,
                    count(*) FILTER (WHERE token IS NOT NULL) AS running,
                    min(run_at) FILTER (WHERE token IS NULL AND run_at <= now()) AS oldest
               FROM doze.jobs GROUP BY queue) l ON l.queue = n.queue
  LEFT JOIN (SELECT queue, count(*) AS failed FROM doze.history_failed GROUP BY queue) f ON f.queue = n.queue
 ORDER BY n.queue
