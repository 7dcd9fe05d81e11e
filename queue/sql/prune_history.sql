-- Empties the days of history that ended more than $1 milliseconds ago; returns how many.
-- Locks: each such day, exclusively, if it can be had within 200 ms.
SELECT doze.prune_history($1::bigint * interval '1 millisecond')
