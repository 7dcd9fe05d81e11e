package main

import (
	"context"
	"time"

	"github.com/dozequeue/doze/handler"
	"github.com/dozequeue/doze/queue"
)

// register takes the place of the function's own file of that name in tests.
func register(mux *handler.Mux) {
	mux.Handle("nothing", func(context.Context, *queue.Job) error { return nil })
	mux.Handle("slow", func(ctx context.Context, _ *queue.Job) error {
		work := time.NewTimer(80 * time.Millisecond)
		defer work.Stop()
		select {
		case <-work.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}
