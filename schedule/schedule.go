// Package schedule makes jobs at the ticks of cron expressions, with no leader and no process
// that waits: whichever drain, sweep or alarm comes first evaluates the schedules that are due, one
// row's lock decides who made a tick's job, and the next tick is what the queue's alarm is
// set for.
package schedule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/google/uuid"

	"github.com/dozequeue/doze/queue"
)

// onTime is how late a tick may be evaluated and not count as missed: alarms are precise to a
// minute, and a suspended database takes its time to wake.
const onTime = 2 * time.Minute

// Schedules are the schedules of one schema.
type Schedules struct {
	db    queue.DB
	store *queue.Store
	alarm queue.Alarm
}

// New returns the schedules of a schema; empty means [queue.DefaultSchema]. With an alarm a schedule
// that is put has its queue woken at its next tick; without one (nil) the sweep's period bounds
// how late it is.
func New(db queue.DB, schema string, alarm queue.Alarm) (*Schedules, error) {
	store, err := queue.NewStore(schema)
	if err != nil {
		return nil, err
	}
	return &Schedules{db: db, store: store, alarm: alarm}, nil
}

var nameRule = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`)

// withDefaults fills in what may be left out.
func withDefaults(c queue.Schedule) queue.Schedule {
	if c.Queue == "" {
		c.Queue = queue.DefaultQueue
	}
	if c.TimeZone == "" {
		c.TimeZone = "UTC"
	}
	if c.CatchUp == "" {
		c.CatchUp = queue.CatchUpLatest
	}
	if c.CatchUpLimit == 0 {
		c.CatchUpLimit = 10
	}
	if c.MaxAttempts == 0 {
		c.MaxAttempts = 10
	}
	if len(c.Payload) == 0 {
		c.Payload = json.RawMessage("null")
	}
	return c
}

// check returns an error for the first field that is wrong, before any SQL.
func check(c queue.Schedule) error {
	if !nameRule.MatchString(c.Name) {
		return &queue.FieldError{Index: -1, Field: "name", Value: fmt.Sprintf("%.80q", c.Name), Rule: "want 1 to 64 letters, digits and . _ - (ASCII), the first a letter or digit"}
	}
	switch c.CatchUp {
	case queue.CatchUpSkip, queue.CatchUpLatest, queue.CatchUpAll:
	default:
		return &queue.FieldError{Index: -1, Field: "catch_up", Value: fmt.Sprintf("%.80q", c.CatchUp), Rule: "want skip, latest or all"}
	}
	if c.CatchUpLimit < 1 || c.CatchUpLimit > 1000 {
		return &queue.FieldError{Index: -1, Field: "catch_up_limit", Value: fmt.Sprint(c.CatchUpLimit), Rule: "want 1 to 1000"}
	}
	job := queue.NewJob{Queue: c.Queue, Kind: c.Kind, Priority: c.Priority, MaxAttempts: c.MaxAttempts, Payload: c.Payload}
	return job.Check(0)
}

// Put makes a schedule or changes it, by name. Left out: the queue is "default", the zone UTC, catching
// up is by the latest tick, ten attempts, payload null. Putting one that is there with the same
// cron expression and zone loses no tick, so a deployment may put all of its schedules each time.
// It returns a [*queue.FieldError] or the error of [Parse] for a field that is wrong.
func (s *Schedules) Put(ctx context.Context, c queue.Schedule) error {
	c = withDefaults(c)
	if err := check(c); err != nil {
		return err
	}
	ticks, err := Parse(c.Cron, c.TimeZone)
	if err != nil {
		return err
	}
	now, err := s.store.Now(ctx, s.db)
	if err != nil {
		return err
	}
	c.NextAt = ticks.Next(now)
	if err := s.store.PutSchedule(ctx, s.db, c); err != nil {
		return err
	}
	return s.arm(ctx, c.Queue)
}

// List returns all schedules by name.
func (s *Schedules) List(ctx context.Context) ([]queue.Schedule, error) {
	return s.store.Schedules(ctx, s.db, "")
}

// Delete deletes a schedule; jobs that it has made stay. It returns [queue.ErrNotFound].
func (s *Schedules) Delete(ctx context.Context, name string) error {
	_, err := s.store.DeleteSchedule(ctx, s.db, name)
	return err
}

// Pause keeps a schedule from ticking. It returns [queue.ErrNotFound].
func (s *Schedules) Pause(ctx context.Context, name string) error {
	_, err := s.store.PauseSchedule(ctx, s.db, name, true, time.Time{})
	return err
}

// Resume lets a paused schedule go on with its next tick; what it missed is not caught up. It returns
// [queue.ErrNotFound].
func (s *Schedules) Resume(ctx context.Context, name string) error {
	found, err := s.store.Schedules(ctx, s.db, name)
	if err != nil {
		return err
	}
	if name == "" || len(found) == 0 {
		return fmt.Errorf("schedule %q: %w", name, queue.ErrNotFound)
	}
	ticks, err := Parse(found[0].Cron, found[0].TimeZone)
	if err != nil {
		return err
	}
	now, err := s.store.Now(ctx, s.db)
	if err != nil {
		return err
	}
	queueName, err := s.store.PauseSchedule(ctx, s.db, name, false, ticks.Next(now))
	if err != nil {
		return err
	}
	return s.arm(ctx, queueName)
}

func (s *Schedules) arm(ctx context.Context, queueName string) error {
	if err := s.store.EnsureQueue(ctx, s.db, queueName); err != nil || s.alarm == nil {
		return err
	}
	_, err := s.store.SetNextAlarm(ctx, s.db, s.alarm, queueName)
	return err
}

// Tick makes the jobs of schedules that are due, as read by [queue.Store.DueSchedules] at the time
// now, and returns their ids. A schedule that cannot be evaluated does not keep the others from
// ticking; it is moved on by an hour, so that it is not due for ever, and its error is
// among those returned.
func Tick(ctx context.Context, db queue.DB, store *queue.Store, due []queue.Schedule, now time.Time) ([]uuid.UUID, error) {
	var made []uuid.UUID
	var errs []error
	for _, c := range due {
		jobs, next, err := evaluate(c, now)
		if err != nil {
			errs = append(errs, fmt.Errorf("schedule %q: %w", c.Name, err))
		}
		ids, err := store.Tick(ctx, db, c, jobs, next)
		if err != nil {
			return made, errors.Join(append(errs, err)...)
		}
		made = append(made, ids...)
	}
	return made, errors.Join(errs...)
}

// evaluate says which of a schedule's ticks up to now become jobs, and when the next one is.
func evaluate(c queue.Schedule, now time.Time) (jobs []time.Time, next time.Time, err error) {
	ticks, err := Parse(c.Cron, c.TimeZone)
	if err != nil { // it was checked when it was put: the zone's name was dropped, say
		return nil, now.Add(time.Hour), err
	}
	limit := 1
	if c.CatchUp == queue.CatchUpAll {
		limit = c.CatchUpLimit
	}
	jobs, next = last(limit, c.NextAt, now, ticks)
	if c.CatchUp == queue.CatchUpSkip && len(jobs) > 0 && now.Sub(jobs[0]) > onTime {
		jobs = nil
	}
	return jobs, next, nil
}

// last returns the last n ticks from the tick from up to now, and the first one after now. It looks back from
// now, ever further: a schedule of every second that was asleep for a year is not to be walked.
func last(n int, from, now time.Time, ticks *Cron) (jobs []time.Time, next time.Time) {
	for back := time.Duration(n) * time.Second; ; back *= 2 {
		begin := from
		if t := now.Add(-back); t.After(from) {
			begin = ticks.Next(t)
		}
		jobs = jobs[:0]
		for next = begin; !next.IsZero() && !next.After(now); next = ticks.Next(next) {
			jobs = append(jobs, next)
		}
		if len(jobs) >= n || begin.Equal(from) {
			return jobs[max(len(jobs)-n, 0):], next
		}
	}
}
