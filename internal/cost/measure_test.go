package cost_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dozequeue/doze/enqueue"
	"github.com/dozequeue/doze/handler"
	"github.com/dozequeue/doze/internal/pgdev"
	"github.com/dozequeue/doze/migrations"
	"github.com/dozequeue/doze/queue"
)

// BenchmarkPerJob measures what docs/cost.md says of one job: statements, round trips and bytes of WAL, and the
// time of the function around its jobs, on a durable server of its own. A drain connects anew, as a function does
// that starts cold, and that is among its round trips.
//
//	go test ./internal/cost -run '^$' -bench PerJob -benchtime 200x
func BenchmarkPerJob(b *testing.B) {
	ctx := b.Context()
	dir, err := os.MkdirTemp("", "doze-cost-")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { // the server may run as another user
		b.Fatal(err)
	}
	server, err := pgdev.Start(ctx, pgdev.Config{DataDir: filepath.Join(dir, "postgres"), Durable: true})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = server.Stop(context.WithoutCancel(ctx)) })

	var traffic traffic
	cfg, err := pgxpool.ParseConfig(server.URL())
	if err != nil {
		b.Fatal(err)
	}
	cfg.ConnConfig.DialFunc = traffic.dial(cfg.ConnConfig.DialFunc)
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(pool.Close)
	if err := pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
		_, err := migrations.Up(ctx, c.Conn(), "")
		return err
	}); err != nil {
		b.Fatal(err)
	}
	watch, err := pgxpool.New(ctx, server.URL()) // is not counted
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(watch.Close)

	mux := handler.NewMux()
	mux.Handle("nothing", func(context.Context, *queue.Job) error { return nil })
	drainer, err := handler.New(pool, mux, handler.Config{})
	if err != nil {
		b.Fatal(err)
	}
	client, err := enqueue.New(pool, queue.TriggerFunc(func(context.Context, queue.Wake) error { return nil }), enqueue.Config{})
	if err != nil {
		b.Fatal(err)
	}
	payload := json.RawMessage(`{"to":"` + string(bytes.Repeat([]byte("x"), 90)) + `"}`)

	for _, jobs := range []int{1, 10, 100, 10_000} {
		for _, first := range []bool{false, true} {
			if first && jobs != 1 {
				continue
			}
			name := "jobs=" + strconv.Itoa(jobs)
			if first {
				name += "/after-checkpoint"
			}
			b.Run(name, func(b *testing.B) {
				var enqueued, drained counts
				entries := make([]enqueue.RawEntry, jobs)
				for i := range entries {
					entries[i] = enqueue.RawEntry{Kind: "nothing", Payload: payload}
				}
				for range b.N {
					if first {
						if _, err := watch.Exec(ctx, "CHECKPOINT"); err != nil {
							b.Fatal(err)
						}
					}
					enqueued.add(b, &traffic, watch, func() error {
						_, err := client.AddJobs(ctx, entries)
						return err
					})
					pool.Reset()
					drained.add(b, &traffic, watch, func() error {
						done, err := drainer.Drain(ctx, queue.Wake{Version: 1, Queue: "default"})
						if err == nil && done.Done != jobs {
							err = fmt.Errorf("%d jobs done, want %d", done.Done, jobs)
						}
						return err
					})
				}
				enqueued.report(b, "enqueue", jobs)
				drained.report(b, "drain", jobs)
			})
		}
	}
}

// counts is what so many rounds took.
type counts struct {
	statements, commits, trips, wal int
	took                            time.Duration
}

func (c *counts) add(b *testing.B, t *traffic, watch *pgxpool.Pool, do func() error) {
	b.Helper()
	wal := func() (at int) {
		if err := watch.QueryRow(b.Context(), "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint").Scan(&at); err != nil {
			b.Fatal(err)
		}
		return at
	}
	from := wal()
	t.reset()
	began := time.Now()
	if err := do(); err != nil {
		b.Fatal(err)
	}
	c.took += time.Since(began)
	t.mu.Lock()
	c.statements, c.commits, c.trips = c.statements+t.statements, c.commits+t.syncs, c.trips+t.trips
	t.mu.Unlock()
	c.wal += wal() - from
}

func (c *counts) report(b *testing.B, who string, jobs int) {
	per := float64(b.N * jobs)
	b.ReportMetric(float64(c.statements)/per, who+"-statements/job")
	b.ReportMetric(float64(c.commits)/per, who+"-transactions/job")
	b.ReportMetric(float64(c.trips)/per, who+"-trips/job")
	b.ReportMetric(float64(c.wal)/per, who+"-WAL-B/job")
	b.ReportMetric(float64(c.took.Microseconds())/1000/per, who+"-ms/job")
}

// traffic counts what is sent to the server.
type traffic struct {
	mu                       sync.Mutex
	statements, syncs, trips int
	writing                  bool
}

func (t *traffic) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.statements, t.syncs, t.trips, t.writing = 0, 0, 0, false
}

func (t *traffic) dial(dial pgconn.DialFunc) pgconn.DialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &counted{Conn: conn, traffic: t}, nil
	}
}

type counted struct {
	net.Conn
	traffic *traffic
	rest    []byte // of a message
	started bool
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.traffic.mu.Lock()
		if c.traffic.writing {
			c.traffic.trips++
		}
		c.traffic.writing = false
		c.traffic.mu.Unlock()
	}
	return n, err
}

func (c *counted) Write(p []byte) (int, error) {
	c.traffic.mu.Lock()
	c.traffic.writing = true
	c.rest = append(c.rest, p...)
	for {
		kind := 1 // a message's type comes first, but not at the start
		if !c.started {
			kind = 0
		}
		if len(c.rest) < kind+4 {
			break
		}
		length := kind + int(binary.BigEndian.Uint32(c.rest[kind:]))
		if len(c.rest) < length {
			break
		}
		if kind == 1 {
			switch c.rest[0] {
			case 'E', 'Q':
				c.traffic.statements++
			case 'S':
				c.traffic.syncs++
			}
		}
		c.started = true // the server of a test is asked for no TLS
		c.rest = c.rest[length:]
	}
	c.traffic.mu.Unlock()
	return c.Conn.Write(p)
}
