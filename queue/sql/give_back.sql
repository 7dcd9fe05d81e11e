-- Gives back what the claims with these tokens ($2) took, when their answer was lost and nobody will run
-- it: without this it would wait for the end of its lease and count a reap.
-- Index: jobs_ready, over the due jobs of the queue: the tokens have none. Locks: the rows it gives back.
UPDATE doze.jobs SET token = NULL, locked_until = '-infinity'
 WHERE queue = $1::text AND priority BETWEEN -10 AND 10 AND run_at <= now() AND token = ANY ($2::text[]::uuid[])
