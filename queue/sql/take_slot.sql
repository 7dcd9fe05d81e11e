-- Takes a free slot, or one whose drain let it expire. No row: all are held, or the tables are
-- older than this build ($4), or the role could claim jobs but not finish them, and
-- would use up their attempts.
-- Its commit does not wait for the disk: what a crash can bring back is a free slot.
-- Index: slots_pkey. Locks: the slot's row, skipping those that others are taking.
WITH free AS MATERIALIZED (
    SELECT s.queue, s.slot
      FROM doze.slots s JOIN doze.queues q ON q.queue = s.queue
     WHERE s.queue = $1::text AND s.slot <= q.slots AND (s.state = 'free' OR s.locked_until <= now())
       AND (SELECT max(version) FROM doze.migrations) >= $4::integer
       AND has_table_privilege('doze.jobs', 'DELETE') AND has_table_privilege('doze.history', 'INSERT')
     ORDER BY s.slot LIMIT 1 FOR UPDATE OF s SKIP LOCKED
)
UPDATE doze.slots s
   SET state = 'open', token = $2::text::uuid, locked_until = clock_timestamp() + $3::bigint * interval '1 millisecond'
  FROM free f WHERE s.queue = f.queue AND s.slot = f.slot
RETURNING s.slot, set_config('synchronous_commit', 'off', true) AS unsynced
