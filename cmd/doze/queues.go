package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/dozequeue/doze/queue"
)

type queuesCmd struct {
	List   queuesListCmd   `cmd:"" help:"List queues with their counts."`
	Pause  queuesPauseCmd  `cmd:"" help:"Stop claims of a queue; running jobs go on."`
	Resume queuesResumeCmd `cmd:"" help:"Let a queue be claimed from again."`
	Set    queuesSetCmd    `cmd:"" help:"Change a queue's settings."`
}

type queueView struct {
	Queue         string  `json:"queue"`
	Paused        bool    `json:"paused"`
	Slots         int     `json:"slots"`
	Held          int     `json:"held"`
	Queued        int64   `json:"queued"`
	Due           int64   `json:"due"`
	Running       int64   `json:"running"`
	Failed        int64   `json:"failed"`
	OldestSeconds float64 `json:"oldest_seconds"`
}

type queuesListCmd struct {
	target
	jsonFlag
}

// Run lists queues.
func (c *queuesListCmd) Run(ctx context.Context, o *output) error {
	t, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer t.pool.Close()
	all, err := t.store.Queues(ctx, t.pool)
	if err != nil {
		return err
	}
	views := make([]queueView, len(all))
	for i, q := range all {
		views[i] = queueView{q.Queue, q.Paused, q.Slots, q.Held, q.Queued, q.Due, q.Running, q.Failed, q.Oldest.Seconds()}
	}
	return o.print(c.JSON, views, func(w io.Writer) {
		fmt.Fprintln(w, "QUEUE\tQUEUED\tDUE\tRUNNING\tFAILED\tDRAINS\tOLDEST DUE\tPAUSED")
		for i, v := range views {
			paused := "no"
			if v.Paused {
				paused = "yes"
			}
			fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d/%d\t%v\t%s\n", v.Queue, v.Queued, v.Due, v.Running, v.Failed, v.Held, v.Slots,
				all[i].Oldest.Round(time.Second), paused)
		}
	})
}

type queuesPauseCmd struct {
	target
	Queue string `arg:"" help:"The queue."`
}

// Run pauses a queue.
func (c *queuesPauseCmd) Run(ctx context.Context, o *output) error {
	t, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer t.pool.Close()
	if err := t.store.Pause(ctx, t.pool, c.Queue); err != nil {
		return err
	}
	fmt.Fprintf(o.out, "queue %s is paused\n", c.Queue)
	return nil
}

type queuesResumeCmd struct {
	target
	Queue string `arg:"" help:"The queue."`
}

// Run resumes a queue and wakes it.
func (c *queuesResumeCmd) Run(ctx context.Context, o *output) error {
	t, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer t.pool.Close()
	if err := t.store.Resume(ctx, t.pool, c.Queue); err != nil {
		return err
	}
	if err := t.wake(ctx, c.Queue, time.Time{}); err != nil {
		return err
	}
	fmt.Fprintf(o.out, "queue %s runs\n", c.Queue)
	return nil
}

type queuesSetCmd struct {
	target
	Queue    string `arg:"" help:"The queue."`
	Slots    int    `help:"Drains that may run at once, 1 to 1000."`
	MaxReaps int    `help:"Drains that may vanish with a job before it has failed, 1 to 100."`
	History  string `help:"on or off: whether done jobs are kept."`
}

// Run changes a queue's settings.
func (c *queuesSetCmd) Run(ctx context.Context, o *output) error {
	t, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer t.pool.Close()
	if err := t.store.Configure(ctx, t.pool, c.Queue, queue.Settings{Slots: c.Slots, MaxReaps: c.MaxReaps, History: c.History}); err != nil {
		return err
	}
	fmt.Fprintf(o.out, "queue %s is set\n", c.Queue)
	return nil
}
