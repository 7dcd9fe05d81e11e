package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/dozequeue/doze/queue"
	"github.com/dozequeue/doze/schedule"
)

type schedulesCmd struct {
	List   schedulesListCmd   `cmd:"" help:"List schedules with their next ticks."`
	Put    schedulesPutCmd    `cmd:"" help:"Make a schedule, or change it."`
	Pause  schedulesPauseCmd  `cmd:"" help:"Keep a schedule from ticking."`
	Resume schedulesResumeCmd `cmd:"" help:"Let a schedule go on from its next tick."`
	Delete schedulesDeleteCmd `cmd:"" help:"Delete a schedule; its jobs stay."`
}

// schedules opens the schedules of a target. This process ends and cannot keep an alarm, so it has a
// drain woken, which sets its own.
func (t *target) schedules(ctx context.Context) (*schedule.Schedules, func(), error) {
	o, err := t.open(ctx)
	if err != nil {
		return nil, nil, err
	}
	s, err := schedule.New(o.pool, o.schema, queue.AlarmFunc(func(ctx context.Context, wake queue.Wake, _ time.Duration) error {
		return o.trigger.Fire(ctx, wake)
	}))
	if err != nil {
		o.pool.Close()
		return nil, nil, err
	}
	return s, o.pool.Close, nil
}

type scheduleView struct {
	Name         string          `json:"name"`
	Queue        string          `json:"queue"`
	Kind         string          `json:"kind"`
	Payload      json.RawMessage `json:"payload"`
	Priority     int             `json:"priority"`
	MaxAttempts  int             `json:"max_attempts"`
	Cron         string          `json:"cron"`
	TimeZone     string          `json:"time_zone"`
	CatchUp      queue.CatchUp   `json:"catch_up"`
	CatchUpLimit int             `json:"catch_up_limit"`
	NextAt       *time.Time      `json:"next_at"`
	Paused       bool            `json:"paused"`
}

type schedulesListCmd struct {
	target
	jsonFlag
}

// Run lists schedules.
func (c *schedulesListCmd) Run(ctx context.Context, o *output) error {
	s, done, err := c.schedules(ctx)
	if err != nil {
		return err
	}
	defer done()
	all, err := s.List(ctx)
	if err != nil {
		return err
	}
	views := make([]scheduleView, len(all))
	for i, x := range all {
		views[i] = scheduleView{x.Name, x.Queue, x.Kind, x.Payload, x.Priority, x.MaxAttempts, x.Cron, x.TimeZone, x.CatchUp, x.CatchUpLimit, nil, x.Paused}
		if !x.NextAt.IsZero() {
			views[i].NextAt = &all[i].NextAt
		}
	}
	return o.print(c.JSON, views, func(w io.Writer) {
		fmt.Fprintln(w, "NAME\tQUEUE\tKIND\tCRON\tZONE\tNEXT\tPAUSED")
		for _, v := range views {
			next, paused := "never", "no"
			if v.NextAt != nil {
				next = v.NextAt.Local().Format(time.DateTime)
			}
			if v.Paused {
				paused = "yes"
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", v.Name, v.Queue, v.Kind, v.Cron, v.TimeZone, next, paused)
		}
	})
}

type schedulesPutCmd struct {
	target
	Name         string `arg:"" help:"Name of the schedule."`
	Cron         string `arg:"" help:"When: five fields, or six with seconds first, or @daily and the like."`
	Kind         string `arg:"" help:"Kind of its jobs."`
	Payload      string `arg:"" optional:"" default:"null" help:"Payload of its jobs, as JSON."`
	Queue        string `help:"Queue of its jobs. Default: default."`
	TimeZone     string `help:"IANA name, such as Europe/Berlin. Default: UTC."`
	CatchUp      string `help:"What becomes of ticks that were missed: skip, latest or all. Default: latest."`
	CatchUpLimit int    `help:"Most of them with all. Default: 10."`
	Priority     int    `help:"-10 (first) to 10 (last)."`
	MaxAttempts  int    `help:"Attempts that may fail. Default: 10."`
}

// Run makes a schedule or changes it.
func (c *schedulesPutCmd) Run(ctx context.Context, o *output) error {
	s, done, err := c.schedules(ctx)
	if err != nil {
		return err
	}
	defer done()
	err = s.Put(ctx, queue.Schedule{
		Name: c.Name, Queue: c.Queue, Kind: c.Kind, Payload: json.RawMessage(c.Payload), Priority: c.Priority, MaxAttempts: c.MaxAttempts,
		Cron: c.Cron, TimeZone: c.TimeZone, CatchUp: queue.CatchUp(c.CatchUp), CatchUpLimit: c.CatchUpLimit,
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(o.out, "schedule %s is set\n", c.Name)
	return nil
}

type schedulesPauseCmd struct {
	target
	Name string `arg:"" help:"Name of the schedule."`
}

// Run pauses a schedule.
func (c *schedulesPauseCmd) Run(ctx context.Context, o *output) error {
	return c.change(ctx, o, c.Name, "is paused", (*schedule.Schedules).Pause)
}

type schedulesResumeCmd struct {
	target
	Name string `arg:"" help:"Name of the schedule."`
}

// Run lets a schedule go on.
func (c *schedulesResumeCmd) Run(ctx context.Context, o *output) error {
	return c.change(ctx, o, c.Name, "ticks", (*schedule.Schedules).Resume)
}

type schedulesDeleteCmd struct {
	target
	Name string `arg:"" help:"Name of the schedule."`
}

// Run deletes a schedule.
func (c *schedulesDeleteCmd) Run(ctx context.Context, o *output) error {
	return c.change(ctx, o, c.Name, "is deleted", (*schedule.Schedules).Delete)
}

func (t *target) change(ctx context.Context, o *output, name, done string, do func(*schedule.Schedules, context.Context, string) error) error {
	s, closePool, err := t.schedules(ctx)
	if err != nil {
		return err
	}
	defer closePool()
	if err := do(s, ctx, name); err != nil {
		return fmt.Errorf("schedule %q: %w", name, err)
	}
	fmt.Fprintf(o.out, "schedule %s %s\n", name, done)
	return nil
}
