package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

type riverQueue struct {
	pollOnly bool
	l        *ledger
	pool     *pgxpool.Pool
	client   *river.Client[pgx.Tx]
}

func (r *riverQueue) settings() string {
	if r.pollOnly {
		return "river " + moduleVersion("github.com/riverqueue/river") + ", PollOnly, looks each second"
	}
	return "river " + moduleVersion("github.com/riverqueue/river") + ", listens, and looks each second"
}

func (*riverQueue) retry() time.Duration { return retryAfter }
func (*riverQueue) offset() time.Duration {
	return 15 * time.Second
}

type riverJob struct {
	ID   int  `json:"id"`
	Once bool `json:"once"`
}

func (riverJob) Kind() string { return "job" }

type riverTick struct {
	Name string `json:"name"`
}

func (riverTick) Kind() string { return "tick" }

type riverWorker struct {
	river.WorkerDefaults[riverJob]
	l *ledger
}

func (w *riverWorker) Work(_ context.Context, j *river.Job[riverJob]) error {
	if j.Args.Once && j.Attempt == 1 {
		w.l.failed(j.Args.ID, time.Now())
		return errors.New("the first attempt fails")
	}
	w.l.ran(j.Args.ID, time.Now())
	return nil
}

func (w *riverWorker) NextRetry(*river.Job[riverJob]) time.Time { return time.Now().Add(retryAfter) }

func (r *riverQueue) start(ctx context.Context, url string, l *ledger) (err error) {
	r.l = l
	if r.pool, err = pgxpool.New(ctx, url); err != nil {
		return err
	}
	migrator, err := rivermigrate.New(riverpgxv5.New(r.pool), nil)
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, &riverWorker{l: l})
	river.AddWorker(workers, river.WorkFunc(func(_ context.Context, j *river.Job[riverTick]) error {
		l.ticked(j.Args.Name, time.Now())
		return nil
	}))
	var periodic []*river.PeriodicJob
	for name, e := range l.ticks {
		periodic = append(periodic, river.NewPeriodicJob(e, func() (river.JobArgs, *river.InsertOpts) { return riverTick{name}, nil }, nil))
	}
	r.client, err = river.NewClient(riverpgxv5.New(r.pool), &river.Config{
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 100}}, Workers: workers, PeriodicJobs: periodic,
		PollOnly: r.pollOnly, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	return r.client.Start(ctx)
}

func (r *riverQueue) add(ctx context.Context, j job) error {
	r.l.adding(j.ID, time.Now())
	var options river.InsertOpts
	if j.Delay > 0 {
		options.ScheduledAt = time.Now().Add(j.Delay)
	}
	for {
		_, err := r.client.Insert(ctx, riverJob{j.ID, j.Once}, &options)
		if err == nil || ctx.Err() != nil {
			return err
		}
		r.l.complain(err.Error()) // a connection that the suspend has closed
		time.Sleep(200 * time.Millisecond)
	}
}

func (*riverQueue) left() string {
	return "SELECT count(*) FROM river_job WHERE kind = 'job' AND state <> 'completed'"
}

func (r *riverQueue) stop(ctx context.Context) error {
	err := r.client.Stop(ctx)
	r.pool.Close()
	return err
}
