-- Makes a queue's row, its bell and its slots, if they are not there.
-- Index: queues_pkey, bells_one, slots_one. Locks: none but the new rows.
WITH made AS (
    INSERT INTO doze.queues (queue) VALUES ($1::text) ON CONFLICT (queue) DO NOTHING RETURNING queue, slots
), bell AS (
    INSERT INTO doze.bells (queue) SELECT queue FROM made
)
INSERT INTO doze.slots (queue, slot) SELECT queue, generate_series(1, slots) FROM made
ON CONFLICT DO NOTHING
