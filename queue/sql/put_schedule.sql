-- Makes a schedule or changes it. Its next tick is set anew only if its cron expression or its zone changed,
-- so that putting it at each deployment loses no tick.
-- Index: schedules_pkey. Locks: the schedule's row.
INSERT INTO doze.schedules AS s (name, queue, kind, payload, priority, max_attempts, cron, time_zone, catch_up, catch_up_limit, next_at)
VALUES ($1::text, $2::text, $3::text, $4::text::json, $5::integer, $6::integer, $7::text, $8::text, $9::text, $10::integer,
        nullif($11::timestamptz, '0001-01-01 00:00:00+00'))
ON CONFLICT (name) DO UPDATE
   SET queue = excluded.queue, kind = excluded.kind, payload = excluded.payload, priority = excluded.priority,
       max_attempts = excluded.max_attempts, catch_up = excluded.catch_up, catch_up_limit = excluded.catch_up_limit,
       cron = excluded.cron, time_zone = excluded.time_zone, updated_at = now(),
       next_at = CASE WHEN s.cron = excluded.cron AND s.time_zone = excluded.time_zone THEN s.next_at ELSE excluded.next_at END
