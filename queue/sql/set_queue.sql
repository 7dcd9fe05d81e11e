-- Changes a queue's settings; negative numbers and an empty history leave one as it is. Slots above
-- the new number go once they are free.
-- Index: queues_pkey, slots_pkey, slots_one. Locks: the queue's row and its spare slots.
WITH changed AS (
    UPDATE doze.queues
       SET slots = CASE WHEN $2::integer > 0 THEN $2::integer ELSE slots END,
           max_reaps = CASE WHEN $3::integer > 0 THEN $3::integer ELSE max_reaps END,
           history = CASE $4::text WHEN 'on' THEN true WHEN 'off' THEN false ELSE history END
     WHERE queue = $1::text RETURNING queue, slots
), more AS (
    INSERT INTO doze.slots (queue, slot) SELECT queue, generate_series(1, slots) FROM changed ON CONFLICT DO NOTHING
), fewer AS (
    DELETE FROM doze.slots s USING changed c WHERE s.queue = c.queue AND s.slot > c.slots AND (s.state = 'free' OR s.locked_until <= now())
)
SELECT queue FROM changed
