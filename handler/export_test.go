package handler

import (
	"context"

	"github.com/dozequeue/doze/queue"
)

// Intercept makes p call fn in place of its drainer.
func (p *InProcess) Intercept(fn func(context.Context, queue.Wake) (Drained, error)) { p.drain = fn }
