-- Sessions of others that may keep a database awake, or hold back vacuum: in a transaction and idle, listening,
-- replicating, polling, or holding the oldest snapshot.
-- Index: none, it reads pg_stat_activity. Locks: none.
SELECT pid, coalesce(application_name, ''), coalesce(usename, ''), coalesce(state, ''), backend_type,
       coalesce(extract(epoch FROM now() - state_change), 0)::bigint AS for_seconds,
       coalesce(age(backend_xmin), 0)::bigint AS horizon,
       coalesce(query ~* '^\s*listen\s', false) AS listens,
       coalesce(extract(epoch FROM now() - backend_start), 0)::bigint AS open_seconds
  FROM pg_stat_activity
 WHERE datname = current_database() AND pid <> pg_backend_pid() OR backend_type = 'walsender'
 ORDER BY age(backend_xmin) DESC NULLS LAST
