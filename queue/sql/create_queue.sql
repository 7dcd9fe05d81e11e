-- Makes a queue's row and its slots, if they are not there.
-- Index: queues_pkey, slots_pkey. Locks: none but the new rows.
WITH made AS (
    INSERT INTO doze.queues (queue) VALUES ($1::text) ON CONFLICT (queue) DO NOTHING RETURNING queue, slots
)
INSERT INTO doze.slots (queue, slot) SELECT queue, generate_series(1, slots) FROM made
ON CONFLICT (queue, slot) DO NOTHING
