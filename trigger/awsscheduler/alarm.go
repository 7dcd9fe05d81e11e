package awsscheduler

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/scheduler"
	"github.com/aws/aws-sdk-go-v2/service/scheduler/types"

	"github.com/dozequeue/doze/queue"
	"github.com/dozequeue/doze/trigger/internal/wire"
)

const (
	// retryAttempts and eventAge bound the service's own retries, when Lambda does not take the event.
	// A late wake is as good as any, so they go on long enough to outlast a throttled minute.
	retryAttempts = 3
	eventAge      = 10 * time.Minute

	// sooner is by how much an alarm must be sooner than another to make it needless. Alarms that are set
	// at once may come here in another order than the database decided, but not much later.
	sooner = time.Second

	// rounds bounds how often create and update may each say that the other is right, as happens when
	// the schedule ends or is made in between.
	rounds = 3
)

// Client are the methods of [scheduler.Client] that an [Alarm] calls.
type Client interface {
	CreateSchedule(context.Context, *scheduler.CreateScheduleInput, ...func(*scheduler.Options)) (*scheduler.CreateScheduleOutput, error)
	UpdateSchedule(context.Context, *scheduler.UpdateScheduleInput, ...func(*scheduler.Options)) (*scheduler.UpdateScheduleOutput, error)
	DeleteSchedule(context.Context, *scheduler.DeleteScheduleInput, ...func(*scheduler.Options)) (*scheduler.DeleteScheduleOutput, error)
}

// Alarm keeps alarms as schedules. Make one with [New], with [NewWithClient], or with the New of
// awsdefault. Several goroutines may use it.
type Alarm struct {
	config Config
	client Client

	mu   sync.Mutex
	last map[string]set // by queue
}

// set is an alarm that this value set.
type set struct {
	name  string
	at    time.Time // not rounded
	until time.Time // when it is the service's, as it goes off
}

var _ queue.Alarm = (*Alarm)(nil)

// NewWithClient gives an alarm that uses client. Region, Endpoint, Timeout and Attempts of config do
// not count: set them on the client, for instance with [ClientOptions].
func NewWithClient(client Client, config Config) (*Alarm, error) {
	if client == nil {
		return nil, errors.New("awsscheduler: client: nil, want a Scheduler client")
	}
	if err := config.Validate(); err != nil {
		return nil, err
	}
	return &Alarm{config: config.WithDefaults(), client: client, last: map[string]set{}}, nil
}

// Set has the service invoke the queue's function with the wake, after in or a little later: see
// Precision in the package's documentation. wake.Alarm is required, as it names the schedule; setting
// the same id again changes its time. After an error the alarm may be set nevertheless.
func (a *Alarm) Set(ctx context.Context, wake queue.Wake, in time.Duration) error {
	input, err := wire.Encode(wake)
	if err != nil {
		return err
	}
	target, err := a.config.target(wake.Queue)
	if err != nil {
		return err
	}
	if wake.Alarm == "" {
		return fmt.Errorf("awsscheduler: wake for queue %q: alarm: empty, want the alarm's id", wake.Queue)
	}
	s := schedule{
		CreateScheduleInput: scheduler.CreateScheduleInput{
			Name:                       aws.String(scheduleName(a.config.Prefix, wake.Queue, wake.Alarm)),
			GroupName:                  aws.String(a.config.Group),
			ScheduleExpressionTimezone: aws.String("UTC"),
			State:                      types.ScheduleStateEnabled,
			FlexibleTimeWindow:         &types.FlexibleTimeWindow{Mode: types.FlexibleTimeWindowModeOff},
			ActionAfterCompletion:      types.ActionAfterCompletionDelete,
			Description:                aws.String(describe(wake)),
			Target: &types.Target{
				Arn:     aws.String(target),
				RoleArn: aws.String(a.config.RoleARN),
				Input:   aws.String(string(input)),
				RetryPolicy: &types.RetryPolicy{
					MaximumRetryAttempts:     aws.Int32(retryAttempts),
					MaximumEventAgeInSeconds: aws.Int32(int32(eventAge / time.Second)),
				},
			},
		},
	}
	now := a.config.Now()
	at, err := a.put(ctx, &s, in)
	if err != nil {
		return fmt.Errorf("awsscheduler: queue %q: %w", wake.Queue, err)
	}
	a.replace(ctx, wake.Queue, set{name: *s.Name, at: now.Add(in), until: at})
	return nil
}

// Clear deletes the alarm of a queue that has this id, which then does not go off unless it is about
// to. One that there is not is no error.
func (a *Alarm) Clear(ctx context.Context, queueName, alarm string) error {
	if err := a.delete(ctx, scheduleName(a.config.Prefix, queueName, alarm)); err != nil {
		return fmt.Errorf("awsscheduler: queue %q: %w", queueName, err)
	}
	return nil
}

// put creates the schedule, or replaces the one of an earlier call with the same id.
func (a *Alarm) put(ctx context.Context, s *schedule, in time.Duration) (at time.Time, err error) {
	for range rounds {
		// Anew in each round: a time that has passed meanwhile would be refused.
		at = due(a.config.Now(), in, a.config.Grain)
		s.ScheduleExpression = aws.String(at.Format("at(2006-01-02T15:04:05)"))
		// The SDK's own retries send the same token, so an answer that was lost costs nothing. The time
		// is in it because a token must not come back with another request.
		s.ClientToken = aws.String(digest(*s.Name, *s.ScheduleExpression))
		_, err = a.client.CreateSchedule(ctx, &s.CreateScheduleInput)
		if conflict := (*types.ConflictException)(nil); !errors.As(err, &conflict) {
			return at, s.explain("create", err)
		}
		_, err = a.client.UpdateSchedule(ctx, s.update())
		missing, conflict := (*types.ResourceNotFoundException)(nil), (*types.ConflictException)(nil)
		if !errors.As(err, &missing) && !errors.As(err, &conflict) {
			return at, s.explain("update", err)
		}
	}
	return at, fmt.Errorf("neither made nor replaced in %d rounds: %w", rounds, s.explain("update", err))
}

// replace deletes the alarm that this value set for the queue before, if the new one makes it
// needless, and remembers the new one. Failures do not count, and nothing is tried twice: an alarm too
// many only finds nothing.
func (a *Alarm) replace(ctx context.Context, queueName string, now set) {
	a.mu.Lock()
	old := a.last[queueName]
	a.last[queueName] = now
	a.mu.Unlock()
	if old.name != "" && old.name != now.name && old.at.After(now.at.Add(sooner)) && old.until.After(a.config.Now()) {
		_ = a.delete(ctx, old.name, func(o *scheduler.Options) { o.RetryMaxAttempts = 1 })
	}
}

func (a *Alarm) delete(ctx context.Context, name string, options ...func(*scheduler.Options)) error {
	_, err := a.client.DeleteSchedule(ctx, &scheduler.DeleteScheduleInput{Name: aws.String(name), GroupName: aws.String(a.config.Group)}, options...)
	if missing := (*types.ResourceNotFoundException)(nil); err == nil || errors.As(err, &missing) {
		return nil
	}
	return fmt.Errorf("delete schedule %s: %w", name, err)
}

// due is the first multiple of grain that is at least in, and grain, from now.
func due(now time.Time, in, grain time.Duration) time.Time {
	t := now.UTC().Add(max(in, grain))
	if down := t.Truncate(grain); down.Before(t) {
		return down.Add(grain)
	}
	return t
}

// describe is for people who look at the schedule; its name holds a digest. The service takes 512
// characters.
func describe(wake queue.Wake) string {
	d := fmt.Sprintf("wakes queue %q for alarm %q", wake.Queue, wake.Alarm)
	return d[:min(len(d), 512)]
}

// Grain is [Config.Grain].
func (a *Alarm) Grain() time.Duration { return a.config.Grain }
