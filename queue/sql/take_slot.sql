-- Takes a free slot, or one whose drain let it expire. No row: all are held, or the tables are
-- older than this build ($4), or the role could claim jobs but not finish them, and
-- would use up their attempts.
-- Its commit does not wait for the disk: what a crash can bring back is a free slot.
-- Index: queues_pkey; slots_pkey, a probe for each slot from its newest epoch. Locks: the slot's row, skipping those that others are taking.
WITH free AS MATERIALIZED (
    SELECT s.slot, s.epoch
      FROM doze.queues q
     CROSS JOIN generate_series(1, q.slots) AS nr
     CROSS JOIN LATERAL (SELECT s.slot, s.epoch FROM doze.slots s
                          WHERE s.queue = $1::text AND s.slot = nr
                            AND s.epoch >= (SELECT e.epoch FROM doze.slots e WHERE e.queue = $1::text AND e.slot = nr ORDER BY e.epoch DESC LIMIT 1)
                            AND (s.state = 'free' OR s.locked_until <= now())
                          LIMIT 1 FOR UPDATE SKIP LOCKED) s
     WHERE q.queue = $1::text
       AND (SELECT max(version) FROM doze.migrations) >= $4::integer
       AND has_table_privilege('doze.jobs', 'DELETE') AND has_table_privilege('doze.history', 'INSERT')
     LIMIT 1
)
UPDATE doze.slots s
   SET state = 'open', token = $2::text::uuid, locked_until = clock_timestamp() + $3::bigint * interval '1 millisecond',
       epoch = greatest(s.epoch, (SELECT e.epoch FROM doze.bells e WHERE e.queue = $1::text ORDER BY e.epoch DESC LIMIT 1))
  FROM free f WHERE s.queue = $1::text AND s.slot = f.slot AND s.epoch >= f.epoch
RETURNING s.slot, set_config('synchronous_commit', 'off', true) AS unsynced
