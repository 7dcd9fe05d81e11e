package trigger

import (
	"context"

	"github.com/dozequeue/doze/queue"
)

// None fires nothing and never fails. With it jobs wait for the next sweep, so
// the sweep's period is their latency: right for work that can wait.
func None() queue.Trigger { return none{} }

type none struct{}

func (none) Fire(context.Context, queue.Wake) error { return nil }
