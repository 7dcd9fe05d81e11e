-- Takes a free slot, or one whose drain let it expire. No row: all are held.
-- Index: slots_pkey. Locks: the slot's row, skipping those that others are taking.
UPDATE doze.slots
   SET state = 'open', token = $2::text::uuid, locked_until = clock_timestamp() + $3::bigint * interval '1 millisecond'
 WHERE (queue, slot) IN (SELECT s.queue, s.slot FROM doze.slots s JOIN doze.queues q ON q.queue = s.queue
                          WHERE s.queue = $1::text AND s.slot <= q.slots AND (s.state = 'free' OR s.locked_until <= now())
                          ORDER BY s.slot LIMIT 1 FOR UPDATE OF s SKIP LOCKED)
RETURNING slot
