-- What this login may do: each of the functions' roles by what only it needs.
-- Index: none, it reads catalogs. Locks: none.
SELECT has_column_privilege('doze.jobs', 'payload', 'INSERT') AND has_column_privilege('doze.bells', 'bell_until', 'UPDATE')
       AND has_table_privilege('doze.keys', 'SELECT') AS enqueue,
       has_table_privilege('doze.jobs', 'DELETE') AND has_table_privilege('doze.history', 'INSERT')
       AND has_column_privilege('doze.jobs', 'attempts', 'UPDATE') AND has_column_privilege('doze.slots', 'token', 'UPDATE') AS drain,
       has_column_privilege('doze.jobs', 'reaps', 'UPDATE') AND has_table_privilege('doze.history_0', 'TRUNCATE')
       AND has_table_privilege('doze.keys', 'DELETE') AS sweep
