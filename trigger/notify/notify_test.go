package notify_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/dozequeue/doze/internal/dbtest"
	"github.com/dozequeue/doze/queue"
	"github.com/dozequeue/doze/trigger/notify"
	"github.com/dozequeue/doze/trigger/triggertest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// listener is a session that listens for one test's schema, and holds what it hears as a busy drain does.
type listener struct {
	deliveries chan triggertest.Delivery
	mu         sync.Mutex
	gate       chan struct{}
}

func listen(t *testing.T, schema string) *listener {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dbtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "LISTEN "+pgx.Identifier{notify.Channel(schema)}.Sanitize()); err != nil {
		t.Fatal(err)
	}
	l := &listener{deliveries: make(chan triggertest.Delivery, 64), gate: make(chan struct{})}
	close(l.gate)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			n, err := conn.WaitForNotification(ctx)
			if err != nil {
				return
			}
			if _, ok := notify.Probed(n.Payload); ok {
				continue
			}
			var wake queue.Wake
			if err := json.Unmarshal([]byte(n.Payload), &wake); err != nil {
				t.Errorf("%q: %v", n.Payload, err)
			}
			l.mu.Lock()
			gate := l.gate
			l.mu.Unlock()
			l.deliveries <- triggertest.Delivery{Wake: wake, Body: []byte(n.Payload)}
			select {
			case <-gate:
			case <-ctx.Done():
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-ended; conn.Close(context.Background()) })
	return l
}

func (l *listener) block() func() {
	l.mu.Lock()
	defer l.mu.Unlock()
	gate := make(chan struct{})
	l.gate = gate
	return func() { close(gate) }
}

func TestTrigger_KeepsTheContract(t *testing.T) {
	t.Parallel()
	for name, through := range map[string]func(testing.TB, string) string{
		"direct": func(_ testing.TB, url string) string { return url }, "behind PgBouncer": dbtest.PgBouncer,
	} {
		t.Run(name, func(t *testing.T) {
			url := through(t, dbtest.URL(t))
			triggertest.Run(t, func(t *testing.T) triggertest.Fixture {
				schema := dbtest.Schema(t)
				pool := dbtest.Pool(t, dbtest.At(url))
				trigger, err := notify.New(pool, notify.Config{Schema: schema})
				if err != nil {
					t.Fatal(err)
				}
				l := listen(t, schema)
				return triggertest.Fixture{Trigger: trigger, Deliveries: l.deliveries, Block: l.block, Break: pool.Close}
			})
		})
	}
}

func TestTrigger_WorksInEachMode(t *testing.T) {
	t.Parallel()
	dbtest.ExecModes(t, func(t *testing.T, mode pgx.QueryExecMode) {
		schema := dbtest.Schema(t)
		l := listen(t, schema)
		trigger, err := notify.New(dbtest.Pool(t, dbtest.Mode(mode)), notify.Config{Schema: schema})
		if err != nil {
			t.Fatal(err)
		}
		want := queue.Wake{Version: 1, Queue: "mail", Reason: queue.ReasonAlarm, Alarm: "8d8ac610-566d-4ef0-9c22-186b2a5ed793"}
		if err := trigger.Probe(t.Context(), "a token"); err != nil {
			t.Fatal(err)
		}
		if err := trigger.Set(t.Context(), want, 0); err != nil {
			t.Fatal(err)
		}
		if d := <-l.deliveries; d.Wake != want {
			t.Errorf("got %+v, want %+v", d.Wake, want)
		}
	})
}

func TestNew_RefusesABadSchema(t *testing.T) {
	t.Parallel()
	if _, err := notify.New(nil, notify.Config{Schema: "pg_x"}); err == nil || !strings.Contains(err.Error(), "schema") {
		t.Errorf("got %v, want an error about the schema", err)
	}
}

func TestChannel(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 62)
	if got := notify.Channel(""); got != "doze_wake" {
		t.Errorf("of no schema: %s, want doze_wake", got)
	}
	if got := notify.Channel(long[:58]); got != long[:58]+"_wake" {
		t.Errorf("of a name that fits: %s", got)
	}
	a, b := notify.Channel(long+"a"), notify.Channel(long+"b")
	if a == b || len(a) != 63 || len(b) != 63 {
		t.Errorf("of two long names: %s and %s, want two of 63 bytes", a, b)
	}
}

func TestProbed(t *testing.T) {
	t.Parallel()
	if token, ok := notify.Probed("probe x y"); !ok || token != "x y" {
		t.Errorf("got %q, %v", token, ok)
	}
	if _, ok := notify.Probed(`{"v":1,"queue":"probe"}`); ok {
		t.Error("a wake counts as a probe")
	}
}
