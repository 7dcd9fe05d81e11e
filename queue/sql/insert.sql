-- Inserts jobs, all or none, and says for each its id, whether it was there already and if not when it is due.
-- A key is decided by its row in keys. Keys are locked in their order and ids inserted in
-- theirs, so that two bulk inserts never wait for each other in a ring. With $11 (this may be a repeat of an insert
-- whose outcome is unknown) an id that is live or finished is "already there" and takes no key, which
-- nobody would give back; nor does a job get its own key again once it has finished.
-- Index: jobs_pkey, keys_pkey, history's primary keys. Locks: the keys' rows.
WITH input AS MATERIALIZED (
    SELECT i.id::uuid AS id, i.queue, i.kind, i.priority, i.delay_ms, i.at, i.max_attempts, i.key, i.hold_ms, i.payload, i.ord
      FROM unnest($1::text[], $2::text[], $3::text[], $4::integer[], $5::bigint[], $6::timestamptz[],
                  $7::integer[], $8::text[], $9::bigint[], $10::text[])
           WITH ORDINALITY AS i(id, queue, kind, priority, delay_ms, at, max_attempts, key, hold_ms, payload, ord)
), known AS MATERIALIZED (
    SELECT i.id
      FROM input i
     CROSS JOIN LATERAL (SELECT id FROM doze.jobs WHERE id = i.id UNION ALL SELECT id FROM doze.history WHERE id = i.id LIMIT 1) there
     WHERE $11::boolean
), taken AS (
    INSERT INTO doze.keys (kind, key, job_id, hold)
    SELECT DISTINCT ON (kind, key) kind, key, id, hold_ms * interval '1 millisecond'
      FROM input WHERE key <> '' AND id NOT IN (TABLE known) ORDER BY kind, key, ord
    ON CONFLICT (kind, key) DO UPDATE
       SET job_id     = CASE WHEN keys.expires_at <= now() AND keys.job_id <> excluded.job_id THEN excluded.job_id ELSE keys.job_id END,
           hold       = CASE WHEN keys.expires_at <= now() AND keys.job_id <> excluded.job_id THEN excluded.hold ELSE keys.hold END,
           expires_at = CASE WHEN keys.expires_at <= now() AND keys.job_id <> excluded.job_id THEN 'infinity' ELSE keys.expires_at END
    RETURNING kind, key, job_id, expires_at
), added AS (
    INSERT INTO doze.jobs (id, queue, kind, priority, run_at, max_attempts, key, payload)
    SELECT i.id, i.queue, i.kind, i.priority,
           CASE WHEN i.at > '0001-01-01 00:00:00+00' THEN i.at ELSE now() + i.delay_ms * interval '1 millisecond' END,
           i.max_attempts, nullif(i.key, ''), i.payload::json
      FROM input i LEFT JOIN taken t ON t.kind = i.kind AND t.key = i.key
     WHERE (i.key = '' OR (t.job_id = i.id AND t.expires_at = 'infinity'))
       AND i.id NOT IN (TABLE known)
     ORDER BY i.id
    ON CONFLICT (id) DO NOTHING
    RETURNING id, run_at
)
SELECT CASE WHEN k.id IS NULL THEN coalesce(t.job_id, i.id) ELSE i.id END::text AS id, a.id IS NULL AS duplicate,
       coalesce(a.run_at, '0001-01-01 00:00:00+00') AS run_at
  FROM input i
  LEFT JOIN taken t ON t.kind = i.kind AND t.key = i.key
  LEFT JOIN added a ON a.id = i.id
  LEFT JOIN known k ON k.id = i.id
 ORDER BY i.ord
