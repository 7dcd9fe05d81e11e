package main

import (
	"context"
	"log/slog"

	"github.com/dozequeue/doze/handler"
	"github.com/dozequeue/doze/queue"
)

// register registers the handlers of this deployment. It is the one file that you edit: a type
// for each kind of job, and a function that runs it.
func register(mux *handler.Mux) {
	handler.Register(mux, hello)
	mux.Handle("github.*", webhook)
}

// Hello is an example of a job's arguments.
type Hello struct {
	Name string `json:"name"`
}

// Kind names the kind of job.
func (Hello) Kind() string { return "hello" }

// hello is an example of a handler: nil means done, an error means try again later.
func hello(ctx context.Context, job *handler.Job[Hello]) error {
	slog.InfoContext(ctx, "hello", "job_id", job.ID, "attempt", job.Attempts)
	return nil
}

// webhook is an example of a handler for many kinds, which gets the payload as it was sent: here
// what GitHub delivered, if the enqueue function serves its webhooks.
func webhook(ctx context.Context, job *queue.Job) error {
	slog.InfoContext(ctx, "webhook", "job_id", job.ID, "kind", job.Kind, "payload_bytes", len(job.Payload))
	return nil
}
