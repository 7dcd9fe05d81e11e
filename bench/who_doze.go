package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dozequeue/doze/enqueue"
	"github.com/dozequeue/doze/handler"
	"github.com/dozequeue/doze/migrations"
	"github.com/dozequeue/doze/queue"
)

type dozeQueue struct {
	pool    *pgxpool.Pool
	store   *queue.Store
	client  *enqueue.Client
	payload json.RawMessage
	mux     *handler.Mux
	stamped func(time.Time)
	direct  *handler.InProcess // for latencies
}

const dozeConcurrency = 100

func newDoze() (contender, error) { return &dozeQueue{payload: payloadOf(100)}, nil }

func (*dozeQueue) Name() string    { return "doze" }
func (*dozeQueue) Version() string { return "this tree" }
func (*dozeQueue) Settings() string {
	return fmt.Sprintf("Concurrency %d, defaults otherwise; history off unless said", dozeConcurrency)
}

func (d *dozeQueue) Setup(ctx context.Context, url string) (err error) {
	if d.pool, err = newPool(ctx, url, 10); err != nil {
		return err
	}
	if err := d.pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
		_, err := migrations.Up(ctx, c.Conn(), "")
		return err
	}); err != nil {
		return err
	}
	if d.store, err = queue.NewStore(""); err != nil {
		return err
	}
	// The trigger hands over nothing: what rings cost is measured, and who drains is said by each measure.
	nobody := queue.TriggerFunc(func(context.Context, queue.Wake) error { return nil })
	if d.client, err = enqueue.New(d.pool, nobody, enqueue.Config{}); err != nil {
		return err
	}
	d.mux = handler.NewMux()
	d.mux.Handle("nothing", func(context.Context, *queue.Job) error { return nil })
	d.mux.Handle("stamp", func(_ context.Context, job *queue.Job) error {
		var at time.Time
		if err := json.Unmarshal(job.Payload, &at); err != nil {
			return err
		}
		d.stamped(at)
		return nil
	})
	return d.KeepHistory(ctx, false)
}

func (d *dozeQueue) KeepHistory(ctx context.Context, keep bool) error {
	return d.store.Configure(ctx, d.pool, queue.DefaultQueue, queue.Settings{History: map[bool]string{true: "on", false: "off"}[keep]})
}

func (d *dozeQueue) PayloadSize(n int) { d.payload = payloadOf(n) }

func (d *dozeQueue) Enqueue(ctx context.Context) error {
	_, err := d.client.AddJob(ctx, "nothing", d.payload)
	return err
}

func (d *dozeQueue) Bulk(ctx context.Context, n int) error {
	return pieces(n, 5000, func(n int) error {
		entries := make([]enqueue.RawEntry, n)
		for i := range entries {
			entries[i] = enqueue.RawEntry{Kind: "nothing", Payload: d.payload}
		}
		_, err := d.client.AddJobs(ctx, entries)
		return err
	})
}

func (d *dozeQueue) Drain(ctx context.Context, n int) error {
	drainer, err := handler.New(d.pool, d.mux, handler.Config{Concurrency: dozeConcurrency})
	if err != nil {
		return err
	}
	report, err := drainer.Drain(ctx, queue.Wake{Version: 1, Queue: queue.DefaultQueue})
	if err == nil && report.Done != n {
		err = fmt.Errorf("doze: %+v, want %d done", report, n)
	}
	return err
}

// Watch drains in process as jobs come: each is a drain of its own, which comes and goes.
func (d *dozeQueue) Watch(ctx context.Context, started func(time.Time)) (func(), error) {
	d.stamped = started
	drainer, err := handler.New(d.pool, d.mux, handler.Config{})
	if err != nil {
		return nil, err
	}
	d.direct = handler.NewInProcess(drainer, 0).Bind()
	client, err := enqueue.New(d.pool, d.direct, enqueue.Config{})
	if err != nil {
		return nil, err
	}
	previous := d.client
	d.client = client
	return func() {
		d.client = previous
		_ = d.direct.Close(ctx)
	}, nil
}

func (d *dozeQueue) Stamp(ctx context.Context, at time.Time) error {
	text, err := json.Marshal(at)
	if err != nil {
		return err
	}
	_, err = d.client.AddJob(ctx, "stamp", text)
	return err
}

func (d *dozeQueue) Close() { d.pool.Close() }
