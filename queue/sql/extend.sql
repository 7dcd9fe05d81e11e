-- Renews the leases of jobs still held, and returns those. One that is missing was reaped,
-- cancelled or finished: stop its handler.
-- Index: jobs_pkey. Locks: the jobs' rows, in id order.
WITH mine AS MATERIALIZED (
    SELECT j.id
      FROM unnest($1::text[], $2::integer[], $3::text[]) AS m(id, attempts, token)
      JOIN doze.jobs j ON j.id = m.id::uuid AND j.attempts = m.attempts AND j.token = m.token::uuid
     ORDER BY j.id FOR NO KEY UPDATE OF j
)
UPDATE doze.jobs j SET locked_until = clock_timestamp() + $4::bigint * interval '1 millisecond'
  FROM mine WHERE j.id = mine.id
RETURNING j.id
