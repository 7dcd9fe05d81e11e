-- Lowers a queue's floor for a job that is due from $2 and was committed before. Nothing to do if the floor is
-- no higher and the job's time is a moment ago at most: whoever raises the floor leaves the last two
-- seconds alone. Else it takes the row's lock even if the floor looks low enough: it may be about to be raised by
-- somebody who does not see the job (see docs/wake.md).
-- Index: bells_pkey, from the newest epoch. Locks: the bell's row, only if it may change.
UPDATE doze.bells b SET floor = least(b.floor, $2::timestamptz)
 WHERE b.queue = $1::text AND b.epoch >= (SELECT e.epoch FROM doze.bells e WHERE e.queue = $1::text ORDER BY e.epoch DESC LIMIT 1)
   AND (b.floor > $2::timestamptz OR $2::timestamptz < now() - interval '1 second')
