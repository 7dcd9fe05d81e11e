-- What in_order.sql does, and the transaction's commit does not wait for the disk: for a claim by itself. If the server
-- crashes just then the claim is as if it had not been made, and its drain learns of it by the fence.
SELECT set_config('enable_sort', 'off', true), set_config('enable_seqscan', 'off', true), set_config('enable_mergejoin', 'off', true), set_config('synchronous_commit', 'off', true)
