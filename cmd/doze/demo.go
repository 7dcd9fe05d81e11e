package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/dozequeue/doze/handler"
	"github.com/dozequeue/doze/queue"
)

// demoMux has the kinds that doze dev serves: enough to see every way in which a job can end.
func demoMux(log *slog.Logger) *handler.Mux {
	mux := handler.NewMux()
	seen := func(_ context.Context, job *queue.Job) error {
		log.Info("job", "kind", job.Kind, "job_id", job.ID, "attempt", job.Attempts, "payload_bytes", len(job.Payload))
		return nil
	}
	mux.Handle("echo", seen)
	mux.Handle("github.*", seen)
	handler.Register(mux, sleep)
	mux.Handle("fail", func(context.Context, *queue.Job) error { return errors.New("this kind always fails") })
	mux.Handle("crash", func(context.Context, *queue.Job) error { panic("this kind always panics") })
	return mux
}

type sleepArgs struct {
	MS json.Number `json:"ms"`
}

func (sleepArgs) Kind() string { return "sleep" }

func sleep(ctx context.Context, job *handler.Job[sleepArgs]) error {
	ms, err := job.Args.MS.Int64()
	if err != nil || ms < 0 {
		return handler.Discard(fmt.Errorf("ms: want a whole number of milliseconds, 0 or more"))
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(time.Duration(ms) * time.Millisecond):
		return nil
	}
}
