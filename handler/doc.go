// Package handler runs jobs. A [Mux] holds a handler for each kind of job, and a [Drainer]
// takes a queue's due jobs under a lease, runs them, finishes them in batches and
// returns when none is left: the life of one short function.
//
// No transaction is open while a handler runs. A handler that fails, panics, gets
// a payload it cannot read or never returns hurts its own job alone.
package handler
