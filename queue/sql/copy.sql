-- Takes in jobs that are due at once and have no key, by the ids that were made for them just now: the fastest way in
-- for many. It cannot say that a job was there already, so it is not for repeats.
-- Index: none. Locks: none but the new rows.
COPY doze.jobs (id, queue, kind, priority, max_attempts, payload) FROM STDIN (FORMAT binary)
