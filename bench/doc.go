// Command bench runs Doze beside other job queues on one Postgres, interleaved, and prints medians and ratios.
//
//	go run .                                   all measures, three rounds: about half an hour
//	go run . -what drain,enqueue -who doze,river,limit -rounds 5
//	go run . -short                            small, one round: that it still works; no figure of it means anything
//	go run . -json figures.json                rows {"what","who","value","unit","rounds"}
//	go run . -what pinned -for 15m             a snapshot that stays open for 15 minutes; writes pinned.svg
//
// It sets up its own Postgres, durable (fsync on), with the same settings for all. Each contender has a database of
// its own, runs at the best settings that its documentation gives, and is named with its version and those
// settings. A round in which something else used the machine's processors is repeated.
//
// The rivals written in JavaScript are installed by npm into a cache folder when they are first asked for; without
// npm they are left out, and the output says so. pgmq is an extension whose SQL is not on the module proxy: give its file
// with -pgmq to have it run.
package main
