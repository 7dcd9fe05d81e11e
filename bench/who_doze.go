package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dozequeue/doze/enqueue"
	"github.com/dozequeue/doze/handler"
	"github.com/dozequeue/doze/migrations"
	"github.com/dozequeue/doze/queue"
	"github.com/dozequeue/doze/trigger"
)

type dozeQueue struct {
	pool    *pgxpool.Pool
	store   *queue.Store
	client  *enqueue.Client
	payload json.RawMessage
	mux     *handler.Mux
	stamped func(time.Time)
	http    bool // drains are called by HTTP
}

const dozeConcurrency = 100

func newDoze() (contender, error) { return &dozeQueue{payload: payloadOf(100)}, nil }

func (*dozeQueue) Name() string    { return "doze" }
func (*dozeQueue) Version() string { return "this tree" }
func (*dozeQueue) Settings() string {
	return fmt.Sprintf("Concurrency %d, defaults otherwise; history off unless said", dozeConcurrency)
}

func (d *dozeQueue) Setup(ctx context.Context, url string) (err error) {
	if err := d.Connect(ctx, url); err != nil {
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

func (d *dozeQueue) Connect(ctx context.Context, url string) (err error) {
	d.Close()
	if d.pool, err = newPool(ctx, url, 10); err != nil {
		return err
	}
	// The trigger hands over nothing: what rings cost is measured, and who drains is said by each measure.
	nobody := queue.TriggerFunc(func(context.Context, queue.Wake) error { return nil })
	d.client, err = enqueue.New(d.pool, nobody, enqueue.Config{})
	return err
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

func (d *dozeQueue) Drain(ctx context.Context, n int) error { return d.DrainBy(ctx, n, 1) }

// DrainBy has so many drains run at once.
func (d *dozeQueue) DrainBy(ctx context.Context, n, drains int) error {
	return together(n, drains, func() (int, error) {
		drainer, err := handler.New(d.pool, d.mux, handler.Config{Concurrency: dozeConcurrency})
		if err != nil {
			return 0, err
		}
		report, err := drainer.Drain(ctx, queue.Wake{Version: 1, Queue: queue.DefaultQueue})
		return report.Done, err
	})
}

// Watch drains as jobs come, in this process or called by HTTP: each drain comes and goes.
func (d *dozeQueue) Watch(ctx context.Context, started func(time.Time)) (func(), error) {
	d.stamped = started
	drainer, err := handler.New(d.pool, d.mux, handler.Config{})
	if err != nil {
		return nil, err
	}
	var fire queue.Trigger
	var stop func()
	if d.http {
		if fire, stop, err = overHTTP(drainer); err != nil {
			return nil, err
		}
	} else {
		direct := handler.NewInProcess(drainer, 0).Bind()
		fire, stop = direct, func() { _ = direct.Close(ctx) }
	}
	client, err := enqueue.New(d.pool, fire, enqueue.Config{})
	if err != nil {
		return nil, err
	}
	previous := d.client
	d.client = client
	return func() {
		d.client = previous
		stop()
	}, nil
}

// overHTTP serves POST /drain, and returns the trigger that calls it.
func overHTTP(drainer *handler.Drainer) (queue.Trigger, func(), error) {
	secret := []byte("a secret for this run alone")
	drain, err := drainer.Receiver(handler.ReceiverConfig{Secrets: [][]byte{secret}})
	if err != nil {
		return nil, nil, err
	}
	server := httptest.NewServer(drain)
	fire, err := trigger.NewHTTP(trigger.HTTPConfig{URL: server.URL, Secret: secret, AnswerWait: time.Millisecond})
	if err != nil {
		server.Close()
		return nil, nil, err
	}
	return fire, server.Close, nil
}

func (d *dozeQueue) Stamp(ctx context.Context, at time.Time) error {
	text, err := json.Marshal(at)
	if err != nil {
		return err
	}
	_, err = d.client.AddJob(ctx, "stamp", text)
	return err
}

// ClaimMark is in no other statement than its claims.
func (*dozeQueue) ClaimMark() string { return "NOT p.expired AS claimed" }

func (d *dozeQueue) Close() {
	if d.pool != nil {
		d.pool.Close()
	}
}
