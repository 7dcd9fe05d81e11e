package resident_test

import (
	"context"
	"encoding/json"
	"flag"
	"io"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"sync"
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

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "6") // most tests wait, for a delay or an end
	dbtest.Main(m)
}

// world is one test's schema, with a client whose trigger and alarm is NOTIFY.
type world struct {
	t      testing.TB
	ctx    context.Context
	schema string
	pool   *pgxpool.Pool
	store  *queue.Store
	notify *notify.Trigger
	jobs   *enqueue.Client
}

// newWorld's time limit is far above what any test needs, so that a wait for something that never comes fails
// and says where.
func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, schema: dbtest.Schema(t)}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	w.ctx, w.pool = ctx, dbtest.Pool(t, dbtest.MaxConns(8))
	var err error
	w.store, err = queue.NewStore(w.schema)
	w.must(err)
	w.must(w.pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
		_, err := migrations.Up(ctx, c.Conn(), w.schema)
		return err
	}))
	w.notify, err = notify.New(w.pool, notify.Config{Schema: w.schema})
	w.must(err)
	w.jobs, err = enqueue.New(w.pool, w.notify, enqueue.Config{Schema: w.schema, Alarm: w.notify})
	w.must(err)
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// add enqueues a job as a program does.
func (w *world) add(kind string, options ...enqueue.Option) uuid.UUID {
	w.t.Helper()
	added, err := w.jobs.AddJob(w.ctx, kind, json.RawMessage("1"), options...)
	w.must(err)
	return added.ID
}

// slip inserts a job of which nobody is told.
func (w *world) slip(queueName, kind string, delay time.Duration) uuid.UUID {
	w.t.Helper()
	id := uuid.Must(uuid.NewV7())
	_, err := w.store.Insert(w.ctx, w.pool, []queue.NewJob{{ID: id, Queue: queueName, Kind: kind, MaxAttempts: 3, Delay: delay, Payload: json.RawMessage("1")}}, false)
	w.must(err)
	return id
}

func (w *world) int(sql string, args ...any) int {
	w.t.Helper()
	var n int
	if err := w.pool.QueryRow(w.ctx, queue.Qualify(sql, w.schema), args...).Scan(&n); err != nil {
		w.t.Fatalf("%v\nin %s", err, sql)
	}
	return n
}

// until waits for a state of the database, which no signal tells of.
func (w *world) until(what string, ok func() bool) {
	w.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-w.ctx.Done():
			w.t.Fatalf("it never came to be that %s", what)
		}
	}
}

func (w *world) becomes(id uuid.UUID, state queue.State) queue.Job {
	w.t.Helper()
	var job queue.Job
	w.until("the job is "+string(state), func() bool {
		var err error
		job, err = w.store.Get(w.ctx, w.pool, id)
		w.must(err)
		return job.State == state
	})
	return job
}

// jobs that ran, by their ids.
type ran struct{ ids chan uuid.UUID }

func newRan() ran { return ran{make(chan uuid.UUID, 10_000)} }

func (r ran) handle(_ context.Context, job *queue.Job) error {
	r.ids <- job.ID
	return nil
}

// next waits for a job to run, and wants it to be this one.
func (w *world) next(r ran, want uuid.UUID) {
	w.t.Helper()
	if got := receive(w, r.ids); got != want {
		w.t.Errorf("job %s ran, want %s", got, want)
	}
}

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

// home is a resident process.
type home struct {
	w         *world
	listening chan struct{}
	log       *lines
	stop      func()
	ended     chan error
}

// settings of a process that listens directly and never falls back while a test runs.
func (w *world) settings() resident.Config {
	return resident.Config{URL: dbtest.URL(w.t), Schema: w.schema, Fallback: time.Hour}
}

// start starts a process, which ends with the test if not before.
func (w *world) start(cfg resident.Config, drains handler.Config, kinds map[string]handler.RawFunc) *home {
	w.t.Helper()
	h := &home{w: w, listening: make(chan struct{}, 1000), log: &lines{}, ended: make(chan error, 1)}
	log := slog.New(slog.NewTextHandler(h.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	mux := handler.NewMux()
	for kind, run := range kinds {
		mux.Handle(kind, run)
	}
	drains.Schema, drains.Logger = w.schema, log
	pool := w.pool
	drainer, err := handler.New(pool, mux, drains)
	w.must(err)
	cfg.Logger, cfg.Listening = log, func() { h.listening <- struct{}{} }
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		h.ended <- resident.Run(ctx, pool, drainer, cfg)
	}()
	h.stop = cancel
	w.t.Cleanup(func() {
		cancel()
		<-ended
		if w.t.Failed() {
			w.t.Logf("the process said:\n%s", h.log)
		}
		if text := h.log.String(); strings.Contains(text, "hunter2") {
			w.t.Error("the log has the password")
		}
	})
	return h
}

// begun waits until the process listens.
func (h *home) begun() *home {
	h.w.t.Helper()
	select {
	case <-h.listening:
	case err := <-h.ended:
		h.w.t.Fatalf("it ended: %v", err)
	case <-h.w.ctx.Done():
		h.w.t.Fatal("it never listened")
	}
	return h
}

// lines is a log.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// proxy stands before the server, for the connection that listens.
type proxy struct {
	url, behind string
	mu          sync.Mutex
	down, mute  bool // refuses connections; passes nothing on of what the server says
	conns       []net.Conn
	served      int
}

func newProxy(t *testing.T) *proxy {
	t.Helper()
	u, err := url.Parse(dbtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{behind: u.Host}
	u.Host = listener.Addr().String()
	q := u.Query()
	q.Set("sslmode", "disable")
	u.RawQuery = q.Encode()
	p.url = u.String()
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go p.serve(c)
		}
	}()
	t.Cleanup(func() { listener.Close(); p.set(true, false) })
	return p
}

func (p *proxy) set(down, mute bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down, p.mute = down, mute
	if down {
		for _, c := range p.conns {
			c.Close()
		}
		p.conns = nil
	}
}

func (p *proxy) serve(client net.Conn) {
	server, err := net.Dial("tcp", p.behind)
	p.mu.Lock()
	if err != nil || p.down {
		p.mu.Unlock()
		client.Close()
		if err == nil {
			server.Close()
		}
		return
	}
	p.served++
	p.mute = false // a new connection works
	p.conns = append(p.conns, client, server)
	p.mu.Unlock()
	go func() { _, _ = io.Copy(server, client); server.Close() }()
	defer client.Close()
	for buffer := make([]byte, 1<<16); ; {
		n, err := server.Read(buffer)
		p.mu.Lock()
		mute := p.mute
		p.mu.Unlock()
		if err != nil {
			return
		}
		if mute {
			<-make(chan struct{}) // this connection says nothing any more
		}
		if _, err := client.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// listeners are the sessions that listen for the test's schema.
func (w *world) listeners() []int32 {
	w.t.Helper()
	rows, err := w.pool.Query(w.ctx, `SELECT pid FROM pg_stat_activity WHERE query = $1`, "LISTEN "+pgx.Identifier{notify.Channel(w.schema)}.Sanitize())
	w.must(err)
	pids, err := pgx.CollectRows(rows, pgx.RowTo[int32])
	w.must(err)
	return pids
}
