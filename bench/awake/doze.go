package main

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dozequeue/doze/enqueue"
	"github.com/dozequeue/doze/handler"
	"github.com/dozequeue/doze/internal/sleepy"
	"github.com/dozequeue/doze/migrations"
	"github.com/dozequeue/doze/queue"
	"github.com/dozequeue/doze/schedule"
)

// dozeQueue is Doze with goroutines as its functions.
type dozeQueue struct {
	rule   sleepy.Rule
	l      *ledger
	pool   *pgxpool.Pool
	jobs   *enqueue.Client
	silent *enqueue.Client // wakes nobody
	store  *queue.Store
	alarm  *alarm
	drain  *handler.Drainer
	ctx    context.Context // of the drains
	all    sync.WaitGroup
}

func (d *dozeQueue) settings() string {
	if d.rule == sleepy.Connections {
		return "DOZE_CONNECTIONS=close, alarms that can be taken back"
	}
	return "defaults, alarms that can be taken back"
}

func (*dozeQueue) retry() time.Duration { return retryAfter }
func (*dozeQueue) offset() time.Duration {
	return 15 * time.Second
}

// alarm is an in-process alarm that can be taken back, as EventBridge Scheduler's can.
type alarm struct {
	fire func(queue.Wake)

	mu     sync.Mutex
	timers map[string]*time.Timer
	closed bool
}

func (a *alarm) Set(_ context.Context, wake queue.Wake, in time.Duration) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.timers[wake.Alarm] = time.AfterFunc(in, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if !a.closed {
			a.fire(wake)
		}
	})
	return nil
}

func (a *alarm) Clear(_ context.Context, _, id string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t := a.timers[id]; t != nil {
		t.Stop()
	}
	return nil
}

// args of a job.
func args(j job) []byte { return []byte(`{"id":` + strconv.Itoa(j.ID) + `}`) }

func (d *dozeQueue) start(ctx context.Context, url string, l *ledger) error {
	d.l, d.ctx = l, ctx
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return err
	}
	// As internal/database has it.
	cfg.MaxConns = 12
	cfg.MaxConnIdleTime = 30 * time.Second
	cfg.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return true }
	if d.rule == sleepy.Connections {
		cfg.MaxConnIdleTime, cfg.HealthCheckPeriod = time.Second, time.Second
	}
	if d.pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return err
	}
	defer d.rest()
	if err := d.pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
		_, err := migrations.Up(ctx, c.Conn(), "")
		return err
	}); err != nil {
		return err
	}
	mux := handler.NewMux()
	type payload struct {
		ID int `json:"id"`
	}
	id := func(j *queue.Job) int {
		var p payload
		_ = json.Unmarshal(j.Payload, &p)
		return p.ID
	}
	mux.Handle("ok", func(_ context.Context, j *queue.Job) error { l.ran(id(j), time.Now()); return nil })
	mux.Handle("once", func(_ context.Context, j *queue.Job) error {
		if j.Failures == 0 {
			l.failed(id(j), time.Now())
			return errors.New("the first attempt fails")
		}
		l.ran(id(j), time.Now())
		return nil
	})
	for name := range l.ticks {
		mux.Handle(name, func(context.Context, *queue.Job) error { l.ticked(name, time.Now()); return nil })
	}
	d.alarm = &alarm{timers: map[string]*time.Timer{}, fire: func(wake queue.Wake) { _ = d.Fire(ctx, wake) }}
	if d.drain, err = handler.New(d.pool, mux, handler.Config{Trigger: d, Alarm: d.alarm, Logger: logger(), Backoff: func(int) time.Duration { return retryAfter }}); err != nil {
		return err
	}
	if d.jobs, err = enqueue.New(d.pool, d, enqueue.Config{Alarm: d.alarm}); err != nil {
		return err
	}
	if d.silent, err = enqueue.New(d.pool, queue.TriggerFunc(func(context.Context, queue.Wake) error { return nil }), enqueue.Config{}); err != nil {
		return err
	}
	if d.store, err = queue.NewStore(""); err != nil {
		return err
	}
	schedules, err := schedule.New(d.pool, "", d.alarm)
	if err != nil {
		return err
	}
	for name, cron := range map[string]string{"each-minute": "0 * * * * *", "twice": "15 */2 * * * *"} {
		if err := schedules.Put(ctx, queue.Schedule{Name: name, Cron: cron, Kind: name}); err != nil {
			return err
		}
	}
	return nil
}

// rest is what a function does when it ends: it closes its connections where open ones keep the database awake.
func (d *dozeQueue) rest() {
	if d.rule == sleepy.Connections {
		d.pool.Reset()
	}
}

// Fire starts a drain, as a platform that starts a function: it tries again if that fails.
func (d *dozeQueue) Fire(_ context.Context, wake queue.Wake) error {
	d.all.Go(func() {
		for range 3 {
			_, err := d.drain.Drain(d.ctx, wake)
			d.rest()
			if err == nil || d.ctx.Err() != nil {
				return
			}
			d.l.complain(err.Error())
			time.Sleep(time.Second)
		}
	})
	return nil
}

func (d *dozeQueue) add(ctx context.Context, j job) error {
	defer d.rest()
	d.l.adding(j.ID, time.Now())
	if j.Killed {
		return d.kill(ctx, j)
	}
	kind := "ok"
	if j.Once {
		kind = "once"
	}
	_, err := d.jobs.AddJob(ctx, kind, args(j), enqueue.In(j.Delay))
	return err
}

// kill has a drain claim the job and vanish. Nobody else is told of the job, so that this drain is the one.
func (d *dozeQueue) kill(ctx context.Context, j job) error {
	if _, err := d.silent.AddJob(ctx, "ok", args(j), enqueue.On("killed")); err != nil {
		return err
	}
	slot := queue.Slot{Queue: "killed", Token: uuid.New(), Lease: 3 * time.Second, Watch: uuid.New()}
	return d.pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
		t, err := d.store.Start(ctx, c.Conn(), slot, "", 10)
		switch {
		case err != nil:
			return err
		case len(t.Claimed) == 0:
			return errors.New("the drain that is to vanish found nothing to claim")
		case !t.Watching: // an alarm goes off before
			return nil
		}
		return d.alarm.Set(ctx, queue.Wake{Version: 1, Queue: slot.Queue, Reason: queue.ReasonAlarm, Alarm: slot.Watch.String()}, slot.WatchIn())
	})
}

func (*dozeQueue) left() string {
	return `SELECT (SELECT count(*) FROM doze.jobs WHERE kind IN ('ok', 'once')) + (SELECT count(*) FROM doze.history WHERE kind IN ('ok', 'once') AND state <> 'done')`
}

func (d *dozeQueue) stop(context.Context) error {
	d.alarm.mu.Lock()
	d.alarm.closed = true
	d.alarm.mu.Unlock()
	d.all.Wait()
	d.pool.Close()
	return nil
}
