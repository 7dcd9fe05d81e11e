package handler

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dozequeue/doze/queue"
)

// Causes with which a handler's context ends; see [context.Cause].
var (
	// ErrLeaseLost: the job is no longer this drain's, or will not be in a moment. It was cancelled,
	// or the lease could not be renewed in time. What the handler returns is recorded only if
	// nobody else has the job, and an error then counts as no failure.
	ErrLeaseLost = errors.New("handler: the job was taken away")
	// ErrTimeUp: the drain's deadline is near. The job is queued again.
	ErrTimeUp = errors.New("handler: the drain's time is up")
	// ErrTimeout: the attempt took longer than its kind's time limit.
	ErrTimeout = errors.New("handler: the job's time limit is over")
)

type snoozed struct{ delay time.Duration }

func (e *snoozed) Error() string { return fmt.Sprintf("snoozed for %v", e.delay) }

// leastSnooze keeps a job that snoozes for no time from turning its drain into a loop.
const leastSnooze = time.Second

// Snooze makes a handler's job run again after d, without counting a failure. D is a second at
// least.
func Snooze(d time.Duration) error { return &snoozed{max(d, leastSnooze)} }

type discarded struct{ err error }

func (e *discarded) Error() string { return e.err.Error() }
func (e *discarded) Unwrap() error { return e.err }

// Discard makes a job fail for good, whatever attempts it has left. A nil err gives nil.
func Discard(err error) error {
	if err == nil {
		return nil
	}
	return &discarded{err}
}

// CompleteTx finishes the job as done inside the caller's transaction, so that the job is
// done exactly when the caller's own writes are committed. Ctx must be the handler's. Commit
// before the handler returns, and return nil. It returns [ErrLeaseLost] if the
// job is no longer this drain's: roll back then.
//
// The transaction's role needs the drain role's rights.
func CompleteTx(ctx context.Context, tx pgx.Tx) error {
	a, _ := ctx.Value(attemptKey{}).(*attempt)
	if a == nil {
		return errors.New("complete: this context is not a handler's")
	}
	// Set first: from the statement on the transaction holds the job's row, which keeps others off it,
	// and a renewal of the lease would wait for the commit.
	a.completed.Store(true)
	held, err := a.store.Finish(ctx, queue.Unnamed(tx), []queue.Outcome{{ID: a.job.ID, Attempts: a.job.Attempts, Token: a.job.Token, State: queue.Done}})
	if err == nil && len(held) == 0 {
		a.completed.Store(false)
		return ErrLeaseLost
	}
	if err != nil {
		a.completed.Store(false)
		return fmt.Errorf("complete: %w", err)
	}
	return nil
}

// result sorts a finished attempt for the report.
type result int

const (
	resultDone result = iota
	resultRetried
	resultFailed
	resultSnoozed
	resultInterrupted
	resultReleased
	resultUnknown
	resultLost
)

var (
	// errNotCommitted is what an attempt failed with whose nil was wrong.
	errNotCommitted = errors.New("it was completed in a transaction that was not committed")
	// errUnreadable is what an attempt failed with whose error panics when it is asked for its text.
	errUnreadable = errors.New("the handler's error panicked when it was read")
)

// decide turns what an attempt returned into what becomes of its job. What it decides for a job
// completed by CompleteTx the fence refuses, if that was committed.
func (a *attempt) decide(d *Drainer) (o queue.Outcome, sort result) {
	fence := queue.Outcome{ID: a.job.ID, Attempts: a.job.Attempts, Token: a.job.Token}
	defer func() {
		if recover() != nil { // in a method of the handler's error: a nil pointer, say
			a.err = errUnreadable
			o, sort = a.fail(d, fence, a.err)
		}
	}()
	o = fence
	var snooze *snoozed
	var discard *discarded
	switch cause := context.Cause(a.ctx); {
	case a.skipped:
		return release(a.job), resultReleased
	case a.err == nil && a.completed.Load():
		a.err = errNotCommitted
		return a.fail(d, o, a.err)
	case a.err == nil:
		o.State = queue.Done
		return o, resultDone
	case errors.Is(cause, ErrLeaseLost):
		// The fence refuses this if somebody else has the job. If the lease merely could not be
		// renewed, the job need not wait for its end.
		return release(a.job), resultInterrupted
	case errors.As(a.err, &snooze):
		o.State, o.Delay = queue.Queued, snooze.delay
		return o, resultSnoozed
	case errors.As(a.err, &discard):
		o.State, o.Failed, o.Error = queue.Failed, true, a.err.Error()
		return o, resultFailed
	case errors.Is(cause, ErrTimeUp) && !a.hadItsTurn:
		// It began late in the drain. Had it had most of the drain's life, it would
		// never end in one: that is a failure, or it would come back for ever.
		o.State, o.Delay = queue.Queued, -1
		return o, resultInterrupted
	default:
		return a.fail(d, o, a.err)
	}
}

func (a *attempt) fail(d *Drainer, o queue.Outcome, err error) (queue.Outcome, result) {
	o.Failed, o.Error = true, err.Error()
	failures := a.job.Failures + 1
	if failures >= a.job.MaxAttempts {
		o.State = queue.Failed
		return o, resultFailed
	}
	backoff := d.cfg.Backoff
	if a.kind != nil && a.kind.backoff != nil {
		backoff = a.kind.backoff
	}
	o.State, o.Delay = queue.Queued, delay(backoff, failures)
	return o, resultRetried
}

// delay asks a backoff, which may be the user's and panic.
func delay(backoff queue.Backoff, failures int) (d time.Duration) {
	defer func() {
		if recover() != nil {
			d = defaultBackoff(failures)
		}
	}()
	return max(backoff(failures), 0)
}

var defaultBackoff = queue.Exponential(20*time.Second, time.Hour)

// unknown gives a job back whose kind has no handler here: another version may have
// one. Each look costs a wake, so it comes back ever more rarely.
func unknown(job *queue.Claimed) queue.Outcome {
	return queue.Outcome{
		ID: job.ID, Attempts: job.Attempts, Token: job.Token, State: queue.Queued,
		Delay: defaultBackoff(job.Attempts),
		Error: fmt.Sprintf("no handler for kind %q", job.Kind),
	}
}

// vanished ends a job whose drains vanished too often.
func vanished(job *queue.Claimed) queue.Outcome {
	return queue.Outcome{
		ID: job.ID, Attempts: job.Attempts, Token: job.Token, State: queue.Failed,
		Error: fmt.Sprintf("%d drains vanished while they ran it: killed, out of memory, or out of time", job.Reaps),
	}
}

// release gives a job back as it was, its due time and failures included.
func release(job *queue.Claimed) queue.Outcome {
	return queue.Outcome{ID: job.ID, Attempts: job.Attempts, Token: job.Token, State: queue.Queued, Delay: -1}
}
