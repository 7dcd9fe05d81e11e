-- Deletes up to $2 failed jobs that ended more than $1 milliseconds ago, oldest first.
-- Index: history_failed_finished. Locks: the rows it deletes.
WITH old AS MATERIALIZED (
    SELECT id, finished_at, bucket FROM doze.history_failed WHERE finished_at < now() - $1::bigint * interval '1 millisecond'
     ORDER BY finished_at LIMIT $2::integer FOR UPDATE SKIP LOCKED
)
DELETE FROM doze.history_failed f USING old o WHERE f.id = o.id AND f.finished_at = o.finished_at AND f.bucket = o.bucket
