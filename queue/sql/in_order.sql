-- Has the claim that follows in this transaction walk its index in order, and stop at its limit.
-- With statistics from before a burst of jobs the planner takes a queue's backlog for a few rows,
-- and would read and sort all of it for each claim; and for a large batch it would read the
-- whole table.
SELECT set_config('enable_sort', 'off', true), set_config('enable_seqscan', 'off', true), set_config('enable_mergejoin', 'off', true)
