package triggertest

import (
	"testing"
	"time"

	"github.com/dozequeue/doze/queue"
)

// AlarmFixture is an alarm under test and the hands that the suite needs on its service and on the
// receiver. Make it anew for each call; clean up with t.Cleanup.
type AlarmFixture struct {
	// Alarm under test. Required.
	Alarm queue.Alarm

	// Advance moves the clock by which the alarms go off, and returns when those that are due have
	// reached the receiver. The suite never waits for a while: a double's clock is moved, and one of
	// this process is that of a testing/synctest bubble, moved by time.Sleep and synctest.Wait.
	// Required.
	Advance func(d time.Duration)

	// Deliveries gives each wake when it reaches the receiver, before Block holds it. Send without
	// waiting for the suite: room for 64 is enough. Required.
	Deliveries <-chan Delivery

	// Grain is how coarse the service's times are: the suite takes an alarm that is early by a grain
	// or late by two. Default 1 s.
	Grain time.Duration

	// Replaces tells that an alarm does not go off once a sooner one is set for its queue. Without it
	// the suite only asks that the wake that comes too much says which alarm it is of.
	Replaces bool

	// Block makes the receiver hold every wake that comes after, as a drain that is busy does, until
	// release is called; Advance must not wait for it. The suite calls release once. Nil if a receiver
	// cannot hold up anything.
	Block func() (release func())

	// Hang makes the service answer nothing until release is called. The suite calls release once.
	// Nil for an alarm without a service.
	Hang func() (release func())

	// Break makes the service refuse or be gone, for good. Nil for an alarm that cannot fail.
	Break func()

	// Queues for which alarms can be set, at least two. Default eight names.
	Queues []string
}

// AlarmSetup makes an [AlarmFixture] for one test of the suite and calls test with it. It is a call
// and not a return, so that it can be made in a bubble:
//
//	func(t *testing.T, test func(*testing.T, triggertest.AlarmFixture)) {
//		synctest.Test(t, func(t *testing.T) { test(t, fixture(t)) })
//	}
type AlarmSetup func(t *testing.T, test func(*testing.T, AlarmFixture))

// grain is the one to reckon with.
func (f AlarmFixture) grain() time.Duration { return max(f.Grain, time.Second) }

// queues gives the names to use.
func (f AlarmFixture) queues() []string { return Fixture{Queues: f.Queues}.queues() }
