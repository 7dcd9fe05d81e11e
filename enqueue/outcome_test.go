package enqueue

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dozequeue/doze/internal/dbtest"
	"github.com/dozequeue/doze/queue"
)

func TestOutcome_LostAnswerIsAskedForAgain(t *testing.T) {
	t.Parallel()
	for name, options := range map[string][]Option{
		"no key": nil, "key": {Key("k")}, "unique": {Unique("k")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			th, pool := steal(t)
			th.arm("INSERT INTO", 2, nil)
			client := b.newClient(pool, Config{})
			added, err := client.Add(b.ctx, greet{}, options...)
			if err != nil {
				t.Fatal(err)
			}
			if th.thefts() != 2 {
				t.Fatalf("%d answers were lost, want 2", th.thefts())
			}
			if !added.Duplicate || b.jobs() != 1 {
				t.Errorf("%+v and %d jobs, want one that was there already", added, b.jobs())
			}
			if id := value[uuid.UUID](b, "SELECT id FROM doze.jobs"); id != added.ID {
				t.Errorf("told of job %v, stored %v", added.ID, id)
			}
			if s := client.Stats(); s.Repeats != 2 || s.Unknown != 0 {
				t.Errorf("stats %+v", s)
			}
		})
	}
}

func TestOutcome_LostAnswerOfABatch(t *testing.T) {
	t.Parallel()
	b := setup(t)
	th, pool := steal(t)
	th.arm("INSERT INTO", 1, nil)
	added, err := b.newClient(pool, Config{}).AddMany(b.ctx, []Entry{{greet{"a"}, nil}, {greet{"b"}, []Option{Key("k")}}, {greet{"c"}, nil}})
	if err != nil || th.thefts() != 1 {
		t.Fatal(err, th.thefts())
	}
	for i, a := range added {
		if !a.Duplicate {
			t.Errorf("job %d: %+v, want a duplicate", i, a)
		}
	}
	if b.jobs() != 3 {
		t.Errorf("%d jobs, want 3", b.jobs())
	}
}

func TestOutcome_LostAnswerOfAJobThatHasFinishedMeanwhile(t *testing.T) {
	t.Parallel()
	for name, option := range map[string]Option{"no key": Priority(0), "key": Key("k"), "unique": Unique("k")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			th, pool := steal(t)
			th.arm("INSERT INTO", 1, func(int) {
				if err := b.store.Configure(b.ctx, b.pool, "default", queue.Settings{}); err != nil { // makes the row
					t.Error(err)
				}
				if n := b.finishAll("default"); n != 1 {
					t.Errorf("finished %d jobs, want 1", n)
				}
			})
			added, err := b.newClient(pool, Config{}).Add(b.ctx, greet{}, option)
			if err != nil {
				t.Fatal(err)
			}
			if !added.Duplicate || b.jobs() != 0 {
				t.Errorf("%+v and %d live jobs, want one that was there and is done", added, b.jobs())
			}
			if job, err := b.store.Get(b.ctx, b.pool, added.ID); err != nil || job.State != queue.Done {
				t.Errorf("%+v, %v, want it done", job, err)
			}
			if name == "unique" { // its job has finished, so the next one is another
				again, err := b.client.Add(b.ctx, greet{}, option)
				if err != nil || again.Duplicate {
					t.Errorf("%+v, %v, want a new job: the key must not stay with one that is done", again, err)
				}
			}
		})
	}
}

func TestOutcome_Unknown(t *testing.T) {
	t.Parallel()
	b := setup(t)
	th, pool := steal(t)
	th.arm("INSERT INTO", -1, nil)
	client := b.newClient(pool, Config{Timeout: 300 * time.Millisecond})
	_, err := client.Add(b.ctx, greet{"s3cret"}, On("mail"))
	var unknown *OutcomeError
	if !errors.As(err, &unknown) || !errors.Is(err, ErrOutcomeUnknown) {
		t.Fatalf("error %v, want an OutcomeError", err)
	}
	if len(unknown.IDs) != 1 || !strings.Contains(err.Error(), unknown.IDs[0].String()) || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("error %v", err)
	}
	wantQueues(t, b.trigger.take(), "mail")
	if s := client.Stats(); s.Unknown != 1 {
		t.Errorf("stats %+v", s)
	}
	// Again, as the error says.
	again, err := b.client.Add(b.ctx, greet{"s3cret"}, On("mail"), ID(unknown.IDs[0]))
	if err != nil || !again.Duplicate || again.ID != unknown.IDs[0] || b.jobs() != 1 {
		t.Errorf("%+v, %v, %d jobs, want one duplicate", again, err, b.jobs())
	}
}

func TestOutcome_CancelledWhileTheAnswerIsOut(t *testing.T) {
	t.Parallel()
	b := setup(t)
	th, pool := steal(t)
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	th.arm("INSERT INTO", -1, func(int) { cancel() })
	_, err := b.newClient(pool, Config{}).Add(ctx, greet{})
	if !errors.Is(err, ErrOutcomeUnknown) || b.jobs() != 1 {
		t.Errorf("error %v, %d jobs", err, b.jobs())
	}
	wantQueues(t, b.trigger.take(), "default")
}

func TestOutcome_LostAnswerToTheCommitOfInTx(t *testing.T) {
	t.Parallel()
	b := setup(t)
	th, pool := steal(t)
	th.arm("commit\x00", 1, nil)
	client := b.newClient(pool, Config{})
	ran := 0
	var added Added
	err := client.InTx(b.ctx, func(tx *Tx) (err error) {
		ran++
		added, err = tx.Add(b.ctx, greet{})
		return err
	})
	var unknown *OutcomeError
	if !errors.As(err, &unknown) || len(unknown.IDs) != 1 || unknown.IDs[0] != added.ID {
		t.Fatalf("error %v, want an OutcomeError of %v", err, added.ID)
	}
	if ran != 1 || b.jobs() != 1 {
		t.Errorf("ran %d times, %d jobs", ran, b.jobs())
	}
	wantQueues(t, b.trigger.take(), "default")
}

// Jobs that are later need their alarm as much when it is not known whether they are stored.
func TestOutcome_UnknownSetsAlarms(t *testing.T) {
	t.Parallel()
	later := []Entry{
		{greet{"a"}, []Option{On("now")}}, {greet{"b"}, []Option{On("both")}},
		{greet{"c"}, []Option{On("both"), In(3 * time.Hour)}}, {greet{"d"}, []Option{On("delay"), In(2 * time.Hour)}},
		{greet{"e"}, []Option{On("delay"), In(time.Hour)}}, {greet{"f"}, []Option{On("time"), At(time.Now().Add(time.Hour))}},
	}
	for name, c := range map[string]struct {
		mark string
		add  func(ctx context.Context, client *Client) error
	}{
		"AddMany": {".jobs (id,", func(ctx context.Context, client *Client) error { _, err := client.AddMany(ctx, later); return err }},
		"InTx": {"commit\x00", func(ctx context.Context, client *Client) error {
			return client.InTx(ctx, func(tx *Tx) error { _, err := tx.AddMany(ctx, later); return err })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			th, pool := steal(t)
			th.arm(c.mark, -1, nil)
			service := &alarms{}
			client := b.newClient(pool, Config{Timeout: 300 * time.Millisecond, Alarm: service})
			if err := c.add(b.ctx, client); !errors.Is(err, ErrOutcomeUnknown) || b.jobs() != len(later) {
				t.Fatalf("error %v and %d jobs, want all of them stored and that not known", err, b.jobs())
			}
			woken := b.trigger.take()
			slices.Sort(woken)
			wantQueues(t, slices.Compact(woken), "both", "now")
			wantAlarms(t, service.take(), map[string]time.Duration{"both": 3 * time.Hour, "delay": time.Hour, "time": time.Hour})
		})
	}
}

func wantAlarms(t *testing.T, got []set, want map[string]time.Duration) {
	t.Helper()
	for _, s := range got {
		if about, ok := want[s.queue]; !ok || (s.in-about).Abs() > about/50 {
			t.Errorf("queue %q has an alarm in %v, want %v", s.queue, s.in, about)
		}
	}
	if len(got) != len(want) {
		t.Errorf("alarms %v, want %v", got, want)
	}
}

// The commit may come even later than we look for what there is.
func TestOutcome_UnknownSetsAlarmsForJobsThatAreNotSeenYet(t *testing.T) {
	t.Parallel()
	b := setup(t)
	lock, err := b.pool.Begin(b.ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer rollback(b.ctx, lock)
	if _, err := lock.Exec(b.ctx, queue.Qualify("LOCK TABLE doze.jobs IN SHARE MODE", b.schema)); err != nil {
		t.Fatal(err)
	}
	service := &alarms{}
	client := b.newClient(b.pool, Config{Alarm: service})
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	go func() { // once the insert waits
		for b.ctx.Err() == nil {
			waiting := false
			err := b.pool.QueryRow(b.ctx, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE $1::integer = ANY(pg_blocking_pids(pid)))", lock.Conn().PgConn().PID()).Scan(&waiting)
			if err != nil || waiting {
				break
			}
		}
		cancel()
	}()
	if _, err := client.Add(ctx, greet{}, In(time.Hour)); !errors.Is(err, ErrOutcomeUnknown) || b.jobs() != 0 {
		t.Fatalf("error %v and %d jobs, want none to be seen", err, b.jobs())
	}
	wantAlarms(t, service.take(), map[string]time.Duration{"default": time.Hour})
}

// A try whose answer was lost has set no alarm, and neither has a call that gave up while the database was away.
// To the try, or the call, that is made again its job is a duplicate, and the alarm is set for that.
func TestOutcome_DuplicatesSetAlarms(t *testing.T) {
	t.Parallel()
	for name, options := range map[string][]Option{
		"no key": {In(time.Hour)}, "key": {Key("k"), In(time.Hour)}, "unique": {Unique("k"), In(time.Hour)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			th, pool := steal(t)
			service := &alarms{}
			client := b.newClient(pool, Config{Alarm: service})
			th.arm(".jobs (id,", 1, nil)
			added, err := client.Add(b.ctx, greet{}, options...)
			if err != nil || th.thefts() != 1 || !added.Duplicate {
				t.Fatalf("%+v, %v, %d answers lost", added, err, th.thefts())
			}
			wantAlarms(t, service.take(), map[string]time.Duration{"default": time.Hour})

			b.exec("UPDATE doze.bells SET armed_at = NULL, armed_id = NULL") // as if that call had ended just before
			if name == "no key" {
				options = append(options, ID(added.ID))
			}
			for range 2 {
				again, err := client.Add(b.ctx, greet{}, options...)
				if err != nil || !again.Duplicate || again.ID != added.ID || b.jobs() != 1 {
					t.Fatalf("%+v, %v, want a duplicate of %v", again, err, added.ID)
				}
			}
			wantAlarms(t, service.take(), map[string]time.Duration{"default": time.Hour})
			wantQueues(t, b.trigger.take())
		})
	}
}

func TestOutcome_AnswerToTheRingIsLost(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if _, err := b.client.Add(b.ctx, greet{}); err != nil { // makes the queue's row
		t.Fatal(err)
	}
	b.trigger.take()
	// The bell is locked, so the ring waits until its connection is killed.
	b.exec("UPDATE doze.bells SET bell_until = NULL")
	lock, err := b.pool.Begin(b.ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Rollback(context.Background()) }()
	if _, err := lock.Exec(b.ctx, queue.Qualify("SELECT FROM doze.bells FOR UPDATE", b.schema)); err != nil {
		t.Fatal(err)
	}
	killer, holder := dbtest.Pool(t), lock.Conn().PgConn().PID()
	killed := make(chan struct{})
	go func() {
		defer close(killed)
		for b.ctx.Err() == nil {
			var n int
			err := killer.QueryRow(b.ctx, "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE $1::integer = ANY(pg_blocking_pids(pid))", holder).Scan(&n)
			if err != nil || n > 0 {
				return
			}
		}
	}()
	added, err := b.client.Add(b.ctx, greet{})
	<-killed
	if err != nil || added.Duplicate || b.jobs() != 2 {
		t.Errorf("%+v, %v, %d jobs, want it stored", added, err, b.jobs())
	}
	wantQueues(t, b.trigger.take(), "default")
}

func TestMaybeCommitted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want bool
	}{
		{errors.New("unexpected EOF"), true},
		{context.DeadlineExceeded, true},
		{&pgconn.PgError{Severity: "ERROR", SeverityUnlocalized: "ERROR", Code: "23514"}, false},
		{&pgconn.PgError{Severity: "FEHLER", SeverityUnlocalized: "ERROR", Code: "40001"}, false},
		{&pgconn.PgError{Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: "57P01"}, true},
		{&unsentError{errors.New("dial")}, false},
		{pgx.ErrTxCommitRollback, false},
	} {
		if got := maybeCommitted(c.err); got != c.want {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
	}
}
