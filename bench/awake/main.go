// Command awake plays a day's trace, compressed, against a Postgres that really suspends, and says how long it
// was awake beside the least that any queue could do: the union of [work, work + timeout].
//
//	go run ./awake                       a trace of five minutes, suspended after 5 s
//	go run ./awake -length 2m -timeout 3s
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dozequeue/doze/enqueue"
	"github.com/dozequeue/doze/handler"
	"github.com/dozequeue/doze/internal/pgdev"
	"github.com/dozequeue/doze/internal/sleepy"
	"github.com/dozequeue/doze/migrations"
	"github.com/dozequeue/doze/queue"
	"github.com/dozequeue/doze/schedule"
)

var (
	length  = flag.Duration("length", 5*time.Minute, "length of the trace")
	timeout = flag.Duration("timeout", 5*time.Second, "suspend timeout")
	seed    = flag.Uint64("seed", 1, "seed of the trace")
	asJSON  = flag.Bool("json", false, "print JSON")
)

// work is what any queue must touch the database for, by the time it does.
type work struct {
	mu    sync.Mutex
	times []time.Time
}

func (w *work) at(t time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.times = append(w.times, t)
}

// ideal is the union of [t, t+timeout].
func (w *work) ideal(timeout time.Duration) time.Duration {
	slices.SortFunc(w.times, time.Time.Compare)
	var total time.Duration
	var end time.Time
	for _, t := range w.times {
		if t.After(end) {
			total += timeout
		} else {
			total += t.Add(timeout).Sub(end)
		}
		end = t.Add(timeout)
	}
	return total
}

// watched is an in-process alarm that can be taken back, as EventBridge Scheduler's can.
type watched struct {
	mu     sync.Mutex
	fire   func(queue.Wake)
	timers map[string]*time.Timer
}

func (a *watched) Set(_ context.Context, wake queue.Wake, in time.Duration) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.timers[wake.Alarm] = time.AfterFunc(in, func() { a.fire(wake) })
	return nil
}

func (a *watched) Clear(_ context.Context, _, id string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t := a.timers[id]; t != nil {
		t.Stop()
	}
	return nil
}

type report struct {
	Seconds, AwakeSeconds, IdealSeconds, Ratio float64
	Wakes, Jobs, Done, NotDone, Early          int
	LatestMS                                   int64
	Messages                                   int
}

func main() {
	flag.Parse()
	r, err := run(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	if *asJSON {
		_ = json.NewEncoder(os.Stdout).Encode(r)
		return
	}
	fmt.Printf("trace %.0f s, suspended after %v: awake %.1f s, ideal %.1f s, ratio %.3f\n", r.Seconds, *timeout, r.AwakeSeconds, r.IdealSeconds, r.Ratio)
	fmt.Printf("%d wakes, %d jobs, %d done, %d not, %d early, the latest %d ms after its time, %d messages to the database\n",
		r.Wakes, r.Jobs, r.Done, r.NotDone, r.Early, r.LatestMS, r.Messages)
}

func run(ctx context.Context) (*report, error) {
	dir, err := os.MkdirTemp("", "doze-awake-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, err
	}
	proxy, err := sleepy.New(sleepy.Config{Server: pgdev.Config{DataDir: filepath.Join(dir, "postgres"), Durable: true}, Timeout: *timeout})
	if err != nil {
		return nil, err
	}
	defer proxy.Close()
	cfg, err := pgxpool.ParseConfig(proxy.URL("postgres"))
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = 12
	cfg.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return true }
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	if err := pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
		_, err := migrations.Up(ctx, c.Conn(), "")
		return err
	}); err != nil {
		return nil, err
	}

	var w work
	var mu sync.Mutex
	failed := map[uuid.UUID]bool{}
	mux := handler.NewMux()
	mux.Handle("ok", func(context.Context, *queue.Job) error { w.at(time.Now()); return nil })
	const retryAfter = 12 * time.Second
	mux.Handle("once", func(_ context.Context, job *queue.Job) error {
		w.at(time.Now())
		mu.Lock()
		defer mu.Unlock()
		if !failed[job.ID] {
			failed[job.ID] = true
			return fmt.Errorf("the first attempt fails")
		}
		return nil
	})
	alarm := &watched{timers: map[string]*time.Timer{}}
	d, err := handler.New(pool, mux, handler.Config{Alarm: alarm, Backoff: func(int) time.Duration { return retryAfter }})
	if err != nil {
		return nil, err
	}
	drains := handler.NewInProcess(d, 0)
	alarm.fire = func(wake queue.Wake) { _ = drains.Fire(ctx, wake) }
	jobs, err := enqueue.New(pool, drains, enqueue.Config{Alarm: alarm})
	if err != nil {
		return nil, err
	}
	schedules, err := schedule.New(pool, "", alarm)
	if err != nil {
		return nil, err
	}
	for name, cron := range map[string]string{"each-minute": "0 * * * * *", "twice": "15 */2 * * * *"} {
		if err := schedules.Put(ctx, queue.Schedule{Name: name, Cron: cron, Kind: "ok"}); err != nil {
			return nil, err
		}
	}
	store, err := queue.NewStore("")
	if err != nil {
		return nil, err
	}
	if err := proxy.Wait(ctx, sleepy.Asleep); err != nil {
		return nil, err
	}
	before := proxy.Status()
	began := time.Now()

	random := rand.New(rand.NewPCG(*seed, 0))
	type event struct {
		at time.Duration
		do func() error
	}
	var events []event
	within := func() time.Duration { return time.Duration(random.Int64N(int64(*length - 40*time.Second))) }
	add := func(kind string, options ...enqueue.Option) func() error {
		return func() error {
			w.at(time.Now())
			_, err := jobs.AddJob(ctx, kind, nil, options...)
			return err
		}
	}
	for range 12 { // 200 arrivals in bursts
		start := within()
		for range 200 / 12 {
			events = append(events, event{start + time.Duration(random.Int64N(int64(2*time.Second))), add("ok")})
		}
	}
	for range 40 { // for later
		events = append(events, event{within(), add("ok", enqueue.In(time.Duration(1+random.IntN(30))*time.Second))})
	}
	for range 20 { // that fail once
		events = append(events, event{within(), add("once")})
	}
	for range 3 { // drains that vanish with what they claimed
		events = append(events, event{within(), func() error {
			w.at(time.Now())
			if _, err := jobs.AddJob(ctx, "ok", nil, enqueue.On("killed"), enqueue.In(time.Millisecond)); err != nil {
				return err
			}
			time.Sleep(5 * time.Millisecond)
			slot := queue.Slot{Queue: "killed", Token: uuid.New(), Lease: 3 * time.Second, Watch: uuid.New()}
			return pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
				t, err := store.Start(ctx, c.Conn(), slot, "", 10)
				if err == nil && t.Watching {
					err = alarm.Set(ctx, queue.Wake{Version: 1, Queue: slot.Queue, Alarm: slot.Watch.String()}, slot.WatchIn())
				}
				return err
			})
		}})
	}
	slices.SortFunc(events, func(a, b event) int { return int(a.at - b.at) })
	for _, e := range events {
		time.Sleep(time.Until(began.Add(e.at)))
		if err := e.do(); err != nil {
			return nil, err
		}
	}
	time.Sleep(time.Until(began.Add(*length)))
	for _, name := range []string{"each-minute", "twice"} {
		if err := schedules.Delete(ctx, name); err != nil {
			return nil, err
		}
	}
	w.at(time.Now())
	if err := drains.Wait(ctx); err != nil {
		return nil, err
	}
	if err := proxy.Wait(ctx, sleepy.Asleep); err != nil {
		return nil, err
	}
	after := proxy.Status()
	r := &report{
		Seconds: time.Since(began).Seconds(), AwakeSeconds: after.AwakeSeconds - before.AwakeSeconds, IdealSeconds: w.ideal(*timeout).Seconds(),
		Wakes: after.Wakes - before.Wakes, Messages: after.Messages - before.Messages,
	}
	r.Ratio = r.AwakeSeconds / r.IdealSeconds
	err = pool.QueryRow(ctx, `SELECT (SELECT count(*) FROM doze.job_list), (SELECT count(*) FROM doze.history WHERE state = 'done'), (SELECT count(*) FROM doze.jobs),
		(SELECT count(*) FROM doze.history WHERE finished_at < run_at), coalesce((SELECT ceil(max(extract(epoch FROM finished_at - run_at)) * 1000)::bigint FROM doze.history WHERE queue <> 'killed'), 0)`).
		Scan(&r.Jobs, &r.Done, &r.NotDone, &r.Early, &r.LatestMS)
	if err == pgx.ErrNoRows {
		err = nil
	}
	return r, err
}
