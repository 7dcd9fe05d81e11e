package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime/pprof"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// measure is something that is run with each contender, and comes to one figure or several.
type measure struct {
	name    string
	figures []kind
	long    bool     // only if it is asked for
	only    []string // contenders; default all
	delay   time.Duration
	run     func(ctx context.Context, b *bench, c contender, url string) ([]float64, error)
}

// kind of figure. One that a contender does not have is NaN.
type kind struct {
	name, unit string
	less       bool // less is better
}

func (m measure) fits(who string) bool { return len(m.only) == 0 || slices.Contains(m.only, who) }

func rate(name string) []kind { return []kind{{name, "jobs/s", false}} }

var measures = []measure{
	{name: "drain", figures: rate("drain"), run: drains(50_000, 100)},
	{name: "drain_history", figures: rate("drain_history"), only: []string{"doze", "limit"}, run: withHistory(drains(50_000, 100))},
	{name: "drain_two", figures: rate("drain_two"), only: []string{"doze", "limit"}, run: drainsBy(2, 50_000)},
	{name: "enqueue", figures: rate("enqueue"), run: enqueues(12_000)},
	{name: "enqueue_bare", figures: rate("enqueue_bare"), only: []string{"doze"}, run: enqueuesBare(12_000)},
	{name: "bulk", figures: rate("bulk"), run: bulk(50_000)},
	{name: "bulk_unnest", figures: rate("bulk_unnest"), only: []string{"limit"}, run: bulkUnnest(50_000)},
	{name: "cold", figures: coldKinds, only: coldOnes, run: cold},
	{name: "latency", figures: []kind{{"latency_p50", "ms", true}, {"latency_p99", "ms", true}}, run: latency(false)},
	{name: "latency_http", figures: []kind{{"latency_http_p50", "ms", true}, {"latency_http_p99", "ms", true}}, only: []string{"doze"}, run: latency(true)},
	{name: "drain_8kb", figures: rate("drain_8kb"), run: drains(10_000, 8<<10)},
	{name: "drain_1ms", figures: rate("drain_1ms"), long: true, delay: time.Millisecond, only: batched, run: drains(10_000, 100)},
	{name: "drain_5ms", figures: rate("drain_5ms"), delay: 5 * time.Millisecond, only: batched, run: drains(10_000, 100)},
	{name: "drain_20ms", figures: rate("drain_20ms"), long: true, delay: 20 * time.Millisecond, only: batched, run: drains(10_000, 100)},
	{name: "job", figures: jobKinds, run: job},
	{name: "grown", figures: []kind{{"grown_drain", "times as long", true}, {"grown_single", "times as long", true}}, only: []string{"doze"}, run: grown},
	{name: "drain_million", figures: rate("drain_million"), long: true, only: []string{"doze", "limit", "pgmq"}, run: drains(1_000_000, 100)},
	{name: "pinned", figures: pinnedKinds, long: true, only: []string{"doze", "limit", "river"}, run: pinned},
	{name: "pinned_single", figures: []kind{{"pinned_single", "times as long", true}}, long: true, only: []string{"doze"}, run: pinnedSingle},
}

// batched are those for which a network's delay is worth its time: gue makes three round trips a job.
var batched = []string{"doze", "limit", "river", "graphile", "pgboss", "pgmq"}

func measureNames() (all []string) {
	for _, m := range measures {
		all = append(all, m.name)
	}
	return all
}

func longOnes() (all []string) {
	for _, m := range measures {
		if m.long {
			all = append(all, m.name)
		}
	}
	return all
}

// size is n, or little of it for a short run.
func size(n int) int {
	if *short {
		return max(n/50, 20)
	}
	return n
}

// timed is how long do took, by the contender's own clock if it runs elsewhere.
func timed(c contender, do func() error) (time.Duration, error) {
	if *cpuProfile != "" {
		f, err := os.Create(*cpuProfile)
		if err != nil {
			return 0, err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return 0, err
		}
		defer pprof.StopCPUProfile()
	}
	began := time.Now()
	err := do()
	took := time.Since(began)
	if own, ok := c.(interface{ Took() time.Duration }); ok {
		took = own.Took()
	}
	return took, err
}

func perSecond(n int, took time.Duration, err error) ([]float64, error) {
	return []float64{float64(n) / took.Seconds()}, err
}

// fill adds jobs that wait.
func (b *bench) fill(ctx context.Context, c contender, n int, url string) error {
	if err := c.Bulk(ctx, n); err != nil {
		return err
	}
	return b.server.settle(ctx, url)
}

func drains(n, bytes int) func(context.Context, *bench, contender, string) ([]float64, error) {
	return func(ctx context.Context, b *bench, c contender, url string) ([]float64, error) {
		n := size(n)
		if bytes != 100 {
			s, ok := c.(sizer)
			if !ok {
				return nil, missing("its payload is not to be chosen")
			}
			s.PayloadSize(bytes)
		}
		if err := b.fill(ctx, c, n, url); err != nil {
			return nil, err
		}
		took, err := timed(c, func() error { return c.Drain(ctx, n) })
		return perSecond(n, took, err)
	}
}

// drainsBy is a drain by several at once.
func drainsBy(drains, n int) func(context.Context, *bench, contender, string) ([]float64, error) {
	return func(ctx context.Context, b *bench, c contender, url string) ([]float64, error) {
		n := size(n)
		if err := b.fill(ctx, c, n, url); err != nil {
			return nil, err
		}
		took, err := timed(c, func() error {
			return c.(interface {
				DrainBy(ctx context.Context, n, drains int) error
			}).DrainBy(ctx, n, drains)
		})
		return perSecond(n, took, err)
	}
}

func withHistory(run func(context.Context, *bench, contender, string) ([]float64, error)) func(context.Context, *bench, contender, string) ([]float64, error) {
	return func(ctx context.Context, b *bench, c contender, url string) ([]float64, error) {
		if err := c.(historian).KeepHistory(ctx, true); err != nil {
			return nil, err
		}
		return run(ctx, b, c, url)
	}
}

var jobKinds = []kind{
	{"job_wal", "bytes", true}, {"job_cpu_server", "µs", true}, {"job_cpu_client", "µs", true},
	{"job_statements", "in 1000 jobs", true}, {"job_trips", "in 1000 jobs", true},
}

// job is what a job takes from its claim to its end: once directly, and once through a proxy that counts.
func job(ctx context.Context, b *bench, c contender, url string) ([]float64, error) {
	n := size(20_000)
	if err := b.fill(ctx, c, n, url); err != nil {
		return nil, err
	}
	conn, err := pgx.Connect(ctx, b.server.pg.URL())
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(ctx) }()
	var before string
	if err := conn.QueryRow(ctx, "SELECT pg_current_wal_lsn()::text").Scan(&before); err != nil {
		return nil, err
	}
	server, client := b.server.cpu(), ownCPU()
	if err := c.Drain(ctx, n); err != nil {
		return nil, err
	}
	server, client = b.server.cpu()-server, ownCPU()-client
	if own, ok := c.(interface{ CPU() time.Duration }); ok {
		client = own.CPU()
	}
	var wal float64
	if err := conn.QueryRow(ctx, "SELECT pg_current_wal_lsn() - $1::pg_lsn", before).Scan(&wal); err != nil {
		return nil, err
	}
	if err := b.fill(ctx, c, n, url); err != nil {
		return nil, err
	}
	behind, sent, stop, err := counted(url)
	if err != nil {
		return nil, err
	}
	defer stop()
	if err := c.Connect(ctx, behind); err != nil {
		return nil, err
	}
	if err := c.Drain(ctx, n); err != nil {
		return nil, err
	}
	each := func(v float64) float64 { return v / float64(n) }
	micros := func(d time.Duration) float64 {
		if d == 0 {
			return math.NaN() // not known on this system
		}
		return each(float64(d.Microseconds()))
	}
	return []float64{each(wal), micros(server), micros(client), 1000 * each(float64(sent.statements.Load())), 1000 * each(float64(sent.trips.Load()))}, nil
}

// enqueues adds jobs one by one, each in a transaction of its own, by eight producers.
func enqueues(n int) func(context.Context, *bench, contender, string) ([]float64, error) {
	return func(ctx context.Context, _ *bench, c contender, _ string) ([]float64, error) {
		n := size(n)
		took, err := timed(c, func() error {
			if all, ok := c.(interface {
				EnqueueAll(context.Context, int) error
			}); ok {
				return all.EnqueueAll(ctx, n)
			}
			var producers sync.WaitGroup
			var left atomic.Int64
			left.Store(int64(n))
			errs := make([]error, 8)
			for p := range errs {
				producers.Go(func() {
					for left.Add(-1) >= 0 && errs[p] == nil {
						errs[p] = c.Enqueue(ctx)
					}
				})
			}
			producers.Wait()
			return errors.Join(errs...)
		})
		return perSecond(n, took, err)
	}
}

// enqueuesBare is the same with nothing but an INSERT into Doze's own table: what its enqueue could be at most.
func enqueuesBare(n int) func(context.Context, *bench, contender, string) ([]float64, error) {
	return func(ctx context.Context, b *bench, c contender, url string) ([]float64, error) {
		return enqueues(n)(ctx, b, &bare{c.(*dozeQueue)}, url)
	}
}

type bare struct{ *dozeQueue }

func (b *bare) Enqueue(ctx context.Context) error {
	_, err := b.pool.Exec(ctx, "INSERT INTO doze.jobs (id, queue, kind, payload) VALUES ($1, 'default', 'nothing', $2)", newID(), b.payload)
	return err
}

func bulk(n int) func(context.Context, *bench, contender, string) ([]float64, error) {
	return func(ctx context.Context, _ *bench, c contender, _ string) ([]float64, error) {
		n := size(n)
		took, err := timed(c, func() error { return c.Bulk(ctx, n) })
		return perSecond(n, took, err)
	}
}

func bulkUnnest(n int) func(context.Context, *bench, contender, string) ([]float64, error) {
	return func(ctx context.Context, _ *bench, c contender, _ string) ([]float64, error) {
		n := size(n)
		took, err := timed(c, func() error { return c.(*limit).unnest(ctx, n) })
		return perSecond(n, took, err)
	}
}

// latency is from the call that enqueues a job to its start, at 20 a second: p50 and p99.
func latency(http bool) func(context.Context, *bench, contender, string) ([]float64, error) {
	return func(ctx context.Context, _ *bench, c contender, _ string) ([]float64, error) {
		n := size(200)
		if d, ok := c.(*dozeQueue); ok {
			d.http = http
		}
		var waits []time.Duration
		switch w := c.(type) {
		case waker:
			var mu sync.Mutex
			all := make(chan struct{})
			stop, err := w.Watch(ctx, func(stamp time.Time) {
				mu.Lock()
				defer mu.Unlock()
				if waits = append(waits, time.Since(stamp)); len(waits) == n {
					close(all)
				}
			})
			if err != nil {
				return nil, err
			}
			defer stop()
			tick := time.NewTicker(50 * time.Millisecond)
			defer tick.Stop()
			for range n {
				<-tick.C
				if err := w.Stamp(ctx, time.Now()); err != nil {
					return nil, err
				}
			}
			select {
			case <-all:
			case <-time.After(30 * time.Second):
				mu.Lock()
				defer mu.Unlock()
				return nil, fmt.Errorf("%d of %d jobs have started", len(waits), n)
			}
		case interface {
			Latencies(context.Context, int) ([]time.Duration, error)
		}:
			var err error
			if waits, err = w.Latencies(ctx, n); err != nil {
				return nil, err
			}
			if len(waits) != n {
				return nil, fmt.Errorf("%d of %d jobs have started", len(waits), n)
			}
		default:
			return nil, missing("it is not woken")
		}
		return []float64{milliseconds(quantile(waits, 0.5)), milliseconds(quantile(waits, 0.99))}, nil
	}
}

func milliseconds(d time.Duration) float64 { return d.Seconds() * 1000 }

func quantile(all []time.Duration, part float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[min(int(float64(len(all))*part), len(all)-1)]
}

// grown is how much longer drains take beside a million jobs for later, a million done ones, 100,000 failed ones and
// 1,000 queues: one of 50,000 jobs, and one of a single job.
func grown(ctx context.Context, b *bench, c contender, url string) ([]float64, error) {
	drain := func() (took, single time.Duration, err error) {
		n := size(50_000)
		if err := b.fill(ctx, c, n, url); err != nil {
			return 0, 0, err
		}
		if took, err = timed(c, func() error { return c.Drain(ctx, n) }); err != nil {
			return 0, 0, err
		}
		var singles []time.Duration
		for range size(500) {
			if err := c.Bulk(ctx, 1); err != nil {
				return 0, 0, err
			}
			one, err := timed(c, func() error { return c.Drain(ctx, 1) })
			if err != nil {
				return 0, 0, err
			}
			singles = append(singles, one)
		}
		return took, quantile(singles, 0.5), nil
	}
	before, singleBefore, err := drain()
	if err != nil {
		return nil, err
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(ctx) }()
	for _, sql := range []string{
		`INSERT INTO doze.jobs (id, queue, kind, run_at, payload) SELECT gen_random_uuid(), CASE WHEN i % 2 = 0 THEN 'default' ELSE 'q' || i % 1000 END, 'later', now() + interval '1 hour' + i * interval '1 second', '{}'
		   FROM generate_series(1, $1::integer) i`,
		`INSERT INTO doze.history (id, bucket, queue, kind, state, priority, run_at, attempts, failures, max_attempts, reaps, created_at, finished_at, payload)
		 SELECT gen_random_uuid(), doze.history_bucket('done'), 'default', 'nothing', 'done', 0, now(), 1, 0, 10, 0, now(), now(), '{}' FROM generate_series(1, $1::integer)`,
		`INSERT INTO doze.history (id, bucket, queue, kind, state, priority, run_at, attempts, failures, max_attempts, reaps, created_at, finished_at, payload)
		 SELECT gen_random_uuid(), -1, 'default', 'nothing', 'failed', 0, now(), 1, 1, 1, 0, now(), now(), '{}' FROM generate_series(1, $1::integer / 10)`,
		`INSERT INTO doze.queues (queue) SELECT 'q' || i FROM generate_series(1, 1000) i WHERE $1::integer > 0 ON CONFLICT DO NOTHING`,
	} {
		if _, err := conn.Exec(ctx, sql, size(1_000_000)); err != nil {
			return nil, err
		}
	}
	after, singleAfter, err := drain()
	if err != nil {
		return nil, err
	}
	fmt.Printf("    50,000 jobs: %v, grown %v; a single one: %v, grown %v\n", before.Round(time.Millisecond), after.Round(time.Millisecond), singleBefore.Round(time.Microsecond), singleAfter.Round(time.Microsecond))
	return []float64{after.Seconds() / before.Seconds(), singleAfter.Seconds() / singleBefore.Seconds()}, nil
}
