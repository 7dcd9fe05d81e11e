-- Forgets every alarm, where the service that kept them has lost them: an alarm kept in a
-- process dies with it.
-- Index: none, it reads the bells. Locks: the rows of those with an alarm.
UPDATE doze.bells SET armed_at = NULL, armed_id = NULL WHERE armed_at IS NOT NULL
