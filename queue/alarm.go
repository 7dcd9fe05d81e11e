package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// Alarm fires a wake once, later, from outside the database. Like a [Trigger] it is
// a hint: it may go off late, early, twice or never.
//
// Set replaces the alarm that is set for the wake's queue, and returns when the service
// has it. The wake carries the alarm's id; in is how long from now.
type Alarm interface {
	Set(ctx context.Context, wake Wake, in time.Duration) error
}

// AlarmFunc makes a function an [Alarm].
type AlarmFunc func(ctx context.Context, wake Wake, in time.Duration) error

// Set calls f.
func (f AlarmFunc) Set(ctx context.Context, wake Wake, in time.Duration) error {
	return f(ctx, wake, in)
}

// Clearer is an [Alarm] that can be taken back. With one a drain sets an alarm at its start for
// the case that it vanishes, and takes it back at its end, so that an idle database is not
// woken for it.
type Clearer interface {
	Alarm
	// Clear takes back the alarm of a queue that has this id. One that there is not is no error.
	Clear(ctx context.Context, queueName, id string) error
}

// Grained is an [Alarm] of a service that is no more precise than a grain of time.
type Grained interface {
	Alarm
	// Grain is the least time from now to an alarm.
	Grain() time.Duration
}

const (
	// alarmFloor keeps an alarm that goes off early from becoming a loop.
	alarmFloor = time.Second
	// alarmGrace is how late an alarm is when it counts as lost: a service that is precise to a minute may
	// round up to the next one and take one more.
	alarmGrace = 3 * time.Minute
)

// SetAlarm has alarm wake a queue after in, unless an alarm that goes off no later is set for
// it. It returns the id of the one that it set, empty for none. An alarm that the service did not take is not
// recorded, so the next drain or sweep tries again.
func (s *Store) SetAlarm(ctx context.Context, db DB, alarm Alarm, queueName string, in time.Duration) (id string, err error) {
	fresh := uuid.New()
	set, err := s.SetAlarmAs(ctx, db, alarm, queueName, in, fresh)
	if !set {
		return "", err
	}
	return fresh.String(), nil
}

// SetAlarmAs is [Store.SetAlarm] with an id that the caller chose, and reports whether the alarm was set.
func (s *Store) SetAlarmAs(ctx context.Context, db DB, alarm Alarm, queueName string, in time.Duration, id uuid.UUID) (bool, error) {
	in = max(in, alarmFloor)
	if g, ok := alarm.(Grained); ok {
		in = max(in, g.Grain()) // what is recorded is when it will go off
	}
	if set, err := s.Arm(ctx, db, queueName, in, id, alarmGrace); err != nil || !set {
		return false, err
	}
	err := alarm.Set(ctx, Wake{Version: 1, Queue: queueName, Reason: ReasonAlarm, Alarm: id.String()}, in)
	if err == nil {
		return true, nil
	}
	err = fmt.Errorf("set alarm for queue %q: %w", queueName, err)
	// With time of its own: the service may have used up the caller's, and an alarm that is not set would keep
	// others from being set.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	return false, errors.Join(err, run(ctx, db, s.call("unarm", "unarm", nil, queueName, id.String())))
}

// SetNextAlarm looks for the queue's next due time or end of a lease, and sets the alarm for it.
func (s *Store) SetNextAlarm(ctx context.Context, db DB, alarm Alarm, queueName string) (set bool, err error) {
	next, err := s.Next(ctx, db, queueName)
	if err != nil {
		return false, err
	}
	if next.Due {
		next.In = 0
	}
	if next.In < 0 {
		return false, nil
	}
	id, err := s.SetAlarm(ctx, db, alarm, queueName, next.In)
	return id != "", err
}
