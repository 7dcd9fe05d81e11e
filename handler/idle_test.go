package handler_test

import (
	"context"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dozequeue/doze/handler"
	"github.com/dozequeue/doze/internal/dbtest"
	"github.com/dozequeue/doze/migrations"
	"github.com/dozequeue/doze/queue"
)

// Nothing to do, nothing done: after the last drain there is no statement, and with the pool closed no
// connection, although a job waits for its time and the trigger, the alarm and the drainer live on. It is
// watched from another database for a moment, or for DOZE_IDLE_WINDOW.
func TestIdle_NoStatementAndNoConnectionAfterTheLastDrain(t *testing.T) {
	t.Parallel()
	window := 300 * time.Millisecond
	if text := os.Getenv("DOZE_IDLE_WINDOW"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatal(err)
		}
		window = d
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute+4*window)
	defer cancel()
	watch := dbtest.Pool(t, dbtest.MaxConns(1))
	own := dbtest.Database(t)
	u, err := url.Parse(own)
	if err != nil {
		t.Fatal(err)
	}
	database := strings.TrimPrefix(u.Path, "/")
	pool := dbtest.Pool(t, dbtest.At(own))
	w := &world{t: t, ctx: ctx, name: "doze", pool: pool}
	w.store, err = queue.NewStore("")
	w.must(err)
	w.with(func(conn *pgx.Conn) {
		_, err := migrations.Up(ctx, conn, "doze")
		w.must(err)
	})
	d := w.drainer(kinds(map[string]handler.RawFunc{"k": nothing, "bad": fails}), handler.Config{Backoff: later})
	p := handler.NewInProcess(d, 0).Bind()
	for range 20 {
		w.enqueue(newJob("k"), p)
	}
	w.enqueue(newJob("bad"), p)
	w.add("k", delayed(time.Hour))
	w.must(p.Fire(ctx, wakeQ))
	w.must(p.Wait(ctx))
	if n := w.done(); n != 20 {
		t.Fatalf("%d done", n)
	}
	if n := w.int(`SELECT count(*) FROM doze.bells WHERE armed_at IS NOT NULL`); n != 1 {
		t.Errorf("%d alarms are set", n)
	}

	// A backend that is busy has changed its state since it was last idle; an idle one reports its
	// figures when it ends at the latest.
	states := func() (all string) {
		w.t.Helper()
		w.must(watch.QueryRow(ctx, `SELECT coalesce(string_agg(pid || ' ' || state || ' ' || state_change, ', ' ORDER BY pid), '')
			FROM pg_stat_activity WHERE datname = $1 AND backend_type = 'client backend'`, database).Scan(&all))
		return all
	}
	rest := func() {
		timer := time.NewTimer(window)
		defer timer.Stop()
		<-timer.C // the time that is looked at
	}
	before := states()
	rest()
	if after := states(); after != before || strings.Contains(before, "active") {
		t.Errorf("with the pool open, the backends were\n%s\nand are\n%s", before, after)
	}

	pool.Close()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for states() != "" { // backends end in their own time
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("a connection stays open: " + states())
		}
	}
	type figures struct{ commits, rollbacks, sessions int64 }
	read := func() (f figures) {
		w.t.Helper()
		w.must(watch.QueryRow(ctx, `SELECT xact_commit, xact_rollback, sessions FROM pg_stat_database WHERE datname = $1`, database).
			Scan(&f.commits, &f.rollbacks, &f.sessions))
		return f
	}
	first := read()
	if first.commits == 0 || first.sessions == 0 {
		t.Errorf("the figures do not count: %+v", first)
	}
	rest()
	// No statement without a session. What is committed without one is autovacuum's.
	last := read()
	if last.sessions != first.sessions || states() != "" {
		t.Errorf("with the pool closed, the database did %+v and then %+v; connections: %s", first, last, states())
	}
	t.Logf("watched for %v with the pool open and %v with it closed: %+v and then %+v", window, window, first, last)
	w.must(p.Close(ctx))
}

// turns counts how often connections turn from writing to reading: round trips.
type turns struct {
	n       atomic.Int64
	mu      sync.Mutex
	writing bool
}

func (r *turns) dial(dial pgconn.DialFunc) pgconn.DialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &turningConn{Conn: conn, turns: r}, nil
	}
}

type turningConn struct {
	net.Conn
	turns *turns
}

func (c *turningConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.turns.mu.Lock()
		defer c.turns.mu.Unlock()
		if c.turns.writing {
			c.turns.n.Add(1)
		}
		c.turns.writing = false
	}
	return n, err
}

func (c *turningConn) Write(b []byte) (int, error) {
	c.turns.mu.Lock()
	c.turns.writing = true
	c.turns.mu.Unlock()
	return c.Conn.Write(b)
}

func TestRoundTrips_OfADrain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, c := range []struct {
		name string
		jobs int
		kind string
		want int64
	}{
		{"nothing due", 0, "", 2},
		{"one job", 1, "k", 2},
		{"one that fails", 1, "bad", 2},
		{"nine jobs", 9, "k", 2},
		{"a full claim", 10, "k", 3},
	} {
		var trips turns
		pool := dbtest.Pool(t, dbtest.MaxConns(1), dbtest.Configure(func(p *pgxpool.Config) {
			p.ConnConfig.DialFunc = trips.dial(p.ConnConfig.DialFunc)
			p.AfterConnect = func(context.Context, *pgx.Conn) error { trips.n.Store(0); return nil }
		}))
		// A barrier, so that all handlers end together and their jobs are recorded at once.
		var arrived sync.WaitGroup
		arrived.Add(c.jobs)
		meet := func(context.Context, *queue.Job) error { arrived.Done(); arrived.Wait(); return nil }
		if c.jobs > 0 {
			w.addMany(c.jobs, c.kind)
		}
		report := w.drain(w.drainerOn(pool, kinds(map[string]handler.RawFunc{"k": meet, "bad": fails}), handler.Config{Backoff: later}))
		if got := trips.n.Load(); got > c.want || got < 2 || report.Claimed != c.jobs {
			t.Errorf("%s: %d round trips after the connect, want %d; report %+v", c.name, got, c.want, report)
		}
		w.exec(`DELETE FROM doze.jobs`)
	}
}
