package queue

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Schedule makes a job at each tick of a cron expression. Package schedule evaluates it; here is
// only its row.
type Schedule struct {
	// Name identifies it: 1 to 64 letters, digits and . _ -
	Name string
	// Queue, Kind, Payload, Priority and MaxAttempts of its jobs.
	Queue, Kind string
	Payload     json.RawMessage
	Priority    int
	MaxAttempts int
	// Cron and TimeZone say when it ticks.
	Cron, TimeZone string
	// CatchUp says what becomes of ticks that nobody was awake for.
	CatchUp CatchUp
	// CatchUpLimit is the most of them with [CatchUpAll], the latest ones.
	CatchUpLimit int
	// NextAt is the next tick; zero if it never comes again.
	NextAt time.Time
	// Paused schedules do not tick.
	Paused bool
}

// CatchUp is what becomes of ticks that have passed when a schedule is evaluated.
type CatchUp string

// The ways to catch up. A tick that is evaluated within a minute of its time is on time
// with each of them.
const (
	CatchUpSkip   CatchUp = "skip"   // they are left out
	CatchUpLatest CatchUp = "latest" // the last of them becomes a job
	CatchUpAll    CatchUp = "all"    // each does, up to the limit
)

// Now returns the database's time.
func (s *Store) Now(ctx context.Context, db DB) (now time.Time, err error) {
	err = run(ctx, db, s.call("read the time", "now", func(rows pgx.Rows) error { return rows.Scan(&now) }))
	return now, err
}

// PutSchedule makes a schedule or changes it. NextAt counts only if it is new, or if its cron
// expression or zone changed.
func (s *Store) PutSchedule(ctx context.Context, db DB, c Schedule) error {
	return run(ctx, db, s.call("put schedule", "put_schedule", nil, c.Name, c.Queue, c.Kind, string(c.Payload), int32(c.Priority),
		int32(c.MaxAttempts), c.Cron, c.TimeZone, string(c.CatchUp), int32(c.CatchUpLimit), c.NextAt.UTC()))
}

// Schedules returns all schedules by name, or the one that is named.
func (s *Store) Schedules(ctx context.Context, db DB, name string) ([]Schedule, error) {
	var all []Schedule
	err := run(ctx, db, s.call("list schedules", "list_schedules", func(rows pgx.Rows) error {
		var c Schedule
		var next *time.Time
		if err := rows.Scan(&c.Name, &c.Queue, &c.Kind, (*[]byte)(&c.Payload), &c.Priority, &c.MaxAttempts, &c.Cron, &c.TimeZone,
			&c.CatchUp, &c.CatchUpLimit, &next, &c.Paused); err != nil {
			return err
		}
		if next != nil {
			c.NextAt = *next
		}
		all = append(all, c)
		return nil
	}, name))
	return all, err
}

// DueSchedules returns the schedules whose next tick has come, of one queue or of all if it is
// empty, and the database's time; the time is zero if there are none.
func (s *Store) DueSchedules(ctx context.Context, db DB, queueName string) (due []Schedule, now time.Time, err error) {
	err = run(ctx, db, s.dueSchedules(queueName, &due, &now))
	return due, now, err
}

func (s *Store) dueSchedules(queueName string, due *[]Schedule, now *time.Time) call {
	return s.call("due schedules", "due_schedules", func(rows pgx.Rows) error {
		var c Schedule
		if err := rows.Scan(&c.Name, &c.Queue, &c.Kind, (*[]byte)(&c.Payload), &c.Priority, &c.MaxAttempts, &c.Cron, &c.TimeZone,
			&c.CatchUp, &c.CatchUpLimit, &c.NextAt, now); err != nil {
			return err
		}
		*due = append(*due, c)
		return nil
	}, queueName)
}

// Tick makes jobs of a schedule's ticks and moves it on to next, unless somebody else has moved
// it since it was read. It returns the ids of the jobs that it made.
func (s *Store) Tick(ctx context.Context, db DB, c Schedule, ticks []time.Time, next time.Time) ([]uuid.UUID, error) {
	fresh := make([]string, len(ticks))
	for i := range ticks {
		id, err := uuid.NewV7()
		if err != nil {
			return nil, err
		}
		fresh[i] = id.String()
	}
	if ticks == nil {
		ticks = []time.Time{}
	}
	var ids []uuid.UUID
	err := run(ctx, db, s.call("tick", "tick", readIDs(&ids), c.Name, c.NextAt, next.UTC(), fresh, ticks))
	return ids, err
}

// PauseSchedule pauses a schedule, or lets it go on with its tick at next. It returns its queue, or
// [ErrNotFound].
func (s *Store) PauseSchedule(ctx context.Context, db DB, name string, paused bool, next time.Time) (string, error) {
	return s.oneQueue(ctx, db, s.call("pause schedule", "pause_schedule", nil, name, paused, next.UTC()))
}

// DeleteSchedule deletes a schedule; the jobs that it has made stay. It returns its queue, or
// [ErrNotFound].
func (s *Store) DeleteSchedule(ctx context.Context, db DB, name string) (string, error) {
	return s.oneQueue(ctx, db, s.call("delete schedule", "delete_schedule", nil, name))
}

func (s *Store) oneQueue(ctx context.Context, db DB, c call) (queueName string, err error) {
	c.read = func(rows pgx.Rows) error { return rows.Scan(&queueName) }
	if err = run(ctx, db, c); err == nil && queueName == "" {
		err = ErrNotFound
	}
	return queueName, err
}

// PruneTicks forgets up to limit ticks that are older than keep, and returns how many.
func (s *Store) PruneTicks(ctx context.Context, db DB, keep time.Duration, limit int) (int, error) {
	return s.delete(ctx, db, s.call("prune ticks", "prune_ticks", nil, ms(keep), int32(limit)))
}
