package resident_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dozequeue/doze/handler"
	"github.com/dozequeue/doze/internal/dbtest"
	"github.com/dozequeue/doze/internal/pgdev"
	"github.com/dozequeue/doze/internal/sleepy"
	"github.com/dozequeue/doze/migrations"
	"github.com/dozequeue/doze/queue"
	"github.com/dozequeue/doze/resident"
)

// suspends is a world whose database suspends after a while without a query.
func suspends(t *testing.T, after time.Duration) (*world, *sleepy.Proxy) {
	t.Helper()
	dir := t.TempDir()
	if !pgdev.Reachable(dir) {
		var err error
		if dir, err = os.MkdirTemp("/var/tmp", "doze-test-"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	p, err := sleepy.New(sleepy.Config{Server: pgdev.Config{DataDir: dir + "/postgres", Durable: true}, Timeout: after})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	w := &world{t: t, schema: "doze", pool: dbtest.Pool(t, dbtest.At(p.URL("postgres")), dbtest.Configure(func(c *pgxpool.Config) {
		c.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return true } // a suspend has closed it
	}))}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	w.ctx = ctx
	w.store, err = queue.NewStore(w.schema)
	w.must(err)
	w.must(w.pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
		_, err := migrations.Up(ctx, c.Conn(), w.schema)
		return err
	}))
	return w, p
}

func TestOnce_LetsTheDatabaseSleepAfterIt(t *testing.T) {
	t.Parallel()
	w, p := suspends(t, 300*time.Millisecond)
	r := newRan()
	mux := handler.NewMux()
	mux.Handle("k", r.handle)
	drainer, err := handler.New(w.pool, mux, handler.Config{})
	w.must(err)
	id := w.slip("mail", "k", 0)
	w.must(p.Wait(w.ctx, sleepy.Asleep))
	for round := range 3 {
		_, err := resident.Once(w.ctx, w.pool, drainer, "")
		w.must(err)
		if round == 0 {
			w.next(r, id)
		}
		w.must(p.Wait(w.ctx, sleepy.Asleep)) // with the pool's connections open
	}
	if s := p.Status(); s.Wakes != 4 {
		t.Errorf("%d wakes, want 4: the first, and one for each run", s.Wakes)
	}
	t.Logf("awake %v in 4 wakes", p.Intervals())
}

// By the rule of queries a suspend closes the connection that listens, which is opened again at once.
func TestRun_NeverLetsTheDatabaseSleepForLong(t *testing.T) {
	t.Parallel()
	w, p := suspends(t, 300*time.Millisecond)
	r := newRan()
	w.must(p.Wait(w.ctx, sleepy.Asleep))
	cfg := resident.Config{URL: p.URL("postgres"), Fallback: time.Hour}
	h := w.start(cfg, handler.Config{}, map[string]handler.RawFunc{"k": r.handle})
	before := p.Status().Wakes
	for range 3 {
		h.begun()
	}
	if s := p.Status(); s.Wakes < before+2 {
		t.Errorf("%d wakes in which nobody asked for anything, want 2 and more", s.Wakes-before)
	}
	id := w.slip("mail", "k", 0)
	w.next(r, id) // found when it comes back
}
