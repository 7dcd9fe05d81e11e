-- Gives a slot up. It must be committed before the last look (next.sql).
-- Index: slots_pkey, a probe for each slot from its newest epoch. Locks: the slot's row.
WITH mine AS MATERIALIZED (
    SELECT nr AS slot, s.epoch
      FROM generate_series(1, (SELECT m.slot FROM doze.slots m WHERE m.queue = $1::text ORDER BY m.slot DESC LIMIT 1)) AS nr
     CROSS JOIN LATERAL (SELECT s.epoch, s.token FROM doze.slots s WHERE s.queue = $1::text AND s.slot = nr ORDER BY s.epoch DESC LIMIT 1) s
     WHERE s.token = $2::text::uuid LIMIT 1
)
UPDATE doze.slots s SET state = 'free', token = NULL, locked_until = NULL
  FROM mine m WHERE s.queue = $1::text AND s.slot = m.slot AND s.epoch >= m.epoch AND s.token = $2::text::uuid
