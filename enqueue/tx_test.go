package enqueue

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dozequeue/doze/queue"
)

func TestClient_AddTx(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, b *bundle) {
		tx, err := b.pool.Begin(b.ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(context.Background()) }()
		one, err := b.client.AddTx(b.ctx, tx, greet{"one"}, On("a"), Key("k"))
		if err != nil {
			t.Fatal(err)
		}
		many, err := b.client.AddManyTx(b.ctx, tx, []Entry{
			{greet{"two"}, []Option{On("b")}},
			{greet{"three"}, []Option{On("a"), In(time.Hour)}},
			{greet{"four"}, []Option{On("a"), Key("k")}},
			{greet{"five"}, []Option{On("later"), In(time.Hour)}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if !many[2].Duplicate || many[2].ID != one.ID {
			t.Errorf("%+v, want a duplicate of %v", many[2], one.ID)
		}
		if b.rows() != 0 {
			t.Errorf("%d rows are seen before the commit", b.rows())
		}
		if err := tx.Commit(b.ctx); err != nil {
			t.Fatal(err)
		}
		// Nothing of a ring was in the transaction.
		if n := value[int](b, "SELECT count(*) FROM doze.queues"); n != 0 || b.jobs() != 4 {
			t.Errorf("%d queues and %d jobs, want none and 4", n, b.jobs())
		}
		wantQueues(t, b.trigger.take())
		if err := b.client.Fire(b.ctx, append(many, one)...); err != nil {
			t.Fatal(err)
		}
		woken := b.trigger.take()
		slices.Sort(woken)
		wantQueues(t, woken, "a", "b")
		if !b.bell("a") || !b.bell("b") || b.bell("later") {
			t.Error("want the bells of a and b set, and that of later not")
		}
	})
}

func TestClient_AddTxLeavesTheTransactionUsableAfterAFieldError(t *testing.T) {
	t.Parallel()
	b := setup(t)
	err := b.client.InTx(b.ctx, func(tx *Tx) error {
		_, err := tx.Add(b.ctx, greet{}, On("not a queue"))
		wantField(t, err, "queue", -1)
		_, err = tx.AddMany(b.ctx, []Entry{{greet{}, nil}, {greet{}, []Option{Priority(99)}}})
		wantField(t, err, "priority", 1)
		_, err = tx.Add(b.ctx, greet{})
		return err
	})
	if err != nil || b.jobs() != 1 {
		t.Errorf("%v, %d jobs", err, b.jobs())
	}
}

func TestClient_InTx(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, b *bundle) {
		b.exec("CREATE TABLE doze.users (name text)")
		b.trigger.before = func(context.Context, queue.Wake) {
			if value[int](b, "SELECT count(*) FROM doze.users") != 1 || b.jobs() != 2 {
				t.Error("the trigger was fired before the commit")
			}
		}
		err := b.client.InTx(b.ctx, func(tx *Tx) error {
			if _, err := tx.Exec(b.ctx, queue.Qualify("INSERT INTO doze.users VALUES ('Ann')", b.schema)); err != nil {
				return err
			}
			if _, err := tx.Add(b.ctx, greet{"Ann"}); err != nil {
				return err
			}
			_, err := tx.AddMany(b.ctx, []Entry{{greet{"Bo"}, nil}})
			if b.bell("default") {
				t.Error("the bell is rung inside the transaction")
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		wantQueues(t, b.trigger.take(), "default")
	})
}

func TestClient_InTxRollsBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	boom := errors.New("boom")
	add := func(tx *Tx) {
		if _, err := tx.Add(b.ctx, greet{}); err != nil {
			t.Error(err)
		}
	}
	if err := b.client.InTx(b.ctx, func(tx *Tx) error { add(tx); return boom }); err != boom {
		t.Errorf("error %v, want that of the function", err)
	}
	func() {
		defer func() {
			if p := recover(); p != boom {
				t.Errorf("recovered %v, want the function's panic", p)
			}
		}()
		_ = b.client.InTx(b.ctx, func(tx *Tx) error { add(tx); panic(boom) })
	}()
	// An aborted transaction commits as a rollback, and its error must not be lost.
	err := b.client.InTx(b.ctx, func(tx *Tx) error {
		add(tx)
		_, _ = tx.Exec(b.ctx, "SELECT 1/0")
		return nil
	})
	if !errors.Is(err, pgx.ErrTxCommitRollback) || errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("error %v, want ErrTxCommitRollback", err)
	}
	err = b.client.InTx(b.ctx, func(tx *Tx) error { add(tx); return tx.Rollback(b.ctx) })
	if !errors.Is(err, pgx.ErrTxClosed) || errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("error %v, want ErrTxClosed", err)
	}
	err = b.client.InTx(b.ctx, func(tx *Tx) error { add(tx); return tx.Commit(b.ctx) })
	if err == nil {
		t.Error("a commit inside the function was let through")
	}
	if b.rows() != 0 {
		t.Errorf("%d rows are left", b.rows())
	}
	wantQueues(t, b.trigger.take())
}

// A deferred constraint fails at the commit: the server says so, so nothing is unknown.
func TestClient_InTxCommitRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec("CREATE TABLE doze.once (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
	err := b.client.InTx(b.ctx, func(tx *Tx) error {
		if _, err := tx.Exec(b.ctx, queue.Qualify("INSERT INTO doze.once VALUES (1), (1)", b.schema)); err != nil {
			return err
		}
		_, err := tx.Add(b.ctx, greet{})
		return err
	})
	if err == nil || errors.Is(err, ErrOutcomeUnknown) || b.rows() != 0 {
		t.Errorf("error %v, %d rows", err, b.rows())
	}
	wantQueues(t, b.trigger.take())
}

func TestClient_InTxCancelledLeavesNothingOpen(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec("CREATE TABLE doze.users (name text)")
	for name, work := range map[string]func(ctx context.Context, cancel func(), tx *Tx) error{
		"between statements": func(ctx context.Context, cancel func(), _ *Tx) error {
			cancel()
			return ctx.Err()
		},
		"in a statement": func(ctx context.Context, cancel func(), tx *Tx) error {
			time.AfterFunc(20*time.Millisecond, cancel)
			_, err := tx.Exec(ctx, "SELECT pg_sleep(60)")
			return err
		},
		"before the commit": func(_ context.Context, cancel func(), _ *Tx) error {
			cancel()
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(b.ctx)
			defer cancel()
			var pid int
			err := b.client.InTx(ctx, func(tx *Tx) error {
				if err := tx.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&pid); err != nil {
					return err
				}
				if _, err := tx.Exec(ctx, queue.Qualify("LOCK TABLE doze.users", b.schema)); err != nil {
					return err
				}
				if _, err := tx.Add(ctx, greet{}); err != nil {
					return err
				}
				return work(ctx, cancel, tx)
			})
			if !errors.Is(err, context.Canceled) || errors.Is(err, ErrOutcomeUnknown) {
				t.Errorf("error %v, want that the context was cancelled, with nothing committed", err)
			}
			// This waits for the lock, so it returns once the transaction is over.
			b.exec("INSERT INTO doze.users VALUES ('Ann')")
			// A statement that was cut off takes its connection with it, in the background.
			// Until then its transaction is aborted and holds nothing.
			for value[bool](b, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1::integer AND state LIKE 'idle in transaction%')", pid) {
				runtime.Gosched() // b.ctx ends this
			}
			// With no statement to cut off, the rollback is not cut off either, and the pool keeps the connection.
			if name == "between statements" && !value[bool](b, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1::integer)", pid) {
				t.Error("the connection was given up with its transaction open")
			}
			if b.jobs() != 0 {
				t.Errorf("%d jobs", b.jobs())
			}
			wantQueues(t, b.trigger.take())
		})
	}
}

// A transaction that took longer than those who look for jobs leave alone: its jobs are found all the same, those that were
// for later when they were added too.
func TestClient_InTxThatTookLong(t *testing.T) {
	t.Parallel()
	for name, option := range map[string]Option{"due": On("default"), "due meanwhile": In(time.Millisecond), "one time of two": At(time.Now().Add(-time.Hour))} {
		for kind, service := range map[string]queue.Alarm{"with alarm": &alarms{}, "without": nil} {
			t.Run(name+" "+kind, func(t *testing.T) {
				t.Parallel()
				b := setup(t)
				client := b.newClient(b.pool, Config{Alarm: service})
				if _, err := client.Add(b.ctx, greet{}); err != nil { // makes the queue
					t.Fatal(err)
				}
				b.finishAll("default")
				b.trigger.take()
				if err := client.InTx(b.ctx, func(tx *Tx) error {
					_, err := tx.AddMany(b.ctx, []Entry{{greet{}, []Option{option}}, {greet{}, []Option{option, Key("k")}}})
					b.exec(`SELECT pg_sleep(0.01)`)
					b.exec(`UPDATE doze.bells SET floor = clock_timestamp()`)
					return err
				}); err != nil {
					t.Fatal(err)
				}
				if name == "due meanwhile" && service == nil {
					wantQueues(t, b.trigger.take()) // but whoever comes finds it
				} else {
					wantQueues(t, b.trigger.take(), "default")
				}
				if n := b.finishAll("default"); n != 2 {
					t.Errorf("finished %d jobs, want 2", n)
				}
			})
		}
	}
}
