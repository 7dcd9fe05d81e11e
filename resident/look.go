package resident

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dozequeue/doze/handler"
	"github.com/dozequeue/doze/queue"
)

// look finds the queues that have due work. Later, if not nil, is told of the others that have live jobs or a
// schedule, and when the next of that is due. What is wrong with one queue does not keep it from the others.
func look(ctx context.Context, db queue.DB, store *queue.Store, later func(name string, in time.Duration) error) (due []string, err error) {
	names, err := store.Waiting(ctx, db)
	if err != nil {
		return nil, err
	}
	var wrong []error
	for _, name := range names {
		next, err := store.Next(ctx, db, name)
		if err == nil && !next.Due && next.In < 0 { // jobs for which nobody has rung yet, so there is no row
			if err = store.EnsureQueue(ctx, db, name); err == nil {
				next, err = store.Next(ctx, db, name)
			}
		}
		switch {
		case err == nil && next.Due:
			due = append(due, name)
		case err == nil && next.In >= 0 && later != nil:
			err = later(name, next.In)
		}
		if err != nil {
			wrong = append(wrong, &queueError{name, err})
		}
	}
	return due, errors.Join(wrong...)
}

// queueError is what is wrong with one queue.
type queueError struct {
	name string
	err  error
}

func (e *queueError) Error() string { return fmt.Sprintf("look at queue %q: %v", e.name, e.err) }
func (e *queueError) Unwrap() error { return e.err }

// atOnce is how many queues [Once] drains at the same time.
const atOnce = 4

// Once drains each queue that has due work, a few at a time, and returns what each drain did. Give ctx a deadline:
// what is left then stays queued for the next time, and so does what becomes due meanwhile.
//
// Db is the drainer's pool, and schema that of the tables, empty for [queue.DefaultSchema]. It returns an error if the
// database could not be asked or a drain failed; the others have been drained all the same. That handlers
// fail is no error.
func Once(ctx context.Context, db queue.DB, drainer *handler.Drainer, schema string) ([]handler.Drained, error) {
	store, err := queue.NewStore(schema)
	if err != nil {
		return nil, err
	}
	due, err := look(ctx, queue.Unnamed(db), store, nil)
	reports, errs := make([]handler.Drained, len(due)), make([]error, len(due))
	var all sync.WaitGroup
	room := make(chan struct{}, atOnce)
	for i, name := range due {
		room <- struct{}{}
		all.Go(func() {
			defer func() { <-room }()
			if reports[i], errs[i] = drainer.Drain(ctx, queue.Wake{Version: 1, Queue: name, Reason: queue.ReasonSweep}); errs[i] != nil {
				errs[i] = fmt.Errorf("drain queue %q: %w", name, errs[i])
			}
		})
	}
	all.Wait()
	return reports, errors.Join(append(errs, err)...)
}
