-- Says whether this drain will look again soon (open) or not (busy), and renews its slot.
-- Index: slots_pkey. Locks: the slot's row. No row: the slot was taken over.
UPDATE doze.slots
   SET state = $3::text, locked_until = clock_timestamp() + $4::bigint * interval '1 millisecond'
 WHERE queue = $1::text AND token = $2::text::uuid
RETURNING slot
