-- Deletes up to $1 keys whose hold is over.
-- Index: keys_expires. Locks: the rows it deletes, skipping locked ones.
DELETE FROM doze.keys WHERE (kind, key) IN (
    SELECT kind, key FROM doze.keys WHERE expires_at < now() ORDER BY expires_at LIMIT $1::integer FOR UPDATE SKIP LOCKED)
