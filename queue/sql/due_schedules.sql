-- The schedules with a tick that is due, of one queue or of all ($1 empty), with the database's time.
-- Index: schedules_next. Locks: none.
SELECT name, queue, kind, payload, priority, max_attempts, cron, time_zone, catch_up, catch_up_limit, next_at, now() AS now
  FROM doze.schedules
 WHERE ($1::text = '' OR queue = $1::text) AND paused_at IS NULL AND next_at <= now()
 ORDER BY queue, next_at LIMIT 1000
