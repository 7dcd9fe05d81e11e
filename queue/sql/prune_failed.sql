-- Deletes up to $2 failed jobs that ended more than $1 milliseconds ago, oldest first.
-- Index: history_failed_finished. Locks: the rows it deletes.
DELETE FROM doze.history
 WHERE bucket = -1 AND (id, bucket) IN (
       SELECT id, bucket FROM doze.history_failed WHERE finished_at < now() - $1::bigint * interval '1 millisecond'
        ORDER BY finished_at LIMIT $2::integer FOR UPDATE SKIP LOCKED)
