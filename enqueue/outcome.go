package enqueue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dozequeue/doze/queue"
)

// ErrOutcomeUnknown is found by errors.Is in an [*OutcomeError].
var ErrOutcomeUnknown = errors.New("enqueue: outcome unknown")

// OutcomeError is returned where the answer to a commit was lost and could not be had by
// asking again: the jobs may be stored or not. Their queues were woken, or have an alarm, to be safe. To be
// sure, enqueue the same jobs again with their ids by the option [ID]: those that are there are
// found, and reported as duplicates.
type OutcomeError struct {
	// IDs of the jobs, in the order in which they were given. None where a transaction
	// of [Client.InTx] added no job.
	IDs []uuid.UUID
	// Err is the last error met.
	Err error
}

func (e *OutcomeError) Error() string {
	switch len(e.IDs) {
	case 0:
		return fmt.Sprintf("enqueue: it is not known whether the transaction was committed: %v", e.Err)
	case 1:
		return fmt.Sprintf("enqueue: it is not known whether job %s was stored; enqueue it again with the same id to be sure: %v", e.IDs[0], e.Err)
	}
	return fmt.Sprintf("enqueue: it is not known whether %d jobs were stored; enqueue them again with the same ids to be sure: %v", len(e.IDs), e.Err)
}

// Unwrap makes both [ErrOutcomeUnknown] and the last error met visible to errors.Is.
func (e *OutcomeError) Unwrap() []error { return []error{ErrOutcomeUnknown, e.Err} }

// unsentError is met before anything went to the server.
type unsentError struct{ error }

func (e *unsentError) Unwrap() error { return e.error }

// maybeCommitted reports whether what failed with err may have been committed all the same.
func maybeCommitted(err error) bool {
	var (
		unsent *unsentError
		pg     *pgconn.PgError
	)
	switch {
	case errors.As(err, &unsent), pgconn.SafeToRetry(err), errors.Is(err, pgx.ErrTxCommitRollback):
		return false
	case errors.As(err, &pg):
		// An ERROR is the server's word that it rolled back. FATAL comes as
		// well when it shuts down after the commit and before its answer.
		return pg.SeverityUnlocalized != "ERROR" && pg.Severity != "ERROR"
	}
	return true
}

// repeatable reports whether another try may fare better.
func repeatable(err error) bool {
	class := queue.Classify(err)
	return class == queue.Unavailable || class == queue.Conflict
}

// Bounds of the pauses between tries.
const (
	firstPause   = 50 * time.Millisecond
	longestPause = 2 * time.Second
)

// wait pauses before try+1. It returns an error once the context has ended.
func wait(ctx context.Context, try int) error {
	limit := min(firstPause<<min(try, 10), longestPause)
	// Full jitter: after an outage the clients do not come back in step.
	timer := time.NewTimer(rand.N(limit))
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}
