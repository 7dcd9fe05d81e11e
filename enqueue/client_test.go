package enqueue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dozequeue/doze/internal/dbtest"
	"github.com/dozequeue/doze/queue"
)

func TestClient_Add(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, b *bundle) {
		due := time.Date(2031, 3, 9, 2, 30, 0, 123456000, time.FixedZone("", -5*3600))
		id := uuid.Must(uuid.NewV7())
		added, err := b.client.Add(b.ctx, greet{"<Ann & Bo>"}, On("mail"), At(due), Priority(-3), MaxAttempts(7), Key("k-1"), ID(id))
		if err != nil {
			t.Fatal(err)
		}
		if added.ID != id || added.Queue != "mail" || added.Kind != "greet" || added.Duplicate {
			t.Errorf("added %+v", added)
		}
		job, err := b.store.Get(b.ctx, b.pool, id)
		if err != nil {
			t.Fatal(err)
		}
		if job.Queue != "mail" || job.Kind != "greet" || job.Priority != -3 || job.MaxAttempts != 7 || job.Key != "k-1" || !job.RunAt.Equal(due) || job.State != queue.Queued {
			t.Errorf("stored %+v", job)
		}
		var args greet
		if err := json.Unmarshal(job.Payload, &args); err != nil || args.Name != "<Ann & Bo>" {
			t.Errorf("payload %s: %v", job.Payload, err)
		}
		if hold := value[string](b, "SELECT hold::text FROM doze.keys"); hold != "24:00:00" {
			t.Errorf("key held for %s, want 24 hours", hold)
		}
	})
}

func TestClient_AddDefaults(t *testing.T) {
	t.Parallel()
	b := setup(t)
	added, err := b.client.Add(b.ctx, greet{}, At(time.Time{}))
	if err != nil {
		t.Fatal(err)
	}
	if added.ID.Version() != 7 {
		t.Errorf("id %v has version %d, want 7", added.ID, added.ID.Version())
	}
	if !value[bool](b, "SELECT queue = 'default' AND priority = 0 AND max_attempts = 10 AND key IS NULL AND run_at = created_at FROM doze.jobs") {
		t.Error("the row does not have the defaults, or is not due at once")
	}
	wantQueues(t, b.trigger.take(), "default")
	if s := b.client.Stats(); s != (Stats{Added: 1, Fired: 1}) {
		t.Errorf("stats %+v", s)
	}
}

func TestClient_AddJobKeepsPayloads(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, b *bundle) {
		for _, payload := range []string{
			`{"id":9007199254740993, "a":"<&>", "a" : 2}`,
			`{"nul":"\u0000","half":"\ud800","line":"\u2028` + "\u2028" + `"}`,
			" [1e400,\t-0, 1.10 ]\n",
			`"` + strings.Repeat("x", 8001) + `"`,
			`""`, `0`, `null`, "",
		} {
			added, err := b.client.AddJob(b.ctx, "raw", json.RawMessage(payload))
			if err != nil {
				t.Fatalf("%.60q: %v", payload, err)
			}
			job, err := b.store.Get(b.ctx, b.pool, added.ID)
			if err != nil {
				t.Fatal(err)
			}
			want := payload
			if want == "" {
				want = "null"
			}
			if string(job.Payload) != want {
				t.Errorf("stored %.60q, want %.60q", job.Payload, want)
			}
		}
	})
}

func TestClient_RefusesBeforeAnySQL(t *testing.T) {
	t.Parallel()
	b := setup(t)
	// A pool that cannot connect: a call that gets to it fails in another way.
	dead := dbtest.Pool(t, dbtest.Configure(func(c *pgxpool.Config) {
		c.BeforeConnect = func(context.Context, *pgx.ConnConfig) error { return errors.New("no connection for you") }
	}))
	client := b.newClient(dead, Config{MaxPayload: 100})
	const secret = "s3cret-payload"
	ok := json.RawMessage(`"` + secret + `"`)
	for _, c := range []struct {
		name    string
		kind    string
		payload json.RawMessage
		option  Option
		field   string
	}{
		{"no kind", "", ok, nil, "kind"},
		{"kind with a space", "send mail", ok, nil, "kind"},
		{"kind with a NUL", "a\x00", ok, nil, "kind"},
		{"kind of 129", strings.Repeat("k", 129), ok, nil, "kind"},
		{"queue empty", "k", ok, On(""), "queue"},
		{"queue not ASCII", "k", ok, On("Ünï✅"), "queue"},
		{"queue of 65", "k", ok, On(strings.Repeat("q", 65)), "queue"},
		{"queue with SQL", "k", ok, On("' OR 1"), "queue"},
		{"queue with space before", "k", ok, On(" q"), "queue"},
		{"queue with newline after", "k", ok, On("q\n"), "queue"},
		{"priority low", "k", ok, Priority(-11), "priority"},
		{"priority high", "k", ok, Priority(math.MaxInt), "priority"},
		{"no attempts", "k", ok, MaxAttempts(0), "max_attempts"},
		{"too many attempts", "k", ok, MaxAttempts(1001), "max_attempts"},
		{"delay negative", "k", ok, In(-1), "delay"},
		{"delay too long", "k", ok, In(math.MaxInt64), "delay"},
		{"before 1970", "k", ok, At(time.Date(1969, 1, 1, 0, 0, 0, 0, time.UTC)), "run_at"},
		{"after 9999", "k", ok, At(time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)), "run_at"},
		{"key empty", "k", ok, Key(""), "key"},
		{"unique empty", "k", ok, Unique(""), "key"},
		{"key long", "k", ok, Key(strings.Repeat("k", 513)), "key"},
		{"key with NUL", "k", ok, Key("a\x00b"), "key"},
		{"key not UTF-8", "k", ok, Key("a\xff"), "key"},
		{"id zero", "k", ok, ID(uuid.Nil), "id"},
		{"payload not JSON", "k", json.RawMessage(secret), nil, "payload"},
		{"payload twice", "k", json.RawMessage(`"` + secret + `" 1`), nil, "payload"},
		{"payload not UTF-8", "k", json.RawMessage("\"" + secret + "\xff\""), nil, "payload"},
		{"payload long", "k", json.RawMessage(`"` + secret + strings.Repeat("x", 100) + `"`), nil, "payload"},
		{"payload deep", "k", json.RawMessage(strings.Repeat("[", 10000) + strings.Repeat("]", 10000)), nil, "payload"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var options []Option
			if c.option != nil {
				options = []Option{c.option}
			}
			_, err := client.AddJob(b.ctx, c.kind, c.payload, options...)
			wantField(t, err, c.field, -1)
			if strings.Contains(err.Error(), secret) {
				t.Errorf("the error shows the payload: %v", err)
			}
			_, err = client.AddJobs(b.ctx, []RawEntry{{Kind: "k"}, {Kind: c.kind, Payload: c.payload, Options: options}})
			wantField(t, err, c.field, 1)
		})
	}
	if b.rows() != 0 || b.logs.String() != "" || b.trigger.take() != nil {
		t.Errorf("left %d rows, and logged %q", b.rows(), b.logs)
	}
}

func TestClient_PayloadTooLarge(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := b.newClient(b.pool, Config{MaxPayload: 10}).AddJob(b.ctx, "k", json.RawMessage(`"123456789"`))
	if !errors.Is(err, ErrTooLarge) {
		t.Errorf("error %v, want ErrTooLarge", err)
	}
	wantField(t, err, "payload", -1)
}

type unfit struct{ F func() }

func (unfit) Kind() string { return "unfit" }

type secretive struct{}

func (secretive) Kind() string                 { return "secretive" }
func (secretive) MarshalJSON() ([]byte, error) { return nil, errors.New("card 4111") }

func TestClient_ArgsThatDoNotEncode(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, args := range []queue.Args{unfit{}, secretive{}} {
		_, err := b.client.Add(b.ctx, args)
		wantField(t, err, "payload", -1)
		if strings.Contains(err.Error(), "4111") {
			t.Errorf("the error shows the payload: %v", err)
		}
	}
	_, err := b.client.AddMany(b.ctx, []Entry{{Args: greet{}}, {}})
	wantField(t, err, "args", 1)
}

func TestClient_SameIDTwiceInABatch(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := ID(uuid.New())
	_, err := b.client.AddMany(b.ctx, []Entry{{greet{}, []Option{id}}, {greet{}, nil}, {greet{}, []Option{id}}})
	wantField(t, err, "id", 2)
}

func TestConfig_Validate(t *testing.T) {
	t.Parallel()
	if err := (Config{}).Validate(); err != nil {
		t.Errorf("zero value: %v", err)
	}
	for field, cfg := range map[string]Config{
		"schema":      {Schema: "pg_doze"},
		"Bell":        {Bell: time.Millisecond},
		"MaxPayload":  {MaxPayload: -1},
		"MaxAttempts": {MaxAttempts: 1001},
		"KeyHold":     {KeyHold: -1},
		"FireTimeout": {FireTimeout: -1},
		"Timeout":     {Timeout: -1},
	} {
		wantField(t, cfg.Validate(), field, -1)
	}
	_, err := New(nil, &recorder{}, Config{})
	wantField(t, err, "pool", -1)
	_, err = New(&pgxpool.Pool{}, nil, Config{})
	wantField(t, err, "trigger", -1)
}

func TestClient_AddMany(t *testing.T) {
	t.Parallel()
	b := setup(t)
	entries := make([]Entry, 10_000)
	for i := range entries {
		entries[i] = Entry{greet{fmt.Sprint(i)}, []Option{On([]string{"a", "b"}[i%2])}}
	}
	added, err := b.client.AddMany(b.ctx, entries)
	if err != nil {
		t.Fatal(err)
	}
	if len(added) != len(entries) || b.jobs() != len(entries) {
		t.Fatalf("%d added, %d rows, want %d", len(added), b.jobs(), len(entries))
	}
	for _, i := range []int{0, 1, 4711, 9999} {
		job, err := b.store.Get(b.ctx, b.pool, added[i].ID)
		if err != nil || string(job.Payload) != fmt.Sprintf(`{"name":"%d"}`, i) || job.Queue != added[i].Queue {
			t.Errorf("entry %d: %+v, %v", i, job, err)
		}
	}
	woken := b.trigger.take()
	slices.Sort(woken)
	wantQueues(t, woken, "a", "b")

	if added, err := b.client.AddMany(b.ctx, nil); added != nil || err != nil {
		t.Errorf("nothing to add: %v, %v", added, err)
	}
}

func TestClient_AddManyIsAllOrNone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(`ALTER TABLE doze.jobs ADD CONSTRAINT no_evil CHECK (kind <> 'evil')`)
	_, err := b.client.AddJobs(b.ctx, []RawEntry{{Kind: "good"}, {Kind: "evil"}})
	if err == nil || errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("error %v, want a plain one", err)
	}
	// One job alone takes another path through the store.
	if _, err := b.client.AddJob(b.ctx, "evil", nil); err == nil || errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("error %v, want a plain one", err)
	}
	if b.jobs() != 0 {
		t.Errorf("%d jobs are stored, want none", b.jobs())
	}
	wantQueues(t, b.trigger.take())
	if s := b.client.Stats(); s != (Stats{}) {
		t.Errorf("stats %+v", s)
	}
}

func TestClient_KeysUnderContention(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var (
		all  sync.WaitGroup
		mu   sync.Mutex
		seen = make(map[string]map[uuid.UUID]bool)
		made = make(map[string]int)
	)
	for range 4 {
		all.Go(func() {
			for i := range 100 {
				key := fmt.Sprint("key-", i%10)
				added, err := b.client.Add(b.ctx, greet{key}, Key(key))
				if err != nil || added.ID == uuid.Nil {
					t.Errorf("%s: %+v, %v", key, added, err)
					return
				}
				mu.Lock()
				if seen[key] == nil {
					seen[key] = make(map[uuid.UUID]bool)
				}
				seen[key][added.ID] = true
				if !added.Duplicate {
					made[key]++
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	for key, ids := range seen {
		if len(ids) != 1 || made[key] != 1 {
			t.Errorf("%s: %d ids and %d jobs made, want one of each", key, len(ids), made[key])
		}
	}
	if b.jobs() != 10 {
		t.Errorf("%d jobs, want 10", b.jobs())
	}
}

func TestClient_BulkKeysInOppositeOrder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var all sync.WaitGroup
	for _, backwards := range []bool{false, true} {
		for range 2 {
			all.Go(func() {
				for round := range 25 {
					var entries []Entry
					for i := range 40 {
						entries = append(entries, Entry{greet{}, []Option{Unique(fmt.Sprint(round, "-", i))}})
					}
					if backwards {
						slices.Reverse(entries)
					}
					if _, err := b.client.AddMany(b.ctx, entries); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	all.Wait()
	if b.jobs() != 25*40 {
		t.Errorf("%d jobs, want one for each of %d keys", b.jobs(), 25*40)
	}
}

func TestClient_KeyAndUnique(t *testing.T) {
	t.Parallel()
	b := setup(t)
	add := func(option Option) Added {
		t.Helper()
		added, err := b.client.Add(b.ctx, greet{}, option)
		if err != nil {
			t.Fatal(err)
		}
		return added
	}
	key, unique := add(Key("a")), add(Unique("b"))
	if again := add(Key("a")); !again.Duplicate || again.ID != key.ID {
		t.Errorf("second of a key: %+v, want a duplicate of %v", again, key.ID)
	}
	if again := add(Unique("b")); !again.Duplicate || again.ID != unique.ID {
		t.Errorf("second of a unique key: %+v, want a duplicate of %v", again, unique.ID)
	}
	if n := b.finishAll("default"); n != 2 {
		t.Fatalf("finished %d, want 2", n)
	}
	if again := add(Key("a")); !again.Duplicate || again.ID != key.ID {
		t.Errorf("a key within its hold: %+v, want a duplicate of %v", again, key.ID)
	}
	if again := add(Unique("b")); again.Duplicate || again.ID == unique.ID {
		t.Errorf("a unique key whose job has finished: %+v, want a new job", again)
	}
	// The same key of another kind is another key.
	if other, err := b.client.AddJob(b.ctx, "other", nil, Key("a")); err != nil || other.Duplicate {
		t.Errorf("%+v, %v", other, err)
	}
}

// Whoever gives an id may be repeating an enqueue, in a transaction or not, whose job has run by now.
func TestClient_IDOfAFinishedJob(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, err := b.client.Add(b.ctx, greet{})
	if err != nil {
		t.Fatal(err)
	}
	if n := b.finishAll("default"); n != 1 {
		t.Fatalf("finished %d, want 1", n)
	}
	again, err := b.client.Add(b.ctx, greet{}, ID(first.ID))
	if err != nil || !again.Duplicate || again.ID != first.ID {
		t.Errorf("%+v, %v, want a duplicate", again, err)
	}
	err = b.client.InTx(b.ctx, func(tx *Tx) error {
		again, err := tx.Add(b.ctx, greet{}, ID(first.ID))
		if !again.Duplicate {
			t.Errorf("%+v, want a duplicate", again)
		}
		return err
	})
	if err != nil || b.jobs() != 0 {
		t.Errorf("%v, and %d jobs are to run again", err, b.jobs())
	}
}

func TestClient_SerializableByDefault(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.Configure(func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["default_transaction_isolation"] = "serializable"
	}))
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i := range 25 {
				if _, err := b.client.Add(b.ctx, greet{}, Key(fmt.Sprint(i%5))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if b.jobs() != 5 {
		t.Errorf("%d jobs, want 5", b.jobs())
	}
	if err := b.client.InTx(b.ctx, func(tx *Tx) error {
		var level string
		err := tx.QueryRow(b.ctx, "SHOW transaction_isolation").Scan(&level)
		if level != "read committed" {
			t.Errorf("InTx runs at %s", level)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}

func TestClient_PoolExhausted(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.MaxConns(1))
	conn, err := b.pool.Acquire(b.ctx)
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.newClient(b.pool, Config{Timeout: 100 * time.Millisecond}).Add(b.ctx, greet{})
	conn.Release()
	if err == nil || errors.Is(err, ErrOutcomeUnknown) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want a timeout with nothing stored", err)
	}
	if b.jobs() != 0 {
		t.Error("a job was stored")
	}
}
