package queue

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Get returns one job, live or finished, or [ErrNotFound].
func (s *Store) Get(ctx context.Context, db DB, id uuid.UUID) (Job, error) {
	return s.one(ctx, db, "get", "get", id)
}

// List returns jobs, live and finished, newest first and without payloads. Go on from a
// page by setting [Filter.Before] to the last id of it. It returns a [*FieldError] for
// a limit or state that is not one.
func (s *Store) List(ctx context.Context, db DB, f Filter) ([]Job, error) {
	switch {
	case f.Limit == 0:
		f.Limit = 100
	case f.Limit < 0 || f.Limit > 1000:
		return nil, fieldError("limit", fmt.Sprint(f.Limit), "want 1 to 1000")
	}
	if f.State != "" && !f.State.Valid() {
		return nil, fieldError("state", string(f.State), "want queued, running, done, failed or cancelled")
	}
	var jobs []Job
	err := run(ctx, db, s.call("list", "list", readJob(func(j Job) { jobs = append(jobs, j) }),
		f.Queue, f.Kind, string(f.State), optional(f.Before), int32(f.Limit)))
	return jobs, err
}

// Queues returns the counts of every queue that has a row or a job, by name. It counts rows, so
// it is for people and not for loops.
func (s *Store) Queues(ctx context.Context, db DB) ([]Counts, error) {
	var all []Counts
	err := run(ctx, db, s.call("queues", "queues", func(rows pgx.Rows) error {
		var c Counts
		var oldest int64
		if err := rows.Scan(&c.Queue, &c.Paused, &c.Slots, &c.Held, &c.Queued, &c.Due, &c.Running, &c.Failed, &oldest); err != nil {
			return err
		}
		c.Oldest = time.Duration(oldest) * time.Millisecond
		all = append(all, c)
		return nil
	}))
	return all, err
}

// Cancel ends a live job as cancelled. A running one is taken from its drain, whose
// handler's context is cancelled at the next renewal of its lease; whatever it reports is
// refused. Cancelling a cancelled job changes nothing. It returns [ErrNotFound], or a
// [*StateError] for a job that is done or failed.
func (s *Store) Cancel(ctx context.Context, db DB, id uuid.UUID) (Job, error) {
	return s.operate(ctx, db, "cancel", id, Cancelled)
}

// Retry queues a failed or cancelled job again, with its failures and reaps at zero, or makes a
// waiting one due now. Ring its queue afterwards. It returns [ErrNotFound], or a
// [*StateError] for a job that is running or done.
func (s *Store) Retry(ctx context.Context, db DB, id uuid.UUID) (Job, error) {
	return s.operate(ctx, db, "retry", id, "")
}

// operate runs cancel or retry; a job found in state same already is left as it is.
func (s *Store) operate(ctx context.Context, db DB, op string, id uuid.UUID, same State) (Job, error) {
	// A job may move between the tables while we look, so look again.
	for range 3 {
		job, err := s.one(ctx, db, op, op, id)
		if err == nil || Classify(err) != Permanent {
			return job, err
		}
		job, err = s.Get(ctx, db, id)
		if err != nil || job.State == same {
			return job, err
		}
		if job.State.Final() || op == "retry" && job.State == Running {
			if op == "retry" && (job.State == Failed || job.State == Cancelled) {
				continue
			}
			return Job{}, &StateError{ID: id, State: job.State, Op: op}
		}
	}
	return Job{}, fmt.Errorf("%s job %s: it kept changing; try again", op, id)
}

func (s *Store) one(ctx context.Context, db DB, op, file string, id uuid.UUID) (Job, error) {
	var found *Job
	err := run(ctx, db, s.call(op, file, readJob(func(j Job) { found = &j }), id.String()))
	switch {
	case err != nil:
		return Job{}, err
	case found == nil:
		return Job{}, fmt.Errorf("%s job %s: %w", op, id, ErrNotFound)
	}
	return *found, nil
}

func readJob(add func(Job)) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var j Job
		var finished *time.Time
		if err := rows.Scan(&j.ID, &j.Queue, &j.Kind, &j.State, &j.Priority, &j.RunAt, &j.Attempts, &j.Failures, &j.MaxAttempts,
			&j.Reaps, &j.CreatedAt, &finished, &j.Key, &j.LastError, (*[]byte)(&j.Payload)); err != nil {
			return err
		}
		if finished != nil {
			j.FinishedAt = *finished
		}
		add(j)
		return nil
	}
}

// Pause stops claims of a queue; jobs that run go on. A queue without a row gets one. Pausing
// a paused queue changes nothing.
func (s *Store) Pause(ctx context.Context, db DB, queueName string) error {
	return s.change(ctx, db, queueName, func(found *bool) call {
		return s.call("pause", "pause", func(pgx.Rows) error { *found = true; return nil }, queueName)
	})
}

// Resume lets a queue be claimed from again. Ring it afterwards. Resuming a queue that runs
// changes nothing.
func (s *Store) Resume(ctx context.Context, db DB, queueName string) error {
	return s.change(ctx, db, queueName, func(found *bool) call {
		return s.call("resume", "resume", func(pgx.Rows) error { *found = true; return nil }, queueName)
	})
}

// Configure changes a queue's settings. A queue without a row gets one. It returns a
// [*FieldError] for a setting out of its range.
func (s *Store) Configure(ctx context.Context, db DB, queueName string, set Settings) error {
	switch {
	case set.Slots < 0 || set.Slots > 1000:
		return fieldError("slots", fmt.Sprint(set.Slots), "want 1 to 1000, or 0 to leave it")
	case set.MaxReaps < 0 || set.MaxReaps > 100:
		return fieldError("max_reaps", fmt.Sprint(set.MaxReaps), "want 1 to 100, or 0 to leave it")
	case set.History != "" && set.History != "on" && set.History != "off":
		return fieldError("history", set.History, "want on or off, or nothing to leave it")
	}
	return s.change(ctx, db, queueName, func(found *bool) call {
		return s.call("configure", "set_queue", func(pgx.Rows) error { *found = true; return nil },
			queueName, int32(set.Slots), int32(set.MaxReaps), set.History)
	})
}

// EnsureQueue makes a queue's row, if it has none.
func (s *Store) EnsureQueue(ctx context.Context, db DB, queueName string) error {
	return run(ctx, db, s.call("create queue", "create_queue", nil, queueName))
}

// change makes a call that finds the queue's row, after making the row if need be.
func (s *Store) change(ctx context.Context, db DB, queueName string, c func(found *bool) call) error {
	if err := CheckQueue(queueName); err != nil {
		return err
	}
	for range 2 {
		found := false
		if err := run(ctx, db, c(&found)); err != nil || found {
			return err
		}
		if err := s.EnsureQueue(ctx, db, queueName); err != nil {
			return err
		}
	}
	return fmt.Errorf("queue %q: %w", queueName, ErrNotFound)
}
