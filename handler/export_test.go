package handler

import (
	"context"
	"time"

	"github.com/dozequeue/doze/queue"
)

// RetryAfter sets how long after a failure p first starts a drain again.
func (p *InProcess) RetryAfter(d time.Duration) { p.firstRetry = d }

// Intercept makes p call fn in place of its drainer.
func (p *InProcess) Intercept(fn func(context.Context, queue.Wake) (Drained, error)) { p.drain = fn }
