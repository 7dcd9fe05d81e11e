// Package triggertest states what a [queue.Trigger] must do, as a suite that
// each trigger passes.
package triggertest

import (
	"testing"

	"github.com/dozequeue/doze/queue"
)

// Fixture is a trigger under test and the hands that the suite needs on its
// receiver. Make it anew for each call; clean up with t.Cleanup.
type Fixture struct {
	// Trigger under test. Required.
	Trigger queue.Trigger

	// Deliveries gives each wake when it reaches the receiver, before Block
	// holds it. Send without waiting for the suite: room for 64 is enough. Nil
	// for a trigger that delivers nothing, of which only Fire is tested.
	Deliveries <-chan Delivery

	// Block makes the receiver hold every wake that comes after, as a drain
	// that is busy does, until release is called. The suite calls release once.
	// Required with Deliveries.
	Block func() (release func())

	// Break makes the receiver unreachable, for good. Nil for a trigger that
	// cannot fail, such as a call in the same process.
	Break func()

	// Queues that the trigger can reach, at least two. Default eight names.
	Queues []string
}

// Delivery is one wake as the receiver saw it.
type Delivery struct {
	// Wake that was read.
	Wake queue.Wake
	// Body is the message as it came, or nil where there is none because the
	// wake did not leave the process.
	Body []byte
}

// Setup makes a [Fixture] for one test of the suite.
type Setup func(t *testing.T) Fixture

// queues gives the names to use.
func (f Fixture) queues() []string {
	if len(f.Queues) > 0 {
		return f.Queues
	}
	return []string{"mail", "images", "bills", "search", "exports", "imports", "hooks", "reports"}
}
