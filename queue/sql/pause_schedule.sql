-- Pauses a schedule, or lets it go on from its next tick after now ($3).
-- Index: schedules_pkey. Locks: the schedule's row.
UPDATE doze.schedules
   SET paused_at = CASE WHEN $2::boolean THEN coalesce(paused_at, now()) END,
       next_at = CASE WHEN $2::boolean OR paused_at IS NULL THEN next_at ELSE nullif($3::timestamptz, '0001-01-01 00:00:00+00') END
 WHERE name = $1::text RETURNING queue
