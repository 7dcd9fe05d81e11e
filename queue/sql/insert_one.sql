-- Inserts one job that has no key: the same row as insert.sql makes, in the shortest
-- statement that does, since most enqueues are this one. No row back: it was there already.
-- Index: jobs_pkey. Locks: none but the new row.
INSERT INTO doze.jobs (id, queue, kind, priority, run_at, max_attempts, payload)
VALUES ($1::text::uuid, $2::text, $3::text, $4::integer,
        CASE WHEN $6::timestamptz > '0001-01-01 00:00:00+00' THEN $6::timestamptz ELSE now() + $5::bigint * interval '1 millisecond' END,
        $7::integer, $8::text::json)
ON CONFLICT (id) DO NOTHING
RETURNING run_at
