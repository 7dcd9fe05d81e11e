-- Every schedule, by name, or the one named $1.
-- Index: schedules_pkey for one. Locks: none.
SELECT name, queue, kind, payload, priority, max_attempts, cron, time_zone, catch_up, catch_up_limit, next_at, paused_at IS NOT NULL AS paused
  FROM doze.schedules WHERE $1::text = '' OR name = $1::text ORDER BY name
