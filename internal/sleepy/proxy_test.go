package sleepy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dozequeue/doze/internal/pgdev"
	"github.com/dozequeue/doze/internal/sleepy"
)

// short is a timeout that is long beside what a statement takes here.
const short = 400 * time.Millisecond

func newProxy(t *testing.T, cfg sleepy.Config) *sleepy.Proxy {
	t.Helper()
	t.Parallel()
	dir := t.TempDir()
	if !pgdev.Reachable(dir) {
		dir = pgdevDir(t)
	}
	cfg.Server.DataDir = dir + "/postgres"
	cfg.Server.Durable = true
	if cfg.Timeout == 0 {
		cfg.Timeout = short
	}
	p, err := sleepy.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func connect(t *testing.T, p *sleepy.Proxy) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(within(t), p.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func exec(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	if _, err := conn.Exec(within(t), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func wait(t *testing.T, p *sleepy.Proxy, s sleepy.State) {
	t.Helper()
	if err := p.Wait(within(t), s); err != nil {
		t.Fatal(err)
	}
}

func TestItWakesAtTheFirstConnectionAndSleepsWhenIdle(t *testing.T) {
	p := newProxy(t, sleepy.Config{})
	if s := p.Status(); s.State != sleepy.Asleep || s.Wakes != 0 || s.AwakeSeconds != 0 || s.KeptAwakeBy != "" {
		t.Errorf("before the first connection: %+v", s)
	}
	exec(t, connect(t, p), "CREATE TABLE kept (n int)")
	if s := p.Status(); s.State != sleepy.Awake || s.Wakes != 1 || !strings.Contains(s.KeptAwakeBy, "within the timeout") {
		t.Errorf("after a statement: %+v", s)
	}
	wait(t, p, sleepy.Asleep) // with the connection open: by this rule it does not count
	for n := range 3 {
		exec(t, connect(t, p), "INSERT INTO kept VALUES (1)")
		wait(t, p, sleepy.Asleep)
		if s := p.Status(); s.Wakes != n+2 || len(p.Intervals()) != n+2 {
			t.Errorf("%+v, %d intervals; want %d wakes", s, len(p.Intervals()), n+2)
		}
	}
	var rows int
	if err := connect(t, p).QueryRow(within(t), "SELECT count(*) FROM kept").Scan(&rows); err != nil || rows != 3 {
		t.Errorf("%d rows, %v; want what was written before each sleep", rows, err)
	}
}

func TestAnOpenConnectionKeepsItAwakeByTheRuleOfConnections(t *testing.T) {
	p := newProxy(t, sleepy.Config{Rule: sleepy.Connections})
	conn := connect(t, p)
	exec(t, conn, "SELECT 1")
	ctx, cancel := context.WithTimeout(t.Context(), 3*short)
	defer cancel()
	if err := p.Wait(ctx, sleepy.Asleep); err == nil {
		t.Fatal("it sleeps beside an open connection")
	}
	if s := p.Status(); !strings.Contains(s.KeptAwakeBy, "an open connection") {
		t.Errorf("%+v", s)
	}
	_ = conn.Close(t.Context())
	wait(t, p, sleepy.Asleep)
}

func TestWhatIsNotIdleKeepsItAwake(t *testing.T) {
	for what, sql := range map[string]string{
		"an active statement":           "SELECT pg_sleep(1.5)",
		"a session idle in transaction": "BEGIN",
	} {
		t.Run(what, func(t *testing.T) {
			p := newProxy(t, sleepy.Config{})
			conn := connect(t, p)
			done := make(chan error, 1)
			go func() {
				_, err := conn.Exec(within(t), sql)
				done <- err
			}()
			if sql == "BEGIN" {
				if err := <-done; err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*short)
			defer cancel()
			if err := p.Wait(ctx, sleepy.Asleep); err == nil {
				t.Fatal("it sleeps")
			}
			if s := p.Status(); !strings.Contains(s.KeptAwakeBy, what) {
				t.Errorf("kept awake by %q, want %q", s.KeptAwakeBy, what)
			}
			if sql == "BEGIN" {
				exec(t, conn, "COMMIT")
			} else if err := <-done; err != nil {
				t.Fatal(err)
			}
			wait(t, p, sleepy.Asleep)
		})
	}
}

func TestAPipelineOfSeveralSyncsIsOverWhenAllAreAnswered(t *testing.T) {
	p := newProxy(t, sleepy.Config{})
	conn := connect(t, p)
	pipeline := conn.PgConn().StartPipeline(within(t))
	for range 3 {
		pipeline.SendQueryParams("SELECT pg_sleep(0.3)", nil, nil, nil, nil)
		pipeline.SendPipelineSync()
	}
	if err := pipeline.Flush(); err != nil {
		t.Fatal(err)
	}
	for range 6 {
		results, err := pipeline.GetResults()
		if err != nil {
			t.Fatalf("it was cut off: %v", err)
		}
		if r, ok := results.(*pgconn.ResultReader); ok {
			if _, err := r.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := pipeline.Close(); err != nil {
		t.Fatal(err)
	}
	wait(t, p, sleepy.Asleep)
}

func TestDataPassesThroughAsItIs(t *testing.T) {
	p := newProxy(t, sleepy.Config{})
	conn := connect(t, p)
	large := strings.Repeat("wide ✓ ", 700_000)
	var back string
	if err := conn.QueryRow(within(t), "SELECT $1::text", large).Scan(&back); err != nil || back != large {
		t.Errorf("5 MB came back as %d bytes, %v", len(back), err)
	}
	exec(t, conn, "CREATE TABLE copied (n int, s text)")
	rows := make([][]any, 5000)
	for i := range rows {
		rows[i] = []any{i, "row"}
	}
	if n, err := conn.CopyFrom(within(t), pgx.Identifier{"copied"}, []string{"n", "s"}, pgx.CopyFromRows(rows)); err != nil || n != 5000 {
		t.Errorf("COPY in: %d, %v", n, err)
	}
	var out bytes.Buffer
	if tag, err := conn.PgConn().CopyTo(within(t), &out, "COPY copied TO STDOUT"); err != nil || tag.RowsAffected() != 5000 {
		t.Errorf("COPY out: %v, %v", tag, err)
	}
	wait(t, p, sleepy.Asleep) // the COPYs count as over
}

func TestManyClientsAtOnceAreOneWake(t *testing.T) {
	p := newProxy(t, sleepy.Config{WakeDelay: 200 * time.Millisecond})
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			conn, err := pgx.Connect(within(t), p.URL("postgres"))
			if err != nil {
				t.Error(err)
				return
			}
			_ = conn.Close(t.Context())
		})
	}
	all.Wait()
	if s := p.Status(); s.Wakes != 1 {
		t.Errorf("%d wakes, want 1", s.Wakes)
	}
}

func TestAPoolGoesOnAfterASleep(t *testing.T) {
	p := newProxy(t, sleepy.Config{})
	cfg, err := pgxpool.ParseConfig(p.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	cfg.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return true }
	pool, err := pgxpool.NewWithConfig(within(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for range 3 {
		if _, err := pool.Exec(within(t), "SELECT 1"); err != nil {
			t.Fatal(err)
		}
		p.Suspend()
	}
	if s := p.Status(); s.Wakes != 3 {
		t.Errorf("%d wakes, want 3", s.Wakes)
	}
}

func TestStatusDoesNotWakeIt(t *testing.T) {
	p := newProxy(t, sleepy.Config{})
	w := httptest.NewRecorder()
	p.StatusHandler().ServeHTTP(w, httptest.NewRequest("GET", "/v1/database", nil))
	var got map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || got["state"] != "asleep" || got["wakes"] != 0.0 || got["kept_awake_by"] != "" {
		t.Errorf("%s, %v", w.Body, err)
	}
}

func TestAServerThatCannotStartIsSaidSoAndTriedAgain(t *testing.T) {
	p := newProxy(t, sleepy.Config{Server: pgdev.Config{Settings: map[string]string{"max_connections": "none"}}})
	for range 2 {
		_, err := pgx.Connect(within(t), p.URL("postgres"))
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || pg.Code != "57P03" {
			t.Errorf("%v, want 57P03", err)
		}
	}
	if s := p.Status(); s.Wakes != 2 || s.State != sleepy.Asleep {
		t.Errorf("%+v", s)
	}
}

func TestWrongSettingsAreNamed(t *testing.T) {
	for want, cfg := range map[string]sleepy.Config{"rule": {Rule: "moon", Timeout: 1}, "timeout": {}} {
		if _, err := sleepy.New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q in it", err, want)
		}
	}
}
