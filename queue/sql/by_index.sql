-- Has the finish or renewal that follows in this transaction look its jobs up by id, one by one.
-- With a large batch the planner would rather read all of a table of up to 100,000 live
-- jobs, which is slower and locks the rows in another order.
-- Nor does it think of a merge join: to judge one it looks for the first and the last id, which beside an old snapshot
-- takes longer than the finish.
SELECT set_config('enable_seqscan', 'off', true), set_config('enable_mergejoin', 'off', true)
