-- Turns ticks of a schedule into jobs and moves it on to its next tick ($3; the zero time: none), if its
-- next tick is still the one that was seen ($2). See migrations/sql/0002_schedules.sql.
-- Index: schedules_pkey, ticks_pkey. Locks: the schedule's row.
SELECT made
  FROM doze.tick($1::text, $2::timestamptz, nullif($3::timestamptz, '0001-01-01 00:00:00+00'), $4::text[]::uuid[], $5::timestamptz[]) AS made
