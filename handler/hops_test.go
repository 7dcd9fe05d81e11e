package handler_test

import (
	"math"
	"testing"

	"github.com/dozequeue/doze/queue"
)

// The Lambda function hands wakes to Drain as they were decoded, without ParseWake.
func TestHints_ForgedHopsThatDrainGetsDirectly(t *testing.T) {
	t.Parallel()
	for name, hop := range map[string]int{"below zero": -1_000_000, "all that fit": math.MaxInt} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newHints(t, newService(t))
			x.chain(queue.Wake{Version: 1, Queue: "q", Reason: queue.ReasonHandoff, Hop: hop}, func(wake queue.Wake) queue.Wake { return wake })
		})
	}
}
