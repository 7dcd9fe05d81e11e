package enqueue

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync"
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

// greet is a kind of job.
type greet struct {
	Name string `json:"name"`
}

func (greet) Kind() string { return "greet" }

// recorder is a trigger that keeps the wakes it was given. If err is set it fails.
type recorder struct {
	mu     sync.Mutex
	wakes  []queue.Wake
	err    error
	before func(ctx context.Context, wake queue.Wake) // looks at the world as it is when the trigger is fired
}

func (r *recorder) Fire(ctx context.Context, wake queue.Wake) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.before != nil {
		r.before(ctx, wake)
	}
	r.wakes = append(r.wakes, wake)
	return r.err
}

// take returns the queues woken since the last time.
func (r *recorder) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var queues []string
	for _, w := range r.wakes {
		queues = append(queues, w.Queue)
	}
	r.wakes = nil
	return queues
}

// alarms is an alarm service that keeps what it was told. If err is set it fails.
type alarms struct {
	mu     sync.Mutex
	set    []set
	err    error
	before func(ctx context.Context, wake queue.Wake)
}

type set struct {
	queue, id string
	in        time.Duration
}

func (a *alarms) Set(ctx context.Context, wake queue.Wake, in time.Duration) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.before != nil {
		a.before(ctx, wake)
	}
	if a.err == nil {
		a.set = append(a.set, set{wake.Queue, wake.Alarm, in})
	}
	return a.err
}

// take returns what was set since the last time.
func (a *alarms) take() []set {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := a.set
	a.set = nil
	return all
}

// clearable is a service that can take its alarms back, so that one is set for each wake.
type clearable struct{ *alarms }

func (clearable) Clear(context.Context, string, string) error { return nil }

// logs is what a logger wrote.
type logs struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

type bundle struct {
	t       testing.TB
	ctx     context.Context
	schema  string
	pool    *pgxpool.Pool
	store   *queue.Store
	trigger *recorder
	logs    *logs
	client  *Client
}

// setup makes tables of the test's own, and a client with a recording trigger.
func setup(t testing.TB, opts ...dbtest.Option) *bundle {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	b := &bundle{t: t, ctx: ctx, schema: dbtest.Schema(t), trigger: &recorder{}, logs: &logs{}}
	b.pool = dbtest.Pool(t, opts...)
	conn, err := dbtest.Pool(t, dbtest.MaxConns(1)).Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if _, err := migrations.Up(ctx, conn.Conn(), b.schema); err != nil {
		t.Fatal(err)
	}
	if b.store, err = queue.NewStore(b.schema); err != nil {
		t.Fatal(err)
	}
	b.client = b.newClient(b.pool, Config{})
	return b
}

func (b *bundle) newClient(pool *pgxpool.Pool, cfg Config) *Client {
	b.t.Helper()
	cfg.Schema = b.schema
	cfg.Logger = slog.New(slog.NewTextHandler(b.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	client, err := New(pool, b.trigger, cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	return client
}

// value returns what one statement says; doze. is the test's schema.
func value[T any](b *bundle, sql string, args ...any) T {
	b.t.Helper()
	var v T
	if err := b.pool.QueryRow(b.ctx, queue.Qualify(sql, b.schema), args...).Scan(&v); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func (b *bundle) exec(sql string, args ...any) {
	b.t.Helper()
	if _, err := b.pool.Exec(b.ctx, queue.Qualify(sql, b.schema), args...); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
}

// rows counts what an enqueue can leave behind.
func (b *bundle) rows() int {
	b.t.Helper()
	return value[int](b, `SELECT (SELECT count(*) FROM doze.jobs) + (SELECT count(*) FROM doze.history)
		+ (SELECT count(*) FROM doze.keys) + (SELECT count(*) FROM doze.queues)`)
}

func (b *bundle) jobs() int {
	b.t.Helper()
	return value[int](b, "SELECT count(*) FROM doze.jobs")
}

func (b *bundle) bell(name string) bool {
	b.t.Helper()
	return value[bool](b, "SELECT coalesce((SELECT bell_until > now() FROM doze.bells WHERE queue = $1::text), false)", name)
}

// finishAll runs every due job of a queue to its end, as a drain does.
func (b *bundle) finishAll(name string) int {
	b.t.Helper()
	conn, err := b.pool.Acquire(b.ctx)
	if err != nil {
		b.t.Fatal(err)
	}
	defer conn.Release()
	slot := queue.Slot{Queue: name, Token: uuid.New(), Lease: time.Minute}
	taken, err := b.store.Start(b.ctx, conn.Conn(), slot, "", 100)
	if err != nil || !taken.Slot {
		b.t.Fatalf("start a drain: slot %v, %v", taken.Slot, err)
	}
	var outcomes []queue.Outcome
	for _, c := range taken.Claimed {
		outcomes = append(outcomes, queue.Outcome{ID: c.ID, Attempts: c.Attempts, Token: c.Token, State: queue.Done})
	}
	held, _, err := b.store.Exit(b.ctx, conn.Conn(), slot, outcomes)
	if err != nil {
		b.t.Fatal(err)
	}
	return len(held)
}

func wantField(t *testing.T, err error, field string, index int) {
	t.Helper()
	var got *queue.FieldError
	if !errors.As(err, &got) {
		t.Fatalf("error %v, want a FieldError of %s", err, field)
	}
	if got.Field != field || got.Index != index || got.Rule == "" {
		t.Errorf("field %q, index %d, rule %q; want field %q, index %d and a rule", got.Field, got.Index, got.Rule, field, index)
	}
}

func wantQueues(t *testing.T, got []string, want ...string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("woke %v, want %v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("woke %v, want %v", got, want)
		}
	}
}

// eachMode runs fn with a pool of each of pgx's exec modes.
func eachMode(t *testing.T, fn func(t *testing.T, b *bundle)) {
	dbtest.ExecModes(t, func(t *testing.T, mode pgx.QueryExecMode) { fn(t, setup(t, dbtest.Mode(mode))) })
}
