-- Deletes up to $1 keys whose hold is over.
-- Index: keys_expires, which the second bound makes usable. Locks: the rows it deletes, skipping locked ones.
WITH old AS MATERIALIZED (
    SELECT kind, key FROM doze.keys WHERE expires_at < now() AND expires_at < 'infinity' ORDER BY expires_at LIMIT $1::integer FOR UPDATE SKIP LOCKED
)
DELETE FROM doze.keys k USING old o WHERE k.kind = o.kind AND k.key = o.key
