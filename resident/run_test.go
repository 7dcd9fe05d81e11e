package resident_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dozequeue/doze/enqueue"
	"github.com/dozequeue/doze/handler"
	"github.com/dozequeue/doze/internal/dbtest"
	"github.com/dozequeue/doze/migrations"
	"github.com/dozequeue/doze/queue"
	"github.com/dozequeue/doze/resident"
	"github.com/dozequeue/doze/trigger/notify"
)

func TestRun_RunsAJobWhenItIsNotified(t *testing.T) {
	t.Parallel()
	w, r := newWorld(t), newRan()
	h := w.start(w.settings(), handler.Config{}, map[string]handler.RawFunc{"k": r.handle}).begun()
	for _, on := range []string{"mail", "images", "mail"} {
		id := w.add("k", enqueue.On(on))
		w.next(r, id)
		w.becomes(id, queue.Done)
	}
	h.stop()
	if err := receive(w, h.ended); err != nil {
		t.Errorf("Run returned %v, want nil", err)
	}
	w.until("nobody listens", func() bool { return len(w.listeners()) == 0 }) // the server may take a moment to see it
}

// All but the connection that listens goes through a transaction-mode pooler.
func TestRun_WorksWithAPoolBehindAPooler(t *testing.T) {
	t.Parallel()
	w, r := newWorld(t), newRan()
	w.pool = dbtest.Pool(t, dbtest.At(dbtest.PgBouncer(t, dbtest.URL(t))), dbtest.Mode(pgx.QueryExecModeCacheDescribe))
	var err error
	w.notify, err = notify.New(w.pool, notify.Config{Schema: w.schema})
	w.must(err)
	w.jobs, err = enqueue.New(w.pool, w.notify, enqueue.Config{Schema: w.schema, Alarm: w.notify})
	w.must(err)
	w.start(w.settings(), handler.Config{}, map[string]handler.RawFunc{"k": r.handle}).begun()
	for range 5 {
		w.next(r, w.add("k"))
	}
	w.next(r, w.add("k", enqueue.In(time.Second)))
}

func TestRun_DrainsAtItsStartWhatIsThere(t *testing.T) {
	t.Parallel()
	w, r := newWorld(t), newRan()
	for _, on := range []string{"mail", "images"} { // no ring made their rows
		w.slip(on, "k", 0)
	}
	w.start(w.settings(), handler.Config{}, map[string]handler.RawFunc{"k": r.handle})
	receive(w, r.ids)
	receive(w, r.ids)
}

func TestRun_ListensAgainAndDrainsWhatCameMeanwhile(t *testing.T) {
	t.Parallel()
	w, r, p := newWorld(t), newRan(), newProxy(t)
	cfg := w.settings()
	cfg.URL = p.url
	h := w.start(cfg, handler.Config{}, map[string]handler.RawFunc{"k": r.handle}).begun()
	before := w.listeners()
	if len(before) != 1 {
		t.Fatalf("%d sessions listen, want 1", len(before))
	}
	p.set(true, false) // it cannot come back before the jobs are there
	w.int(`SELECT pg_terminate_backend($1::integer)::integer`, before[0])
	w.until("nobody listens", func() bool { return len(w.listeners()) == 0 })
	id := w.add("k")
	late := w.slip("other", "k", 0)
	p.set(false, false)
	got := map[uuid.UUID]bool{receive(w, r.ids): true, receive(w, r.ids): true}
	if !got[id] || !got[late] {
		t.Errorf("%v ran, want %s and %s", got, id, late)
	}
	h.begun()
	w.next(r, w.add("k"))
}

func TestRun_ReplacesAConnectionThatIsDeadWithoutAWord(t *testing.T) {
	t.Parallel()
	w, r, p := newWorld(t), newRan(), newProxy(t)
	cfg := w.settings().Hearing(time.Second)
	cfg.URL, cfg.Fallback = p.url, 50*time.Millisecond
	h := w.start(cfg, handler.Config{}, map[string]handler.RawFunc{"k": r.handle}).begun()
	p.set(false, true)
	h.begun() // again
	w.next(r, w.add("k"))
	if !strings.Contains(h.log.String(), "does not arrive") {
		t.Error("the log does not say why it connected again")
	}
}

func TestRun_LooksForWhatNoNotificationCameFor(t *testing.T) {
	t.Parallel()
	w, r := newWorld(t), newRan()
	cfg := w.settings()
	cfg.Fallback = 50 * time.Millisecond
	w.start(cfg, handler.Config{}, map[string]handler.RawFunc{"k": r.handle}).begun()
	for range 3 {
		w.next(r, w.slip("mail", "k", 0))
	}
}

func TestRun_LooksWhileItCannotListen(t *testing.T) {
	t.Parallel()
	w, r, p := newWorld(t), newRan(), newProxy(t)
	cfg := w.settings()
	cfg.URL, cfg.Fallback = p.url, 50*time.Millisecond
	h := w.start(cfg, handler.Config{}, map[string]handler.RawFunc{"k": r.handle}).begun()
	p.set(true, false)
	w.until("nobody listens", func() bool { return len(w.listeners()) == 0 })
	w.next(r, w.slip("mail", "k", 0))
	if strings.Contains(h.log.String(), "level=ERROR") {
		t.Error("errors in the log")
	}
}

func TestRun_WakesDelayedJobsAndRetriesByItself(t *testing.T) {
	t.Parallel()
	w, r := newWorld(t), newRan()
	var tries atomic.Int32
	w.start(w.settings(), handler.Config{Backoff: func(int) time.Duration { return 1200 * time.Millisecond }}, map[string]handler.RawFunc{
		"k": r.handle,
		"second": func(ctx context.Context, job *queue.Job) error {
			if tries.Add(1) == 1 {
				return errors.New("not yet")
			}
			return r.handle(ctx, job)
		},
	}).begun()
	retried := w.add("second", enqueue.On("retries"))
	w.next(r, retried)
	begun := time.Now()
	delayed := w.add("k", enqueue.On("mail"), enqueue.In(1500*time.Millisecond))
	w.next(r, delayed)
	if took := time.Since(begun); took < 1500*time.Millisecond {
		t.Errorf("a job with a delay of 1.5 s ran after %v", took)
	}
}

// The alarm of a process that died is in nobody's memory, and its record must not keep others from theirs.
func TestRun_TakesOverTheAlarmsOfAProcessThatDied(t *testing.T) {
	t.Parallel()
	w, r := newWorld(t), newRan()
	id := w.slip("mail", "k", 2*time.Second)
	w.must(w.store.EnsureQueue(w.ctx, w.pool, "mail"))
	died := queue.AlarmFunc(func(context.Context, queue.Wake, time.Duration) error { return nil })
	if set, err := w.store.SetNextAlarm(w.ctx, w.pool, died, "mail"); err != nil || !set {
		t.Fatalf("set %v, %v", set, err)
	}
	w.start(w.settings(), handler.Config{}, map[string]handler.RawFunc{"k": r.handle})
	w.next(r, id)
}

func TestRun_GivesJobsBackAtItsEnd(t *testing.T) {
	t.Parallel()
	w, r := newWorld(t), newRan()
	begun := make(chan struct{}, 2)
	holds := func(ctx context.Context, _ *queue.Job) error {
		begun <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}
	h := w.start(w.settings(), handler.Config{Concurrency: 1}, map[string]handler.RawFunc{"k": holds}).begun()
	first, second := w.add("k"), w.add("k")
	delayed := w.add("k", enqueue.On("mail"), enqueue.In(3*time.Second))
	receive(w, begun)

	h.stop()
	if err := receive(w, h.ended); err != nil {
		t.Errorf("Run returned %v, want nil", err)
	}
	for _, id := range []uuid.UUID{first, second} {
		if job := w.becomes(id, queue.Queued); job.Failures != 0 || job.Reaps != 0 {
			t.Errorf("a job in hand came back with %d failures and %d reaps, want none", job.Failures, job.Reaps)
		}
	}
	w.start(w.settings(), handler.Config{}, map[string]handler.RawFunc{"k": r.handle})
	receive(w, r.ids)
	receive(w, r.ids)
	w.next(r, delayed)
}

func TestRun_TellsOthersOfWhatItLeaves(t *testing.T) {
	t.Parallel()
	w, r := newWorld(t), newRan()
	begun := make(chan struct{}, 1)
	var held atomic.Bool
	kinds := map[string]handler.RawFunc{"k": func(ctx context.Context, job *queue.Job) error {
		if !held.Swap(true) {
			begun <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		}
		return r.handle(ctx, job)
	}}
	ends := w.start(w.settings(), handler.Config{}, kinds).begun()
	id := w.add("k")
	receive(w, begun)
	w.start(w.settings(), handler.Config{}, kinds).begun() // after it has looked
	delayed := w.slip("mail", "k", 1500*time.Millisecond)
	ends.stop()
	if err := receive(w, ends.ended); err != nil {
		t.Errorf("Run returned %v, want nil", err)
	}
	w.next(r, id)
	w.next(r, delayed)
}

func TestRun_RefusesAConnectionThatDoesNotHear(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]func(testing.TB) string{
		"PgBouncer":        func(t testing.TB) string { return dbtest.PgBouncer(t, dbtest.URL(t)) },
		"another database": dbtest.Database,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			cfg := w.settings().Hearing(2 * time.Second)
			cfg.URL = url(t)
			if err := receive(w, w.start(cfg, handler.Config{}, nil).ended); !errors.Is(err, resident.ErrDeaf) {
				t.Errorf("Run returned %v, want ErrDeaf", err)
			}
		})
	}
}

func TestRun_RefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	for name, c := range map[string]struct {
		change func(w *world, cfg *resident.Config)
		want   string
	}{
		"no URL":            {func(_ *world, c *resident.Config) { c.URL = "" }, "URL: empty"},
		"no URL at all":     {func(_ *world, c *resident.Config) { c.URL = "postgres://me:" + secret + "@host:port/x" }, "want postgres://"},
		"negative Fallback": {func(_ *world, c *resident.Config) { c.Fallback = -1 }, "Fallback"},
		"negative Drains":   {func(_ *world, c *resident.Config) { c.Drains = -1 }, "Drains"},
		"no such database": {func(_ *world, c *resident.Config) {
			c.URL = strings.Replace(c.URL, "/postgres", "/nowhere", 1)
		}, "nowhere"},
		"no tables": {func(w *world, c *resident.Config) { c.Schema = w.schema + "_x" }, "relation"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			cfg := w.settings()
			c.change(w, &cfg)
			err := receive(w, w.start(cfg, handler.Config{}, nil).ended)
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), secret) {
				t.Errorf("Run returned %v, want an error with %q and no password", err, c.want)
			}
		})
	}
}

func TestRun_StartsABoundedNumberOfDrainsInAFlood(t *testing.T) {
	t.Parallel()
	w, r := newWorld(t), newRan()
	begun, release := make(chan struct{}, 10), make(chan struct{})
	cfg := w.settings()
	cfg.Drains = 2
	h := w.start(cfg, handler.Config{Concurrency: 1, BatchSize: 1}, map[string]handler.RawFunc{"k": r.handle, "held": func(context.Context, *queue.Job) error {
		begun <- struct{}{}
		<-release
		return nil
	}}).begun()
	w.add("held")
	receive(w, begun)
	w.until("the drain is busy", func() bool { return w.int(`SELECT count(*) FROM doze.slots WHERE state = 'busy'`) == 1 })
	w.add("held")
	receive(w, begun) // so that two drains run
	for range 500 {
		w.must(w.notify.Fire(w.ctx, queue.Wake{Queue: "default"}))
	}
	w.next(r, w.add("k", enqueue.On("fence"))) // it has heard all that was before
	close(release)
	h.stop()
	if err := receive(w, h.ended); err != nil {
		t.Errorf("Run returned %v, want nil", err)
	}
	// Two, one for the fence, one for all that waited, and what drains asked for themselves.
	if n := strings.Count(h.log.String(), "msg=drained"); n > 8 {
		t.Errorf("500 wakes made %d drains, want a handful", n)
	}
}

func TestRun_EndsWhenAHandlerDoesNotReturn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	forever := make(chan struct{})
	t.Cleanup(func() { close(forever) })
	h := w.start(w.settings(), handler.Config{Timeout: 50 * time.Millisecond, Grace: 50 * time.Millisecond}, map[string]handler.RawFunc{
		"k": func(context.Context, *queue.Job) error { <-forever; return nil },
	}).begun()
	w.add("k")
	if err := receive(w, h.ended); !errors.Is(err, handler.ErrTainted) {
		t.Errorf("Run returned %v, want ErrTainted", err)
	}
}

func TestRun_TakesNoNoticeOfOtherMessages(t *testing.T) {
	t.Parallel()
	w, r := newWorld(t), newRan()
	h := w.start(w.settings(), handler.Config{}, map[string]handler.RawFunc{"k": r.handle}).begun()
	for _, message := range []string{"what", `{"v":2,"queue":"mail"}`, `{"v":1,"queue":"no queue"}`, `{"queue":5}`} {
		if _, err := w.pool.Exec(w.ctx, `SELECT pg_notify($1, $2)`, w.schema+"_wake", message); err != nil {
			t.Fatal(err)
		}
	}
	w.must(w.notify.Probe(w.ctx, "of another process"))
	w.next(r, w.add("k"))
	if n := strings.Count(h.log.String(), "a notification is no wake"); n != 4 {
		t.Errorf("the log tells of %d messages, want 4", n)
	}
}

func TestOnce_DrainsEachQueueThatHasDueWork(t *testing.T) {
	t.Parallel()
	w, r := newWorld(t), newRan()
	mux := handler.NewMux()
	mux.Handle("k", r.handle)
	drainer, err := handler.New(w.pool, mux, handler.Config{Schema: w.schema})
	w.must(err)
	want := map[string]int{"mail": 2, "images": 1, "a": 1, "b": 1, "c": 1, "d": 1}
	for name, n := range want {
		for range n {
			w.slip(name, "k", 0)
		}
	}
	w.slip("later", "k", time.Hour)
	reports, err := resident.Once(w.ctx, w.pool, drainer, w.schema)
	w.must(err)
	for _, report := range reports {
		if report.Done != want[report.Queue] {
			t.Errorf("queue %s: %d done, want %d", report.Queue, report.Done, want[report.Queue])
		}
		delete(want, report.Queue)
	}
	if len(want) > 0 {
		t.Errorf("not drained: %v", want)
	}
	if reports, err = resident.Once(w.ctx, w.pool, drainer, w.schema); err != nil || len(reports) != 0 {
		t.Errorf("again: %v, %v; want nothing", reports, err)
	}
}

func TestOnce_ReportsWhatFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	drainer, err := handler.New(w.pool, handler.NewMux(), handler.Config{Schema: w.schema})
	w.must(err)
	w.slip("mail", "k", 0)
	w.must(w.store.EnsureQueue(w.ctx, w.pool, "mail"))
	if _, err := w.pool.Exec(w.ctx, queue.Qualify(`ALTER TABLE doze.slots RENAME TO gone`, w.schema)); err != nil {
		t.Fatal(err)
	}
	if _, err := resident.Once(w.ctx, w.pool, drainer, w.schema); err == nil || !strings.Contains(err.Error(), `drain queue "mail"`) {
		t.Errorf("got %v, want an error that names the queue", err)
	}
	if _, err := resident.Once(w.ctx, w.pool, drainer, w.schema+"_x"); queue.Classify(err) != queue.Misconfigured {
		t.Errorf("without tables: %v", err)
	}
}

// A login with the drain's role and no other, that is.
func TestRun_NeedsNoRightsButADrains(t *testing.T) {
	t.Parallel()
	admin := dbtest.Pool(t)
	var w *world
	t.Cleanup(func() { // after the schema is dropped, whose tables' rights hold the roles
		for _, role := range []string{"_enqueue", "_drain", "_sweep", "_read", "_admin"} {
			if _, err := admin.Exec(context.Background(), "DROP ROLE IF EXISTS "+w.schema+role); err != nil && !t.Failed() {
				t.Error(err)
			}
		}
	})
	w = newWorld(t)
	r := newRan()
	w.must(w.pool.AcquireFunc(w.ctx, func(c *pgxpool.Conn) error { return migrations.Grant(w.ctx, c.Conn(), w.schema) }))
	all := w.pool
	limited := dbtest.Pool(t, dbtest.Configure(func(c *pgxpool.Config) {
		c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, "SET ROLE "+w.schema+"_drain")
			return err
		}
	}))
	w.must(w.store.EnsureQueue(w.ctx, all, "mail"))
	w.slip("mail", "k", 0)
	w.slip("no-row", "k", 0) // which this role makes
	w.pool = limited
	cfg := w.settings()
	cfg.Fallback = 50 * time.Millisecond
	h := w.start(cfg, handler.Config{}, map[string]handler.RawFunc{"k": r.handle})
	w.pool = all
	receive(w, r.ids)
	receive(w, r.ids)
	h.begun()
	w.next(r, w.add("k", enqueue.On("mail")))
	delayed := w.slip("mail", "k", 1200*time.Millisecond)
	w.next(r, delayed)
}

// A wake for which there is no room names the alarm of a later job, which only a drain that is told of it takes down
// and sets in this process.
func TestRun_KeepsAWakeThatThereIsNoRoomFor(t *testing.T) {
	t.Parallel()
	w, r := newWorld(t), newRan()
	begun, release := make(chan struct{}, 1), make(chan struct{})
	cfg := w.settings()
	cfg.Drains = 1
	w.start(cfg, handler.Config{}, map[string]handler.RawFunc{"k": r.handle, "held": func(context.Context, *queue.Job) error {
		begun <- struct{}{}
		<-release
		return nil
	}}).begun()
	w.add("held")
	receive(w, begun)
	delayed := w.add("k", enqueue.In(1200*time.Millisecond))
	w.next(r, w.add("k", enqueue.On("fence"))) // it has heard all that was before
	close(release)
	w.next(r, delayed)
}
