package handler_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dozequeue/doze/handler"
	"github.com/dozequeue/doze/internal/dbtest"
	"github.com/dozequeue/doze/migrations"
	"github.com/dozequeue/doze/queue"
)

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		child()
		return
	}
	_ = flag.Set("test.parallel", "6") // most tests wait, for a lease or a deadline
	dbtest.Main(m)
}

const bell = 15 * time.Second

// world is one test's schema, with a store for it and a pool. Its queue q is there.
type world struct {
	t     testing.TB
	ctx   context.Context
	name  string
	store *queue.Store
	pool  *pgxpool.Pool
}

// newWorld migrates a schema of its own. Its time limit is far above what any test
// needs, so that a wait for something that never comes fails and says where.
func newWorld(t testing.TB, opts ...dbtest.Option) *world {
	t.Helper()
	name := dbtest.Schema(t)
	w := newWorldIn(t, name, opts...)
	return w
}

func newWorldIn(t testing.TB, name string, opts ...dbtest.Option) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	w := &world{t: t, ctx: ctx, name: name, pool: dbtest.Pool(t, append([]dbtest.Option{dbtest.MaxConns(8)}, opts...)...)}
	store, err := queue.NewStore(name)
	w.must(err)
	w.store = store
	w.with(func(conn *pgx.Conn) {
		_, err := migrations.Up(ctx, conn, name)
		w.must(err)
	})
	w.queue("q")
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// with runs fn on a connection of the pool.
func (w *world) with(fn func(*pgx.Conn)) {
	w.t.Helper()
	c, err := w.pool.Acquire(w.ctx)
	w.must(err)
	defer c.Release()
	fn(c.Conn())
}

// exec runs SQL in which doze stands for the test's schema.
func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	if _, err := w.pool.Exec(w.ctx, queue.Qualify(sql, w.name), args...); err != nil {
		w.t.Fatalf("%v\nin %s", err, sql)
	}
}

// int is the number that a query returns.
func (w *world) int(sql string, args ...any) int {
	w.t.Helper()
	var n int
	if err := w.pool.QueryRow(w.ctx, queue.Qualify(sql, w.name), args...).Scan(&n); err != nil {
		w.t.Fatalf("%v\nin %s", err, sql)
	}
	return n
}

// text is what a query returns, its rows joined by commas.
func (w *world) text(sql string, args ...any) string {
	w.t.Helper()
	rows, err := w.pool.Query(w.ctx, queue.Qualify(sql, w.name), args...)
	w.must(err)
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		w.t.Fatalf("%v\nin %s", err, sql)
	}
	return strings.Join(all, ",")
}

// until waits for a query to return true. It asks again and again, since the
// database has no signal for it.
func (w *world) until(sql string, args ...any) {
	w.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for w.int("SELECT ("+sql+")::integer", args...) == 0 {
		select {
		case <-tick.C:
		case <-w.ctx.Done():
			w.t.Fatalf("it never came to be that %s", sql)
		}
	}
}

// queue makes a queue's row, as its first ring does.
func (w *world) queue(name string) {
	w.t.Helper()
	w.must(w.store.Resume(w.ctx, w.pool, name))
}

func (w *world) configure(set queue.Settings) {
	w.t.Helper()
	w.must(w.store.Configure(w.ctx, w.pool, "q", set))
}

type change = func(*queue.NewJob)

// add inserts a job into queue q, without ringing.
func (w *world) add(kind string, changes ...change) uuid.UUID {
	w.t.Helper()
	j := newJob(kind, changes...)
	_, err := w.store.Insert(w.ctx, w.pool, []queue.NewJob{j}, false)
	w.must(err)
	return j.ID
}

func (w *world) addMany(n int, kind string, changes ...change) []uuid.UUID {
	w.t.Helper()
	if n == 0 {
		return nil
	}
	jobs, ids := make([]queue.NewJob, n), make([]uuid.UUID, n)
	for i := range jobs {
		jobs[i] = newJob(kind, changes...)
		ids[i] = jobs[i].ID
	}
	_, err := w.store.Insert(w.ctx, w.pool, jobs, false)
	w.must(err)
	return ids
}

func newJob(kind string, changes ...change) queue.NewJob {
	j := queue.NewJob{ID: uuid.Must(uuid.NewV7()), Queue: "q", Kind: kind, MaxAttempts: 10, Payload: json.RawMessage(`{"n":1}`)}
	for _, c := range changes {
		c(&j)
	}
	return j
}

func payload(text string) change { return func(j *queue.NewJob) { j.Payload = json.RawMessage(text) } }
func maxAttempts(n int) change   { return func(j *queue.NewJob) { j.MaxAttempts = n } }
func priority(n int) change      { return func(j *queue.NewJob) { j.Priority = n } }
func delayed(d time.Duration) change {
	return func(j *queue.NewJob) { j.Delay = d }
}

func (w *world) get(id uuid.UUID) queue.Job {
	w.t.Helper()
	j, err := w.store.Get(w.ctx, w.pool, id)
	w.must(err)
	return j
}

// wants fails the test unless the job is in this state.
func (w *world) wants(id uuid.UUID, state queue.State) queue.Job {
	w.t.Helper()
	j := w.get(id)
	if j.State != state {
		w.t.Errorf("job %s (%s) is %s, want %s; last error %q", id, j.Kind, j.State, state, j.LastError)
	}
	return j
}

// done is how many jobs history has as done.
func (w *world) done() int {
	w.t.Helper()
	return w.int(`SELECT count(*) FROM doze.history WHERE state = 'done'`)
}

// expire makes all leases, of jobs and of slots, end now.
func (w *world) expire() {
	w.t.Helper()
	w.exec(`UPDATE doze.jobs SET locked_until = now() - interval '1 second' WHERE token IS NOT NULL`)
	w.exec(`UPDATE doze.slots SET locked_until = now() - interval '1 second' WHERE token IS NOT NULL`)
}

func (w *world) drainer(mux *handler.Mux, cfg handler.Config) *handler.Drainer {
	w.t.Helper()
	return w.drainerOn(w.pool, mux, cfg)
}

func (w *world) drainerOn(pool *pgxpool.Pool, mux *handler.Mux, cfg handler.Config) *handler.Drainer {
	w.t.Helper()
	cfg.Schema = w.name
	d, err := handler.New(pool, mux, cfg)
	w.must(err)
	return d
}

var wakeQ = queue.Wake{Version: 1, Queue: "q"}

// drain drains queue q, and checks that its report adds up.
func (w *world) drain(d *handler.Drainer) handler.Drained {
	w.t.Helper()
	report, err := d.Drain(w.ctx, wakeQ)
	w.must(err)
	if w.ctx.Err() != nil {
		w.t.Fatal("it went on until the time of the test was over")
	}
	w.addsUp(report)
	return report
}

func (w *world) addsUp(r handler.Drained) {
	w.t.Helper()
	if sum := r.Done + r.Retried + r.Failed + r.Snoozed + r.Interrupted + r.Released + r.Unknown + r.Lost; sum != r.Claimed {
		w.t.Errorf("the parts of the report make %d, claimed are %d: %+v", sum, r.Claimed, r)
	}
}

// inBackground starts a drain; the function returned waits for its report.
func (w *world) inBackground(ctx context.Context, d *handler.Drainer) func() (handler.Drained, error) {
	type result struct {
		report handler.Drained
		err    error
	}
	results := make(chan result, 1)
	go func() {
		report, err := d.Drain(ctx, wakeQ)
		results <- result{report, err}
	}()
	return func() (handler.Drained, error) {
		w.t.Helper()
		r := receive(w, results)
		return r.report, r.err
	}
}

// receive takes a value from a channel, or fails the test.
func receive[T any](w *world, from <-chan T) T {
	w.t.Helper()
	select {
	case v := <-from:
		return v
	case <-w.ctx.Done():
		w.t.Fatal("nothing came")
		panic("unreachable")
	}
}

// recorder is a trigger and an alarm that keep what they get.
type recorder struct {
	mu     sync.Mutex
	wakes  []queue.Wake
	alarms []time.Duration
	fail   bool
}

func (r *recorder) Fire(_ context.Context, wake queue.Wake) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail {
		return errors.New("throttled")
	}
	r.wakes = append(r.wakes, wake)
	return nil
}

func (r *recorder) Set(_ context.Context, _ queue.Wake, in time.Duration) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.alarms = append(r.alarms, in)
	return nil
}

func (r *recorder) fired() []queue.Wake {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]queue.Wake(nil), r.wakes...)
}

func (r *recorder) set() []time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]time.Duration(nil), r.alarms...)
}

// kinds registers handlers by name.
func kinds(of map[string]handler.RawFunc) *handler.Mux {
	mux := handler.NewMux()
	for name, run := range of {
		mux.Handle(name, run)
	}
	return mux
}

func nothing(context.Context, *queue.Job) error { return nil }

func fails(context.Context, *queue.Job) error { return errors.New("no luck") }

// soon is a backoff that makes a failed job due at once.
func soon(int) time.Duration { return 0 }

func later(int) time.Duration { return time.Hour }
