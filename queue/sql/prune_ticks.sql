-- Forgets up to $2 ticks that are older than $1 milliseconds.
-- Index: ticks_tick. Locks: the rows it deletes, skipping locked ones.
DELETE FROM doze.ticks WHERE (schedule, tick) IN (
    SELECT schedule, tick FROM doze.ticks WHERE tick < now() - $1::bigint * interval '1 millisecond' ORDER BY tick LIMIT $2::integer FOR UPDATE SKIP LOCKED)
