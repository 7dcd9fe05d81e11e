package queue_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dozequeue/doze/internal/dbtest"
	"github.com/dozequeue/doze/migrations"
	"github.com/dozequeue/doze/queue"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

const bell = 15 * time.Second

// world is one test's schema, with the statements for it and a pool.
type world struct {
	t     testing.TB
	ctx   context.Context
	name  string
	store *queue.Store
	pool  *pgxpool.Pool
}

// newWorld migrates a schema of its own. Its time limit is far above what any
// test needs, so that a wait for something that never comes fails and says where.
func newWorld(t testing.TB, opts ...dbtest.Option) *world {
	t.Helper()
	name := dbtest.Schema(t)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	pool := dbtest.Pool(t, opts...)
	w := &world{t: t, ctx: ctx, name: name, pool: pool}
	conn, err := pool.Acquire(ctx)
	w.must(err)
	_, err = migrations.Up(ctx, conn.Conn(), name)
	conn.Release()
	w.must(err)
	w.store, err = queue.NewStore(name)
	w.must(err)
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// conn is a connection that this test has for itself until it ends.
func (w *world) conn() *pgx.Conn {
	w.t.Helper()
	c, err := w.pool.Acquire(w.ctx)
	w.must(err)
	w.t.Cleanup(func() {
		if !c.Conn().IsClosed() && c.Conn().PgConn().TxStatus() != 'I' {
			w.t.Errorf("a test left its connection in a transaction")
		}
		c.Release()
	})
	return c.Conn()
}

// exec runs SQL in which doze stands for the test's schema.
func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	_, err := w.pool.Exec(w.ctx, queue.Qualify(sql, w.name), args...)
	if err != nil {
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

// newJob is a job that is due at once, in queue q.
func newJob(change ...func(*queue.NewJob)) queue.NewJob {
	j := queue.NewJob{ID: uuid.Must(uuid.NewV7()), Queue: "q", Kind: "k", MaxAttempts: 10, Payload: json.RawMessage(`{"n": 1}`)}
	for _, c := range change {
		c(&j)
	}
	return j
}

func newJobs(n int, change ...func(*queue.NewJob)) []queue.NewJob {
	jobs := make([]queue.NewJob, n)
	for i := range jobs {
		jobs[i] = newJob(change...)
	}
	return jobs
}

func keyed(key string, hold time.Duration) func(*queue.NewJob) {
	return func(j *queue.NewJob) { j.Key, j.Hold = key, hold }
}

func inQueue(name string) func(*queue.NewJob) { return func(j *queue.NewJob) { j.Queue = name } }

func after(delay time.Duration) func(*queue.NewJob) { return func(j *queue.NewJob) { j.Delay = delay } }

func (w *world) insert(jobs ...queue.NewJob) []queue.Inserted {
	w.t.Helper()
	in, err := w.store.Insert(w.ctx, w.pool, jobs, false)
	w.must(err)
	return in
}

// ids of jobs, in order.
func ids(jobs []queue.NewJob) []uuid.UUID {
	all := make([]uuid.UUID, len(jobs))
	for i := range jobs {
		all[i] = jobs[i].ID
	}
	return all
}

func claimedIDs(jobs []queue.Claimed) []uuid.UUID {
	all := make([]uuid.UUID, len(jobs))
	for i := range jobs {
		all[i] = jobs[i].ID
	}
	return all
}

// queue makes a queue's row, as its first ring does.
func (w *world) queue(name string) {
	w.t.Helper()
	w.must(w.store.Resume(w.ctx, w.pool, name))
}

func newSlot(name string) queue.Slot {
	return queue.Slot{Queue: name, Token: uuid.New(), Lease: time.Minute}
}

// start begins a drain, which must get a slot.
func (w *world) start(conn *pgx.Conn, name string, limit int) (queue.Slot, queue.Taken) {
	w.t.Helper()
	slot := newSlot(name)
	taken, err := w.store.Start(w.ctx, conn, slot, "", limit)
	w.must(err)
	if !taken.Slot {
		w.t.Fatalf("no slot in queue %s", name)
	}
	return slot, taken
}

// claim inserts one job and claims it.
func (w *world) claim(conn *pgx.Conn, change ...func(*queue.NewJob)) (queue.Slot, queue.Claimed) {
	w.t.Helper()
	j := newJob(change...)
	w.queue(j.Queue)
	w.insert(j)
	slot, taken := w.start(conn, j.Queue, 1)
	if len(taken.Claimed) != 1 || taken.Claimed[0].ID != j.ID {
		w.t.Fatalf("claimed %v, want %s", claimedIDs(taken.Claimed), j.ID)
	}
	return slot, taken.Claimed[0]
}

func (w *world) get(id uuid.UUID) queue.Job {
	w.t.Helper()
	j, err := w.store.Get(w.ctx, w.pool, id)
	w.must(err)
	return j
}

func (w *world) state(id uuid.UUID) queue.State {
	w.t.Helper()
	return w.get(id).State
}

// expire lets the lease of a job run out.
func (w *world) expire(ids ...uuid.UUID) {
	w.t.Helper()
	for _, id := range ids {
		w.exec(`UPDATE doze.jobs SET locked_until = now() - interval '1 second' WHERE id = $1::text::uuid AND token IS NOT NULL`, id.String())
	}
}

func outcome(c queue.Claimed, state queue.State, change ...func(*queue.Outcome)) queue.Outcome {
	o := queue.Outcome{ID: c.ID, Attempts: c.Attempts, Token: c.Token, State: state}
	for _, f := range change {
		f(&o)
	}
	return o
}

// finish ends attempts and returns how many were still held.
func (w *world) finish(outcomes ...queue.Outcome) int {
	w.t.Helper()
	held, err := w.store.Finish(w.ctx, w.pool, outcomes)
	w.must(err)
	return len(held)
}

// statement is the text of one of the package's SQL files.
func (w *world) statement(file string) string {
	w.t.Helper()
	text, err := os.ReadFile("sql/" + file + ".sql")
	w.must(err)
	return queue.Qualify(string(text), w.name)
}

func same[T comparable](a, b []T) bool {
	return fmt.Sprint(a) == fmt.Sprint(b)
}
