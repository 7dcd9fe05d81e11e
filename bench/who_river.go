package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

type riverQueue struct {
	pool   *pgxpool.Pool
	insert *river.Client[pgx.Tx]
	data   string
	left   atomic.Int64
	done   chan struct{}
	stamp  func(time.Time)
}

// riverWorkers is the number with which it was fastest here: 100 to 10,000 were tried.
const riverWorkers = 2000

func newRiver() (contender, error) { return &riverQueue{data: string(payloadOf(100))}, nil }

func (*riverQueue) Name() string    { return "river" }
func (*riverQueue) Version() string { return moduleVersion("github.com/riverqueue/river") }
func (*riverQueue) Settings() string {
	return fmt.Sprintf("riverpgxv5, MaxWorkers %d, FetchCooldown 1 ms, InsertManyFast (COPY) for bulk", riverWorkers)
}

type riverNothing struct {
	Data string    `json:"data"`
	At   time.Time `json:"at,omitzero"`
}

func (riverNothing) Kind() string { return "nothing" }

type riverWorker struct {
	river.WorkerDefaults[riverNothing]
	q *riverQueue
}

func (w *riverWorker) Work(_ context.Context, job *river.Job[riverNothing]) error {
	if !job.Args.At.IsZero() {
		w.q.stamp(job.Args.At)
		return nil
	}
	if w.q.left.Add(-1) == 0 {
		close(w.q.done)
	}
	return nil
}

func (r *riverQueue) Setup(ctx context.Context, url string) (err error) {
	if err := r.Connect(ctx, url); err != nil {
		return err
	}
	migrator, err := rivermigrate.New(riverpgxv5.New(r.pool), nil)
	if err != nil {
		return err
	}
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	return err
}

func (r *riverQueue) Connect(ctx context.Context, url string) (err error) {
	r.Close()
	if r.pool, err = newPool(ctx, url, 20); err != nil {
		return err
	}
	r.insert, err = river.NewClient(riverpgxv5.New(r.pool), &river.Config{Logger: quiet})
	return err
}

var quiet = slog.New(slog.DiscardHandler)

func (r *riverQueue) PayloadSize(n int) { r.data = string(payloadOf(n)) }

func (r *riverQueue) Enqueue(ctx context.Context) error {
	_, err := r.insert.Insert(ctx, riverNothing{Data: r.data}, nil)
	return err
}

func (r *riverQueue) Bulk(ctx context.Context, n int) error {
	return pieces(n, 5000, func(n int) error {
		params := make([]river.InsertManyParams, n)
		for i := range params {
			params[i].Args = riverNothing{Data: r.data}
		}
		_, err := r.insert.InsertManyFast(ctx, params)
		return err
	})
}

func (r *riverQueue) start(ctx context.Context, workers int) (*river.Client[pgx.Tx], error) {
	all := river.NewWorkers()
	river.AddWorker(all, &riverWorker{q: r})
	client, err := river.NewClient(riverpgxv5.New(r.pool), &river.Config{
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: workers}}, Workers: all, Logger: quiet, FetchCooldown: time.Millisecond,
	})
	if err != nil {
		return nil, err
	}
	return client, client.Start(ctx)
}

func (r *riverQueue) Drain(ctx context.Context, n int) error {
	r.left.Store(int64(n))
	r.done = make(chan struct{})
	client, err := r.start(ctx, riverWorkers)
	if err != nil {
		return err
	}
	select {
	case <-r.done:
		return client.Stop(ctx) // which waits until the completions are written
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *riverQueue) Watch(ctx context.Context, started func(time.Time)) (func(), error) {
	r.stamp = started
	client, err := r.start(ctx, 100)
	if err != nil {
		return nil, err
	}
	return func() { _ = client.Stop(ctx) }, nil
}

func (r *riverQueue) Stamp(ctx context.Context, at time.Time) error {
	_, err := r.insert.Insert(ctx, riverNothing{At: at}, nil)
	return err
}

func (*riverQueue) ClaimMark() string { return "SKIP LOCKED" }

func (r *riverQueue) Close() {
	if r.pool != nil {
		r.pool.Close()
	}
}
