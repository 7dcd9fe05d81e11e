-- A drain's first step: answers the bell, and takes down the alarm that brought it ($2, by
-- id: an alarm that fires early must not be taken for a later one) or one whose time has passed: this
-- drain sees to what it was for, and sets the next one as it leaves. It must be committed
-- before the drain takes its slot, or a job is lost (see docs/wake.md).
-- A floor in the future is from before the clock was set back: it is taken away.
-- Its commit does not wait for the disk: what a crash can bring back is a bell, which ends by itself.
-- Index: queues_pkey; bells_pkey, from the newest epoch. Locks: the bell's row.
UPDATE doze.bells b
   SET bell_until = NULL,
       floor = CASE WHEN b.floor > now() THEN '-infinity' ELSE b.floor END,
       armed_at = CASE WHEN b.armed_id = nullif($2::text, '')::uuid OR b.armed_at <= now() THEN NULL ELSE b.armed_at END,
       armed_id = CASE WHEN b.armed_id = nullif($2::text, '')::uuid OR b.armed_at <= now() THEN NULL ELSE b.armed_id END
  FROM doze.queues q
 WHERE q.queue = $1::text
   AND b.queue = $1::text AND b.epoch >= (SELECT e.epoch FROM doze.bells e WHERE e.queue = $1::text ORDER BY e.epoch DESC LIMIT 1)
RETURNING q.max_reaps::integer AS max_reaps, (SELECT max(version) FROM doze.migrations) AS version,
          has_table_privilege('doze.jobs', 'DELETE') AND has_table_privilege('doze.history', 'INSERT') AS granted,
          set_config('synchronous_commit', 'off', true) AS unsynced
