// Package doze is background jobs on Postgres that let the database sleep.
//
// Nothing polls. An enqueue commits a job and then starts a short-lived function, which
// claims due jobs under a lease, runs them, finishes them, and returns; a rare sweep is
// the last resort. With nothing to do no statement runs and no connection is open.
//
//   - [github.com/dozequeue/doze/enqueue] puts jobs in: alone, in bulk, in your transaction, over HTTP.
//   - [github.com/dozequeue/doze/handler] runs them: register a function for each kind, then drain.
//   - [github.com/dozequeue/doze/sweeper] sweeps: takes jobs back from functions that died.
//   - [github.com/dozequeue/doze/schedule] makes jobs at the ticks of cron expressions.
//   - [github.com/dozequeue/doze/trigger] starts drains: on Lambda, over HTTP, or not at all.
//   - [github.com/dozequeue/doze/queue] has the words and the statements that they share.
//   - [github.com/dozequeue/doze/migrations] makes the tables.
//
// This package itself is empty. The command is cmd/doze, and the mains are in functions.
package doze
