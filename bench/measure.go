package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// measure is one thing that is measured of each contender.
type measure struct {
	name, unit string
	less       bool // less is better
	long       bool // only if it is asked for
	only       []string
	delay      time.Duration // of the network, each way and back
	run        func(ctx context.Context, b *bench, c contender, url string) (float64, error)
}

func (m measure) fits(who string) bool { return len(m.only) == 0 || slices.Contains(m.only, who) }

var measures = []measure{
	{name: "drain", unit: "jobs/s", run: drains(50_000, 100)},
	{name: "drain_history", unit: "jobs/s", only: []string{"doze", "limit"}, run: withHistory(drains(50_000, 100))},
	{name: "drain_8kb", unit: "jobs/s", run: drains(10_000, 8<<10)},
	{name: "drain_5ms", unit: "jobs/s", delay: 5 * time.Millisecond, only: []string{"doze", "limit", "river", "graphile", "pgboss", "pgmq"}, run: drains(10_000, 100)},
	{name: "drain_20ms", unit: "jobs/s", long: true, delay: 20 * time.Millisecond, only: []string{"doze", "limit", "river", "graphile", "pgboss", "pgmq"}, run: drains(10_000, 100)},
	{name: "drain_million", unit: "jobs/s", long: true, only: []string{"doze", "limit", "pgmq"}, run: drains(1_000_000, 100)},
	{name: "drain_wal", unit: "WAL bytes/job", less: true, run: wal(20_000)},
	{name: "drain_grown", unit: "jobs/s", long: true, only: []string{"doze"}, run: grown},
	{name: "enqueue", unit: "jobs/s", run: enqueues(8000)},
	{name: "enqueue_bare", unit: "jobs/s", only: []string{"doze"}, run: enqueuesBare(8000)},
	{name: "bulk", unit: "jobs/s", run: bulk(100_000)},
	{name: "bulk_unnest", unit: "jobs/s", only: []string{"limit"}, run: bulkUnnest(100_000)},
	{name: "cold_start", unit: "ms", less: true, only: coldOnes, run: cold(true)},
	{name: "cold_exit", unit: "ms", less: true, only: coldOnes, run: cold(false)},
	{name: "latency_p50", unit: "ms", less: true, run: latency(0.5)},
	{name: "latency_p99", unit: "ms", less: true, run: latency(0.99)},
	{name: "pinned", unit: "jobs waiting at the end", less: true, long: true, only: []string{"doze", "limit", "river"}, run: pinned},
	{name: "pinned_single", unit: "times as long at the end", less: true, long: true, only: []string{"doze"}, run: pinnedSingle},
}

func measureNames() (all []string) {
	for _, m := range measures {
		all = append(all, m.name)
	}
	return all
}

func longOnes() []string {
	return []string{"drain_20ms", "drain_million", "drain_grown", "pinned", "pinned_single"}
}

// size is n, or little of it for a short run.
func size(n int) int {
	if *short {
		return max(n/50, 100)
	}
	return n
}

// timed is how long do took, by the contender's own clock if it runs elsewhere.
func timed(c contender, do func() error) (time.Duration, error) {
	began := time.Now()
	err := do()
	took := time.Since(began)
	if own, ok := c.(interface{ Took() time.Duration }); ok {
		took = own.Took()
	}
	return took, err
}

// fill adds jobs that wait, has the server write them out, and gathers statistics, as autovacuum does after a while.
func (b *bench) fill(ctx context.Context, c contender, url string, n int) error {
	if err := c.Bulk(ctx, n); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, "VACUUM ANALYZE"); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "CHECKPOINT")
	return err
}

func drains(n, bytes int) func(context.Context, *bench, contender, string) (float64, error) {
	return func(ctx context.Context, b *bench, c contender, url string) (float64, error) {
		n := size(n)
		if bytes != 100 {
			s, ok := c.(sizer)
			if !ok {
				return 0, missing("its payload is not to be chosen")
			}
			s.PayloadSize(bytes)
		}
		if err := b.fill(ctx, c, url, n); err != nil {
			return 0, err
		}
		took, err := timed(c, func() error { return c.Drain(ctx, n) })
		return float64(n) / took.Seconds(), err
	}
}

func withHistory(run func(context.Context, *bench, contender, string) (float64, error)) func(context.Context, *bench, contender, string) (float64, error) {
	return func(ctx context.Context, b *bench, c contender, url string) (float64, error) {
		if err := c.(historian).KeepHistory(ctx, true); err != nil {
			return 0, err
		}
		return run(ctx, b, c, url)
	}
}

// wal is what a job leaves in the write-ahead log from its claim to its end.
func wal(n int) func(context.Context, *bench, contender, string) (float64, error) {
	return func(ctx context.Context, b *bench, c contender, url string) (float64, error) {
		n := size(n)
		if err := b.fill(ctx, c, url, n); err != nil {
			return 0, err
		}
		conn, err := pgx.Connect(ctx, b.server.pg.URL())
		if err != nil {
			return 0, err
		}
		defer func() { _ = conn.Close(ctx) }()
		var before string
		if err := conn.QueryRow(ctx, "SELECT pg_current_wal_lsn()::text").Scan(&before); err != nil {
			return 0, err
		}
		if err := c.Drain(ctx, n); err != nil {
			return 0, err
		}
		var written float64
		err = conn.QueryRow(ctx, "SELECT pg_current_wal_lsn() - $1::pg_lsn", before).Scan(&written)
		return written / float64(n), err
	}
}

// enqueues adds jobs one by one, each in a transaction of its own, by eight producers.
func enqueues(n int) func(context.Context, *bench, contender, string) (float64, error) {
	return func(ctx context.Context, _ *bench, c contender, _ string) (float64, error) {
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
		return float64(n) / took.Seconds(), err
	}
}

// enqueuesBare is the same with nothing but an INSERT into Doze's own table: what its enqueue could be at most.
func enqueuesBare(n int) func(context.Context, *bench, contender, string) (float64, error) {
	return func(ctx context.Context, b *bench, c contender, url string) (float64, error) {
		return enqueues(n)(ctx, b, &bare{c.(*dozeQueue)}, url)
	}
}

type bare struct{ *dozeQueue }

func (b *bare) Enqueue(ctx context.Context) error {
	_, err := b.pool.Exec(ctx, "INSERT INTO doze.jobs (id, queue, kind, payload) VALUES ($1, 'default', 'nothing', $2)", newID(), b.payload)
	return err
}

func bulk(n int) func(context.Context, *bench, contender, string) (float64, error) {
	return func(ctx context.Context, _ *bench, c contender, _ string) (float64, error) {
		n := size(n)
		took, err := timed(c, func() error { return c.Bulk(ctx, n) })
		return float64(n) / took.Seconds(), err
	}
}

func bulkUnnest(n int) func(context.Context, *bench, contender, string) (float64, error) {
	return func(ctx context.Context, _ *bench, c contender, _ string) (float64, error) {
		n := size(n)
		took, err := timed(c, func() error { return c.(*limit).unnest(ctx, n) })
		return float64(n) / took.Seconds(), err
	}
}

// latency is from the call that enqueues a job to its start, at 20 a second.
func latency(part float64) func(context.Context, *bench, contender, string) (float64, error) {
	return func(ctx context.Context, _ *bench, c contender, _ string) (float64, error) {
		n := size(400)
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
				return 0, err
			}
			tick := time.NewTicker(50 * time.Millisecond)
			defer tick.Stop()
			for range n {
				<-tick.C
				if err := w.Stamp(ctx, time.Now()); err != nil {
					return 0, err
				}
			}
			select {
			case <-all:
			case <-time.After(30 * time.Second):
				return 0, fmt.Errorf("%d of %d jobs have started", len(waits), n)
			}
			stop()
		case interface {
			Latencies(context.Context, int) ([]time.Duration, error)
		}:
			var err error
			if waits, err = w.Latencies(ctx, n); err != nil {
				return 0, err
			}
		default:
			return 0, missing("it is not woken")
		}
		return quantile(waits, part).Seconds() * 1000, nil
	}
}

func quantile(all []time.Duration, part float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[min(int(float64(len(all))*part), len(all)-1)]
}

// grown is a drain beside a million jobs for later, a million done ones, 100,000 failed ones and 1,000 queues.
func grown(ctx context.Context, b *bench, c contender, url string) (float64, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close(ctx) }()
	for _, sql := range []string{
		`INSERT INTO doze.jobs (id, queue, kind, run_at, payload) SELECT gen_random_uuid(), CASE WHEN i % 2 = 0 THEN 'default' ELSE 'q' || i % 1000 END, 'later', now() + i * interval '1 second', '{}'
		   FROM generate_series(1, $1::integer) i`,
		`INSERT INTO doze.history (id, bucket, queue, kind, state, priority, run_at, attempts, failures, max_attempts, reaps, created_at, finished_at, payload)
		 SELECT gen_random_uuid(), doze.history_bucket('done'), 'default', 'nothing', 'done', 0, now(), 1, 0, 10, 0, now(), now(), '{}' FROM generate_series(1, $1::integer)`,
		`INSERT INTO doze.history (id, bucket, queue, kind, state, priority, run_at, attempts, failures, max_attempts, reaps, created_at, finished_at, payload)
		 SELECT gen_random_uuid(), -1, 'default', 'nothing', 'failed', 0, now(), 1, 1, 1, 0, now(), now(), '{}' FROM generate_series(1, $1::integer / 10)`,
		`INSERT INTO doze.queues (queue) SELECT 'q' || i FROM generate_series(1, 1000) i WHERE $1::integer > 0 ON CONFLICT DO NOTHING`,
	} {
		if _, err := conn.Exec(ctx, sql, size(1_000_000)); err != nil {
			return 0, err
		}
	}
	if _, err := conn.Exec(ctx, "VACUUM ANALYZE"); err != nil {
		return 0, err
	}
	return drains(50_000, 100)(ctx, b, c, url)
}
