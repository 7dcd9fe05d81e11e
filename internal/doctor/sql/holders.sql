-- What else pins the horizon or keeps a compute awake: replication slots, prepared transactions, extensions
-- that run jobs of their own.
-- Index: none, it reads catalogs. Locks: none.
SELECT 'replication slot' AS what, slot_name::text AS name, active, coalesce(greatest(age(xmin), age(catalog_xmin)), 0)::bigint AS horizon
  FROM pg_replication_slots
UNION ALL
SELECT 'prepared transaction', gid, true, age(transaction)::bigint FROM pg_prepared_xacts WHERE database = current_database()
UNION ALL
SELECT 'extension', extname::text, true, 0 FROM pg_extension WHERE extname IN ('pg_cron', 'pg_partman_bgw', 'timescaledb', 'pg_net')
