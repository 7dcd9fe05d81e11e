-- Deletes a schedule. Jobs that it has made stay.
-- Index: schedules_pkey. Locks: the schedule's row.
DELETE FROM doze.schedules WHERE name = $1::text RETURNING queue
