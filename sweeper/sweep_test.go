package sweeper_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dozequeue/doze/internal/dbtest"
	"github.com/dozequeue/doze/internal/signature"
	"github.com/dozequeue/doze/migrations"
	"github.com/dozequeue/doze/queue"
	"github.com/dozequeue/doze/sweeper"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// world is one test's schema, with a pool and a trigger that keeps what it gets.
type world struct {
	t     testing.TB
	ctx   context.Context
	name  string
	store *queue.Store
	pool  *pgxpool.Pool

	mu     sync.Mutex
	wakes  []queue.Wake
	alarms []queue.Wake
	fail   bool
}

func newWorld(t testing.TB) *world {
	t.Helper()
	name := dbtest.Schema(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	w := &world{t: t, ctx: ctx, name: name, pool: dbtest.Pool(t)}
	store, err := queue.NewStore(name)
	w.must(err)
	w.store = store
	c, err := w.pool.Acquire(ctx)
	w.must(err)
	defer c.Release()
	_, err = migrations.Up(ctx, c.Conn(), name)
	w.must(err)
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	if _, err := w.pool.Exec(w.ctx, queue.Qualify(sql, w.name), args...); err != nil {
		w.t.Fatalf("%v\nin %s", err, sql)
	}
}

func (w *world) int(sql string, args ...any) int {
	w.t.Helper()
	var n int
	if err := w.pool.QueryRow(w.ctx, queue.Qualify(sql, w.name), args...).Scan(&n); err != nil {
		w.t.Fatalf("%v\nin %s", err, sql)
	}
	return n
}

func (w *world) add(name string, n int, delay time.Duration) []uuid.UUID {
	w.t.Helper()
	var ids []uuid.UUID
	var jobs []queue.NewJob
	for range n {
		id := uuid.Must(uuid.NewV7())
		ids = append(ids, id)
		jobs = append(jobs, queue.NewJob{ID: id, Queue: name, Kind: "k", MaxAttempts: 3, Delay: delay, Payload: json.RawMessage("1")})
	}
	_, err := w.store.Insert(w.ctx, w.pool, jobs, false)
	w.must(err)
	return ids
}

// vanish claims up to n jobs of a queue as a drain that vanishes.
func (w *world) vanish(name string, n int) []queue.Claimed {
	w.t.Helper()
	w.must(w.store.Resume(w.ctx, w.pool, name))
	c, err := w.pool.Acquire(w.ctx)
	w.must(err)
	defer c.Release()
	taken, err := w.store.Start(w.ctx, c.Conn(), queue.Slot{Queue: name, Token: uuid.New(), Lease: time.Hour}, "", n)
	w.must(err)
	if len(taken.Claimed) != n {
		w.t.Fatalf("claimed %d, want %d", len(taken.Claimed), n)
	}
	w.exec(`UPDATE doze.jobs SET locked_until = now() - interval '1 second' WHERE queue = $1 AND token IS NOT NULL`, name)
	w.exec(`UPDATE doze.slots SET locked_until = now() - interval '1 second' WHERE queue = $1 AND token IS NOT NULL`, name)
	return taken.Claimed
}

func (w *world) Fire(_ context.Context, wake queue.Wake) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fail {
		return errors.New("throttled")
	}
	w.wakes = append(w.wakes, wake)
	return nil
}

func (w *world) Set(_ context.Context, wake queue.Wake, _ time.Duration) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fail {
		return errors.New("throttled")
	}
	w.alarms = append(w.alarms, wake)
	return nil
}

func (w *world) sweeper(cfg sweeper.Config) *sweeper.Sweeper {
	w.t.Helper()
	cfg.Schema = w.name
	s, err := sweeper.New(w.pool, cfg)
	w.must(err)
	return s
}

func (w *world) sweep(s *sweeper.Sweeper) sweeper.Swept {
	w.t.Helper()
	swept, err := s.Sweep(w.ctx)
	w.must(err)
	return swept
}

func same(got []string, want ...string) bool { return slices.Equal(got, want) }

func TestSweep_TakesJobsBackFromVanishedDrainsOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add("q", 7, 0)
	claimed := w.vanish("q", 5)
	s := w.sweeper(sweeper.Config{Batch: 2, Trigger: w})
	swept := w.sweep(s)
	if swept.Reaped != 5 || !same(swept.Due, "q") || !same(swept.Fired, "q") {
		t.Errorf("swept %+v", swept)
	}
	if n := w.int(`SELECT count(*) FROM doze.jobs WHERE reaps = 1 AND token IS NULL AND failures = 0`); n != 5 {
		t.Errorf("%d were reaped", n)
	}
	var stale []queue.Outcome
	for _, c := range claimed {
		stale = append(stale, queue.Outcome{ID: c.ID, Attempts: c.Attempts, Token: c.Token, State: queue.Done})
	}
	if held, err := w.store.Finish(w.ctx, w.pool, stale); err != nil || len(held) != 0 {
		t.Errorf("the vanished drain's results: %v, %v", held, err)
	}
	// Again: nothing to reap, and the bell stands for the queue.
	swept = w.sweep(s)
	if swept.Reaped != 0 || !same(swept.Due, "q") || len(swept.Fired) != 0 {
		t.Errorf("swept again %+v", swept)
	}
}

func TestSweep_WakesEachQueueWithDueWorkOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, name := range []string{"due", "paused", "attended", "rung", "later"} {
		w.must(w.store.Resume(w.ctx, w.pool, name))
	}
	w.add("due", 3, 0)
	w.add("without-a-row", 1, 0) // added in a caller's transaction, and never rung for
	w.add("later", 1, time.Hour)
	w.add("paused", 1, 0)
	w.must(w.store.Pause(w.ctx, w.pool, "paused"))
	w.add("attended", 1, 0)
	w.exec(`UPDATE doze.slots SET state = 'open', token = gen_random_uuid(), locked_until = now() + interval '1 minute' WHERE queue = 'attended' AND slot = 1`)
	w.add("rung", 1, 0)
	if rang, err := w.store.Ring(w.ctx, w.pool, "rung", time.Time{}, time.Minute); err != nil || !rang {
		t.Fatal(rang, err)
	}

	s := w.sweeper(sweeper.Config{Trigger: w})
	swept := w.sweep(s)
	if !same(swept.Due, "attended", "due", "rung", "without-a-row") || !same(swept.Fired, "due", "without-a-row") {
		t.Errorf("swept %+v", swept)
	}
	if again := w.sweep(s); len(again.Fired) != 0 {
		t.Errorf("swept again %+v", again)
	}
	for i, name := range []string{"due", "without-a-row"} {
		if i >= len(w.wakes) || w.wakes[i] != (queue.Wake{Version: 1, Queue: name, Reason: queue.ReasonSweep}) {
			t.Errorf("fired %+v", w.wakes)
		}
	}
	w.exec(`UPDATE doze.bells SET bell_until = now() - interval '1 second'`) // nobody came
	if third := w.sweep(s); !same(third.Fired, "due", "rung", "without-a-row") {
		t.Errorf("swept after the bells' end %+v", third)
	}
}

func TestSweep_TakesARingBackThatItCannotFireFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add("q", 1, 0)
	w.add("r", 1, 0)
	s := w.sweeper(sweeper.Config{Trigger: w})
	w.fail = true
	if swept := w.sweep(s); len(swept.Fired) != 0 || !same(swept.Due, "q", "r") {
		t.Errorf("swept %+v", swept)
	}
	if n := w.int(`SELECT count(*) FROM doze.bells WHERE bell_until IS NOT NULL`); n != 0 {
		t.Errorf("%d bells are left set", n)
	}
	w.fail = false
	if swept := w.sweep(s); !same(swept.Fired, "q", "r") {
		t.Errorf("swept %+v", swept)
	}
}

func TestSweep_WithoutATriggerOnlyTells(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add("q", 1, 0)
	if swept := w.sweep(w.sweeper(sweeper.Config{})); !same(swept.Due, "q") || len(swept.Fired) != 0 {
		t.Errorf("swept %+v", swept)
	}
	if n := w.int(`SELECT count(*) FROM doze.bells WHERE bell_until IS NOT NULL`); n != 0 {
		t.Errorf("%d bells are set, and nobody fires for them", n)
	}
}

func TestSweep_SetsMissingAlarms(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, name := range []string{"empty", "later", "paused", "running"} {
		w.must(w.store.Resume(w.ctx, w.pool, name))
	}
	w.add("later", 1, time.Hour)
	w.add("paused", 1, time.Hour)
	w.must(w.store.Pause(w.ctx, w.pool, "paused"))
	w.add("running", 1, 0)
	w.vanish("running", 1)
	w.exec(`UPDATE doze.jobs SET locked_until = now() + interval '1 hour' WHERE queue = 'running'`)
	s := w.sweeper(sweeper.Config{Alarm: w, Trigger: w})
	w.fail = true
	if swept := w.sweep(s); len(swept.Armed) != 0 {
		t.Errorf("armed %v, and the service took none", swept.Armed)
	}
	w.fail = false
	swept := w.sweep(s)
	if !same(swept.Armed, "later", "running") || len(w.alarms) != 2 {
		t.Errorf("swept %+v, alarms %+v", swept, w.alarms)
	}
	for _, a := range w.alarms {
		if n := w.int(`SELECT count(*) FROM doze.bells WHERE queue = $1 AND armed_id::text = $2`, a.Queue, a.Alarm); n != 1 || a.Reason != queue.ReasonAlarm {
			t.Errorf("the alarm %+v is not the one recorded", a)
		}
	}
	w.exec(`UPDATE doze.bells SET armed_at = now() - interval '1 hour' WHERE armed_at IS NOT NULL`) // they never went off
	if third := w.sweep(s); len(third.Armed) != 2 {
		t.Errorf("swept after they were missed %+v", third)
	}
}

// As whoever may sweep and no more, and with nothing in the queue but a schedule: its alarm is kept by a
// process that is gone, say.
func TestSweep_SetsAlarmsWithItsOwnRights(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conn, err := w.pool.Acquire(w.ctx)
	w.must(err)
	w.must(migrations.Grant(w.ctx, conn.Conn(), w.name))
	conn.Release()
	w.add("without-a-row", 1, time.Hour)
	w.must(w.store.EnsureQueue(w.ctx, w.pool, "scheduled"))
	w.must(w.store.PutSchedule(w.ctx, w.pool, queue.Schedule{Name: "s", Queue: "scheduled", Kind: "k", MaxAttempts: 1, Payload: []byte("1"),
		Cron: "* * * * *", TimeZone: "UTC", CatchUp: queue.CatchUpLatest, CatchUpLimit: 1, NextAt: time.Now().Add(time.Hour)}))
	s, err := sweeper.New(dbtest.Pool(t, dbtest.Configure(func(c *pgxpool.Config) {
		c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, "SET ROLE "+w.name+"_sweep")
			return err
		}
	})), sweeper.Config{Schema: w.name, Alarm: w})
	w.must(err)
	if swept := w.sweep(s); !same(swept.Armed, "scheduled", "without-a-row") {
		t.Errorf("swept %+v", swept)
	}
}

func TestSweep_ForgetsWhatIsOld(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := w.add("q", 6, 0)
	for i, c := range w.vanish("q", 6) {
		o := queue.Outcome{ID: c.ID, Attempts: c.Attempts, Token: c.Token, State: queue.Done}
		if i >= 2 {
			o.State, o.Failed = queue.Failed, true
		}
		_, err := w.store.Finish(w.ctx, w.pool, []queue.Outcome{o})
		w.must(err)
	}
	w.exec(`UPDATE doze.history_failed SET finished_at = now() - interval '31 days' WHERE id <> $1::text::uuid`, ids[5].String())
	w.exec(`INSERT INTO doze.keys (kind, key, job_id, hold, expires_at) SELECT 'k', n::text, gen_random_uuid(), interval '0', now() - interval '1 minute' FROM generate_series(1, 5) n`)
	w.exec(`INSERT INTO doze.keys (kind, key, job_id, hold) VALUES ('k', 'live', gen_random_uuid(), interval '0')`)
	swept := w.sweep(w.sweeper(sweeper.Config{Batch: 2}))
	if swept.PrunedFailed != 3 || swept.PrunedKeys != 5 || swept.PrunedDays != 0 {
		t.Errorf("swept %+v", swept)
	}
	if failed, done, keys := w.int(`SELECT count(*) FROM doze.history WHERE state = 'failed'`), w.int(`SELECT count(*) FROM doze.history WHERE state = 'done'`),
		w.int(`SELECT count(*) FROM doze.keys`); failed != 1 || done != 2 || keys != 1 {
		t.Errorf("left are %d failed, %d done, %d keys", failed, done, keys)
	}
	if again := w.sweep(w.sweeper(sweeper.Config{Batch: 2, Keep: -1})); again.PrunedFailed+again.PrunedKeys+again.PrunedDays != 0 {
		t.Errorf("swept again %+v", again)
	}
}

// What does not fit into the budget is left for the next sweep, which gets further.
func TestSweep_GoesOnWhereItsBudgetEnded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec(`INSERT INTO doze.keys (kind, key, job_id, hold, expires_at) SELECT 'k', n::text, gen_random_uuid(), interval '0', now() - interval '1 minute' FROM generate_series(1, 30) n`)
	s := w.sweeper(sweeper.Config{Batch: 10, Budget: time.Nanosecond})
	for left := 20; left >= 0; left -= 10 {
		if swept := w.sweep(s); swept.PrunedKeys != 10 {
			t.Errorf("swept %+v", swept)
		}
		if n := w.int(`SELECT count(*) FROM doze.keys`); n != left {
			t.Errorf("%d keys are left, want %d", n, left)
		}
	}
}

func TestSweep_TwoAtOnceDoEverythingOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for range 5 {
		names := []string{"a", "b", "c", "d"}
		for _, name := range names {
			w.exec(`DELETE FROM doze.jobs WHERE queue = $1`, name)
			w.exec(`UPDATE doze.bells SET bell_until = NULL`)
			w.exec(`UPDATE doze.slots SET state = 'free', token = NULL, locked_until = NULL`)
			w.add(name, 10, 0)
			w.vanish(name, 10)
		}
		s := w.sweeper(sweeper.Config{Trigger: w, Batch: 3})
		reports := make(chan sweeper.Swept, 3)
		var sweeps sync.WaitGroup
		for range 3 {
			sweeps.Go(func() {
				swept, err := s.Sweep(w.ctx)
				if err != nil {
					t.Error(err)
				}
				reports <- swept
			})
		}
		sweeps.Wait()
		close(reports)
		reaped, fired := 0, []string{}
		for r := range reports {
			reaped += r.Reaped
			fired = append(fired, r.Fired...)
		}
		slices.Sort(fired)
		if reaped != 40 || !slices.Equal(fired, names) {
			t.Errorf("reaped %d, fired %v", reaped, fired)
		}
		if n := w.int(`SELECT count(*) FROM doze.jobs WHERE reaps = 1 AND token IS NULL`); n != 40 {
			t.Errorf("%d were reaped once", n)
		}
	}
}

func TestSweep_ExecModesAndPgBouncer(t *testing.T) {
	t.Parallel()
	through := dbtest.PgBouncer(t, dbtest.URL(t))
	dbtest.ExecModes(t, func(t *testing.T, mode pgx.QueryExecMode) {
		for _, at := range []string{dbtest.URL(t), through} {
			w := newWorld(t)
			w.add("q", 3, 0)
			w.vanish("q", 3)
			w.add("r", 1, time.Hour)
			w.pool = dbtest.Pool(t, dbtest.At(at), dbtest.Mode(mode))
			var others sync.WaitGroup
			for range 3 { // so that server connections change hands
				others.Go(func() { w.sweep(w.sweeper(sweeper.Config{})) })
			}
			others.Wait()
			if swept := w.sweep(w.sweeper(sweeper.Config{Trigger: w, Alarm: w})); !same(swept.Fired, "q") || !same(swept.Armed, "r") {
				t.Errorf("swept %+v", swept)
			}
		}
	})
}

func TestSweep_ErrorsOfTheDatabaseAreReported(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s, err := sweeper.New(w.pool, sweeper.Config{Schema: "no_such_schema"})
	w.must(err)
	if _, err := s.Sweep(w.ctx); queue.Classify(err) != queue.Misconfigured {
		t.Errorf("no tables: %v", err)
	}
	ended, cancel := context.WithCancel(w.ctx)
	cancel()
	if _, err := w.sweeper(sweeper.Config{}).Sweep(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that has ended: %v", err)
	}
	for _, c := range []sweeper.Config{
		{Keep: queue.MaxKeep + 1}, {KeepFailed: -1}, {Batch: -1}, {Batch: 100_001}, {Budget: -1}, {Bell: -1}, {Schema: "a b"},
	} {
		if _, err := sweeper.New(w.pool, c); err == nil {
			t.Errorf("%+v: no error", c)
		}
	}
}

func TestReceiver_SweepsWithinTheRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	secret := []byte("0123456789abcdef-secret")
	h, err := w.sweeper(sweeper.Config{Trigger: w}).Receiver(sweeper.ReceiverConfig{Secrets: [][]byte{secret}})
	w.must(err)
	server := httptest.NewServer(h)
	defer server.Close()
	w.add("q", 2, 0)
	post := func(signed bool) (int, string) {
		req, err := http.NewRequestWithContext(w.ctx, http.MethodPost, server.URL, strings.NewReader("anything"))
		w.must(err)
		if signed {
			signature.Sign(secret, []byte("anything"), time.Now()).Set(req.Header)
		}
		resp, err := http.DefaultClient.Do(req)
		w.must(err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		w.must(err)
		return resp.StatusCode, string(text)
	}
	if status, _ := post(false); status != http.StatusUnauthorized || len(w.wakes) != 0 {
		t.Errorf("not signed: %d", status)
	}
	status, text := post(true)
	var swept sweeper.Swept
	w.must(json.Unmarshal([]byte(text), &swept))
	if status != http.StatusOK || !same(swept.Fired, "q") || !strings.Contains(text, `"armed":[]`) {
		t.Errorf("%d %s", status, text)
	}
	if _, err := w.sweeper(sweeper.Config{}).Receiver(sweeper.ReceiverConfig{}); err == nil {
		t.Error("a receiver that nobody may call: no error")
	}
}

// A schedule outside calls this, a few times a day.
func ExampleSweeper_Sweep() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://localhost/app")
	if err != nil {
		return
	}
	defer pool.Close()
	s, err := sweeper.New(pool, sweeper.Config{KeepFailed: 90 * 24 * time.Hour})
	if err != nil {
		return
	}
	_, _ = s.Sweep(ctx)
}

// Who has added a job may have died before anybody was told of it. Looks for jobs begin at the queue's floor, so the sweep
// lowers that.
func TestSweep_FindsWhatLiesBelowTheFloor(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]func(w *world) sweeper.Config{
		"with a trigger":    func(w *world) sweeper.Config { return sweeper.Config{Trigger: w} },
		"without a trigger": func(*world) sweeper.Config { return sweeper.Config{} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.must(w.store.Resume(w.ctx, w.pool, "q"))
			w.add("q", 3, 0)
			w.exec(`UPDATE doze.bells SET floor = clock_timestamp()`)
			if swept := w.sweep(w.sweeper(cfg(w))); !same(swept.Due, "q") {
				t.Errorf("swept %+v", swept)
			}
			w.vanish("q", 3) // claims that many, or the test has failed
		})
	}
}
