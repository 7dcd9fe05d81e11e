package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"

	"github.com/dozequeue/doze/queue"
)

type jobsCmd struct {
	List   jobsListCmd   `cmd:"" help:"List jobs, newest first."`
	Show   jobsShowCmd   `cmd:"" help:"Show one job with its payload."`
	Retry  jobsRetryCmd  `cmd:"" help:"Queue failed or cancelled jobs again, or make waiting ones due now."`
	Cancel jobsCancelCmd `cmd:"" help:"Cancel jobs that have not finished."`
}

// jobView is a job as it is printed.
type jobView struct {
	ID          uuid.UUID       `json:"id"`
	Queue       string          `json:"queue"`
	Kind        string          `json:"kind"`
	State       queue.State     `json:"state"`
	Priority    int             `json:"priority"`
	Attempts    int             `json:"attempts"`
	Failures    int             `json:"failures"`
	MaxAttempts int             `json:"max_attempts"`
	Reaps       int             `json:"reaps"`
	RunAt       time.Time       `json:"run_at"`
	CreatedAt   time.Time       `json:"created_at"`
	FinishedAt  *time.Time      `json:"finished_at"`
	Key         string          `json:"key,omitempty"`
	LastError   string          `json:"last_error,omitempty"`
	Payload     json.RawMessage `json:"payload,omitempty"`
}

func view(j queue.Job) jobView {
	v := jobView{
		ID: j.ID, Queue: j.Queue, Kind: j.Kind, State: j.State, Priority: j.Priority, Attempts: j.Attempts, Failures: j.Failures,
		MaxAttempts: j.MaxAttempts, Reaps: j.Reaps, RunAt: j.RunAt, CreatedAt: j.CreatedAt, Key: j.Key, LastError: j.LastError, Payload: j.Payload,
	}
	if !j.FinishedAt.IsZero() {
		v.FinishedAt = &j.FinishedAt
	}
	return v
}

type jobsListCmd struct {
	target
	jsonFlag
	Queue  string `help:"Only this queue."`
	Kind   string `help:"Only this kind."`
	State  string `help:"Only this state: queued, running, done, failed or cancelled."`
	Limit  int    `default:"50" help:"Most jobs to list, up to 1000."`
	Before string `help:"Only jobs older than this id, to go on from a page." placeholder:"ID"`
}

// Run lists jobs.
func (c *jobsListCmd) Run(ctx context.Context, o *output) error {
	f := queue.Filter{Queue: c.Queue, Kind: c.Kind, State: queue.State(c.State), Limit: c.Limit}
	if c.Before != "" {
		var err error
		if f.Before, err = parseID(c.Before); err != nil {
			return err
		}
	}
	t, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer t.pool.Close()
	jobs, err := t.store.List(ctx, t.pool, f)
	if err != nil {
		return err
	}
	views := make([]jobView, len(jobs))
	for i, j := range jobs {
		views[i] = view(j)
	}
	return o.print(c.JSON, views, func(w io.Writer) {
		fmt.Fprintln(w, "ID\tQUEUE\tKIND\tSTATE\tFAILURES\tCREATED\tLAST ERROR")
		for _, v := range views {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d/%d\t%s\t%s\n", v.ID, v.Queue, v.Kind, v.State, v.Failures, v.MaxAttempts,
				v.CreatedAt.Local().Format(time.DateTime), firstLine(v.LastError))
		}
	})
}

func firstLine(text string) string {
	for i, r := range text {
		if r < ' ' || i > 80 {
			return text[:i] + "…"
		}
	}
	return text
}

type jobsShowCmd struct {
	target
	jsonFlag
	ID string `arg:"" help:"The job's id."`
}

// Run shows one job.
func (c *jobsShowCmd) Run(ctx context.Context, o *output) error {
	id, err := parseID(c.ID)
	if err != nil {
		return err
	}
	t, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer t.pool.Close()
	job, err := t.store.Get(ctx, t.pool, id)
	if err != nil {
		return err
	}
	return o.print(c.JSON, view(job), func(w io.Writer) {
		fmt.Fprintf(w, "id\t%s\nqueue\t%s\nkind\t%s\nstate\t%s\npriority\t%d\nattempts\t%d\nfailures\t%d of %d\nreaps\t%d\n",
			job.ID, job.Queue, job.Kind, job.State, job.Priority, job.Attempts, job.Failures, job.MaxAttempts, job.Reaps)
		fmt.Fprintf(w, "created\t%s\ndue\t%s\n", job.CreatedAt.Local().Format(time.RFC3339), job.RunAt.Local().Format(time.RFC3339))
		if !job.FinishedAt.IsZero() {
			fmt.Fprintf(w, "finished\t%s\n", job.FinishedAt.Local().Format(time.RFC3339))
		}
		if job.Key != "" {
			fmt.Fprintf(w, "key\t%s\n", job.Key)
		}
		fmt.Fprintf(w, "payload\t%s\n", job.Payload)
		if job.LastError != "" {
			fmt.Fprintf(w, "last error\t%s\n", job.LastError)
		}
	})
}

type jobsRetryCmd struct {
	target
	jsonFlag
	IDs []string `arg:"" name:"id" help:"Ids of the jobs."`
}

// Run queues jobs again.
func (c *jobsRetryCmd) Run(ctx context.Context, o *output) error {
	return operate(ctx, o, &c.target, c.JSON, c.IDs, func(t *opened, id uuid.UUID) (queue.Job, error) {
		job, err := t.store.Retry(ctx, t.pool, id)
		if err != nil {
			return job, err
		}
		return job, t.wake(ctx, job.Queue, job.RunAt)
	})
}

type jobsCancelCmd struct {
	target
	jsonFlag
	IDs []string `arg:"" name:"id" help:"Ids of the jobs."`
}

// Run cancels jobs.
func (c *jobsCancelCmd) Run(ctx context.Context, o *output) error {
	return operate(ctx, o, &c.target, c.JSON, c.IDs, func(t *opened, id uuid.UUID) (queue.Job, error) {
		return t.store.Cancel(ctx, t.pool, id)
	})
}

func operate(ctx context.Context, o *output, target *target, asJSON bool, texts []string, do func(*opened, uuid.UUID) (queue.Job, error)) error {
	ids := make([]uuid.UUID, len(texts))
	for i, text := range texts {
		var err error
		if ids[i], err = parseID(text); err != nil {
			return err
		}
	}
	t, err := target.open(ctx)
	if err != nil {
		return err
	}
	defer t.pool.Close()
	views := make([]jobView, len(ids))
	for i, id := range ids {
		job, err := do(t, id)
		if err != nil {
			return err
		}
		views[i] = view(job)
	}
	return o.print(asJSON, views, func(w io.Writer) {
		for _, v := range views {
			fmt.Fprintf(w, "%s\t%s\n", v.ID, v.State)
		}
	})
}

// wake rings a queue for what is due from since on, and fires its trigger if that is called for.
func (t *opened) wake(ctx context.Context, queueName string, since time.Time) error {
	rang, err := t.store.Ring(ctx, t.pool, queueName, since, 15*time.Second)
	if err != nil || !rang {
		return err
	}
	if err := t.trigger.Fire(ctx, queue.Wake{Version: 1, Queue: queueName, Reason: queue.ReasonResume}); err != nil {
		_ = t.store.Unring(ctx, t.pool, queueName)
		return fmt.Errorf("it is queued, but the trigger was not fired; the next enqueue or sweep does: %w", err)
	}
	return nil
}

func parseID(text string) (uuid.UUID, error) {
	id, err := uuid.Parse(text)
	if err != nil {
		return id, fmt.Errorf("id %q: want a UUID such as 01980c5e-7d1c-7b3a-9f1e-6f1f2b3c4d5e", text)
	}
	return id, nil
}
