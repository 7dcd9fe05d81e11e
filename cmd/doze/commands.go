package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dozequeue/doze/enqueue"
	"github.com/dozequeue/doze/handler"
	"github.com/dozequeue/doze/internal/database"
	"github.com/dozequeue/doze/migrations"
	"github.com/dozequeue/doze/queue"
	"github.com/dozequeue/doze/resident"
	"github.com/dozequeue/doze/sweeper"
)

type migrateCmd struct {
	target
	jsonFlag
	SQL   bool `help:"Print the SQL instead of running it."`
	Roles bool `help:"Make the roles with least privilege too, and grant them their rights."`
	Check bool `help:"Only say whether the tables are up to date; exit code 1 if not."`
}

// Run brings the tables up to date.
func (c *migrateCmd) Run(ctx context.Context, o *output) error {
	if c.SQL {
		script, err := migrations.Script(c.Schema)
		if err != nil {
			return err
		}
		if c.Roles {
			roles, err := migrations.Roles(c.Schema)
			if err != nil {
				return err
			}
			script += "\n" + roles
		}
		_, err = io.WriteString(o.out, script)
		return err
	}
	cfg, _, err := c.resolve()
	if err != nil {
		return err
	}
	var applied migrations.Applied
	err = database.Once(ctx, cfg.Database, func(conn *pgx.Conn) error {
		if c.Check {
			applied = migrations.Applied{From: migrations.Version, To: migrations.Version}
			return migrations.Check(ctx, conn, cfg.Schema)
		}
		var err error
		if applied, err = migrations.Up(ctx, conn, cfg.Schema); err != nil || !c.Roles {
			return err
		}
		return migrations.Grant(ctx, conn, cfg.Schema)
	})
	if err != nil {
		return err
	}
	return o.print(c.JSON, applied, func(w io.Writer) {
		if applied.From == applied.To {
			fmt.Fprintf(w, "schema %s is up to date at version %d\n", cfg.Schema, applied.To)
			return
		}
		fmt.Fprintf(w, "schema %s migrated from version %d to %d\n", cfg.Schema, applied.From, applied.To)
	})
}

type enqueueCmd struct {
	target
	jsonFlag
	Kind        string        `arg:"" help:"Kind of the job."`
	Payload     string        `arg:"" optional:"" default:"null" help:"Payload, as JSON."`
	Queue       string        `help:"Queue. Default: default."`
	Delay       time.Duration `help:"Time until it is due, such as 10s."`
	RunAt       time.Time     `help:"Time at which it is due, as 2006-01-02T15:04:05Z." format:"2006-01-02T15:04:05Z07:00"`
	Key         string        `help:"Idempotency key."`
	Priority    int           `help:"-10 (first) to 10 (last)."`
	MaxAttempts int           `help:"Attempts that may fail. Default: 10."`
}

// Run enqueues one job.
func (c *enqueueCmd) Run(ctx context.Context, o *output) error {
	t, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer t.pool.Close()
	jobs, err := enqueue.New(t.pool, t.trigger, enqueue.Config{
		Schema: t.schema, Logger: slog.New(slog.NewTextHandler(o.log, nil)),
		// This process ends, and cannot keep an alarm. A drain that is woken too early sets its own.
		Alarm: queue.AlarmFunc(func(ctx context.Context, wake queue.Wake, _ time.Duration) error { return t.trigger.Fire(ctx, wake) }),
	})
	if err != nil {
		return err
	}
	options := []enqueue.Option{enqueue.Priority(c.Priority)}
	if c.Queue != "" {
		options = append(options, enqueue.On(c.Queue))
	}
	if c.Delay != 0 {
		options = append(options, enqueue.In(c.Delay))
	}
	if !c.RunAt.IsZero() {
		options = append(options, enqueue.At(c.RunAt))
	}
	if c.Key != "" {
		options = append(options, enqueue.Key(c.Key))
	}
	if c.MaxAttempts != 0 {
		options = append(options, enqueue.MaxAttempts(c.MaxAttempts))
	}
	added, err := jobs.AddJob(ctx, c.Kind, json.RawMessage(c.Payload), options...)
	if err != nil {
		return err
	}
	v := struct {
		ID        string `json:"id"`
		Duplicate bool   `json:"duplicate"`
	}{added.ID.String(), added.Duplicate}
	return o.print(c.JSON, v, func(w io.Writer) {
		if v.Duplicate {
			fmt.Fprintf(w, "%s (was there already)\n", v.ID)
			return
		}
		fmt.Fprintln(w, v.ID)
	})
}

type drainCmd struct {
	target
	jsonFlag
	Queue string        `arg:"" optional:"" default:"default" help:"Queue to drain."`
	All   bool          `help:"Drain each queue that has due work, instead of one."`
	Limit time.Duration `default:"5m" help:"Longest time; what is left then stays queued."`
}

// Run drains a queue once, or each.
func (c *drainCmd) Run(ctx context.Context, o *output) error {
	t, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer t.pool.Close()
	log := slog.New(slog.NewTextHandler(o.log, nil))
	drainer, err := handler.New(t.pool, demoMux(log), handler.Config{Schema: t.schema, Trigger: t.trigger, Logger: log})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.Limit)
	defer cancel()
	if c.All {
		reports, err := resident.Once(ctx, t.pool, drainer, t.schema)
		printErr := o.print(c.JSON, reports, func(w io.Writer) {
			for _, report := range reports {
				tellDrained(w, report)
			}
		})
		return errors.Join(err, printErr)
	}
	drained, err := drainer.Drain(ctx, queue.Wake{Version: 1, Queue: c.Queue})
	if err != nil {
		return err
	}
	return o.print(c.JSON, drained, func(w io.Writer) { tellDrained(w, drained) })
}

func tellDrained(w io.Writer, d handler.Drained) {
	if d.NoSlot {
		fmt.Fprintf(w, "queue %s: every slot is held, or there is no such queue\n", d.Queue)
		return
	}
	fmt.Fprintf(w, "queue %s: %d claimed, %d done, %d to be retried, %d failed, %d given back (no handler)\n",
		d.Queue, d.Claimed, d.Done, d.Retried, d.Failed, d.Unknown)
}

type sweepCmd struct {
	target
	jsonFlag
	Keep       time.Duration `default:"24h" help:"How long done and cancelled jobs are kept, in whole days."`
	KeepFailed time.Duration `default:"720h" help:"How long failed jobs are kept."`
}

// Run sweeps once.
func (c *sweepCmd) Run(ctx context.Context, o *output) error {
	t, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer t.pool.Close()
	log := slog.New(slog.NewTextHandler(o.log, nil))
	s, err := sweeper.New(t.pool, sweeper.Config{Schema: t.schema, Trigger: t.trigger, Keep: c.Keep, KeepFailed: c.KeepFailed, Logger: log})
	if err != nil {
		return err
	}
	swept, err := s.Sweep(ctx)
	if err != nil {
		return err
	}
	return o.print(c.JSON, swept, func(w io.Writer) {
		fmt.Fprintf(w, "%d jobs taken back, %d queues with due work, %d of them woken; forgotten: %d days, %d failed jobs, %d keys\n",
			swept.Reaped, len(swept.Due), len(swept.Fired), swept.PrunedDays, swept.PrunedFailed, swept.PrunedKeys)
	})
}
