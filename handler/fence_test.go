package handler_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dozequeue/doze/handler"
	"github.com/dozequeue/doze/internal/dbtest"
	"github.com/dozequeue/doze/queue"
)

// waiter is a handler that tells when it has begun, and goes on until it is told to or its context ends.
type waiter struct {
	begun   chan *queue.Job
	cause   chan error
	proceed chan error // what to return
}

func newWaiter() *waiter {
	return &waiter{begun: make(chan *queue.Job, 100), cause: make(chan error, 100), proceed: make(chan error, 100)}
}

func (h *waiter) run(ctx context.Context, job *queue.Job) error {
	h.begun <- job
	select {
	case err := <-h.proceed:
		return err
	case <-ctx.Done():
		h.cause <- context.Cause(ctx)
		return ctx.Err()
	}
}

func TestFence_ACancelledJobsHandlerEndsAtTheNextRenewal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h, other := newWaiter(), newWaiter()
	id, neighbour := w.add("k"), w.add("other")
	d := w.drainer(kinds(map[string]handler.RawFunc{"k": h.run, "other": other.run}), handler.Config{Lease: 3 * time.Second,
		OnFailure: func(context.Context, handler.Failure) { t.Error("a refused result reached the failure hook") }})
	wait := w.inBackground(w.ctx, d)
	receive(w, h.begun)
	receive(w, other.begun)
	_, err := w.store.Cancel(w.ctx, w.pool, id)
	w.must(err)
	if cause := receive(w, h.cause); !errors.Is(cause, handler.ErrLeaseLost) {
		t.Errorf("cause %v", cause)
	}
	other.proceed <- nil
	report, err := wait()
	w.must(err)
	w.addsUp(report)
	if report.Lost != 1 || report.Done != 1 || report.Claimed != 2 {
		t.Errorf("report %+v", report)
	}
	if job := w.wants(id, queue.Cancelled); job.LastError != "" || job.Failures != 0 {
		t.Errorf("the refused result changed it: %+v", job)
	}
	w.wants(neighbour, queue.Done)
}

func TestFence_TheFirstOwnersResultChangesNothingAfterAnotherClaim(t *testing.T) {
	t.Parallel()
	for _, result := range []struct {
		name string
		err  error
	}{
		{"nil", nil}, {"error", errors.New("late")}, {"snooze", handler.Snooze(0)}, {"discard", handler.Discard(errors.New("late"))},
	} {
		t.Run(result.name, func(t *testing.T) {
			w := newWorld(t)
			first, second := newWaiter(), newWaiter()
			id := w.add("k", maxAttempts(1))
			refuse := func(context.Context, handler.Failure) { t.Error("a refused result reached the failure hook") }
			waitFirst := w.inBackground(w.ctx, w.drainer(kinds(map[string]handler.RawFunc{"k": first.run}), handler.Config{Lease: time.Hour, OnFailure: refuse}))
			receive(w, first.begun)
			w.expire()
			waitSecond := w.inBackground(w.ctx, w.drainer(kinds(map[string]handler.RawFunc{"k": second.run}), handler.Config{}))
			if job := receive(w, second.begun); job.Attempts != 2 || job.Reaps != 1 {
				t.Errorf("claimed again: %+v", job)
			}
			before := w.text(`SELECT j::text FROM doze.jobs j`)
			first.proceed <- result.err
			report, err := waitFirst()
			w.must(err)
			w.addsUp(report)
			if report.Lost != 1 {
				t.Errorf("the first: %+v", report)
			}
			if after := w.text(`SELECT j::text FROM doze.jobs j`); after != before {
				t.Errorf("the row was\n%s and is\n%s", before, after)
			}
			second.proceed <- nil
			report, err = waitSecond()
			w.must(err)
			if report.Done != 1 || report.Reaped != 1 {
				t.Errorf("the second: %+v", report)
			}
			if job := w.wants(id, queue.Done); job.Failures != 0 {
				t.Errorf("%+v", job)
			}
		})
	}
}

// The handler must end while the lease still keeps others off its job, however the database is
// lost, and whatever the drain was doing just then.
func TestFence_HandlersEndBeforeALeaseThatCannotBeRenewed(t *testing.T) {
	t.Parallel()
	for _, cut := range cuts() {
		for _, doing := range []string{"waiting", "recording"} {
			t.Run(cut.name+" while "+doing, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				p := newProxy(t)
				h, quick := newWaiter(), newWaiter()
				id, other := w.add("k"), w.add("quick")
				d := w.drainerOn(p.pool(t), kinds(map[string]handler.RawFunc{"k": h.run, "quick": quick.run}), handler.Config{Lease: 3 * time.Second})
				wait := w.inBackground(w.ctx, d)
				receive(w, h.begun)
				receive(w, quick.begun)
				cut.begin(p)
				if doing == "recording" {
					quick.proceed <- nil
				}
				if cause := receive(w, h.cause); !errors.Is(cause, handler.ErrLeaseLost) {
					t.Errorf("cause %v", cause)
				}
				if n := w.int(`SELECT count(*) FROM doze.jobs WHERE id = $1::text::uuid AND locked_until > clock_timestamp()`, id.String()); n != 1 {
					t.Error("its lease had ended before")
				}
				h.proceed <- nil // should the drain see the database again in time to go on with them
				quick.proceed <- nil
				cut.close(p)
				report, err := wait()
				w.must(err)
				w.addsUp(report)
				// Nobody else had come, so the job need not wait for the end of its lease.
				if job := w.get(id); job.State == queue.Running || job.Failures != 0 || job.Reaps != 0 || report.Interrupted == 0 {
					t.Errorf("%+v; report %+v", job, report)
				}
				if doing == "recording" {
					w.wants(other, queue.Done)
				}
			})
		}
	}
}

// A drain that fails in the middle leaves no handler behind, no goroutine that will run one, and no open slot.
func TestDrain_EndsItsHandlersWhenTheDatabaseIsGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := newProxy(t)
	h := newWaiter()
	ids := w.addMany(3, "k")
	d := w.drainerOn(p.pool(t), kinds(map[string]handler.RawFunc{"k": h.run}), handler.Config{Concurrency: 3, Reconnect: time.Millisecond})
	wait := w.inBackground(w.ctx, d)
	for range ids {
		receive(w, h.begun)
	}
	p.set(func() { p.down = true })
	h.proceed <- nil // to be recorded
	if _, err := wait(); queue.Classify(err) != queue.Unavailable {
		t.Errorf("error %v", err)
	}
	for range 2 {
		select {
		case cause := <-h.cause:
			if !errors.Is(cause, handler.ErrLeaseLost) {
				t.Errorf("cause %v", cause)
			}
		default:
			t.Error("the drain returned before its handlers")
		}
	}
	if d.Tainted() {
		t.Error("tainted")
	}
	w.expire()
	if report := w.drain(w.drainer(kinds(map[string]handler.RawFunc{"k": nothing}), handler.Config{})); report.Done != 3 {
		t.Errorf("afterwards: %+v", report)
	}
}

// After an error that is not the database's absence the slot is given up and what can be recorded is.
func TestDrain_GivesUpItsSlotAfterAnError(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := newWaiter()
	first := w.add("k")
	wait := w.inBackground(w.ctx, w.drainer(kinds(map[string]handler.RawFunc{"k": h.run}), handler.Config{}))
	receive(w, h.begun)
	w.exec(`CREATE FUNCTION doze.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF NEW.attempts > OLD.attempts THEN RAISE EXCEPTION 'no claims' USING ERRCODE = '23514'; END IF; RETURN NEW; END $$`)
	w.exec(`CREATE TRIGGER refuse BEFORE UPDATE ON doze.jobs FOR EACH ROW EXECUTE FUNCTION doze.refuse()`)
	second := w.add("k")
	h.proceed <- nil
	if report, err := wait(); err == nil || report.Done != 1 || !report.More {
		t.Errorf("report %+v, %v", report, err)
	}
	w.wants(first, queue.Done)
	w.wants(second, queue.Queued)
	if n := w.int(`SELECT count(*) FROM doze.slots WHERE token IS NOT NULL`); n != 0 {
		t.Errorf("%d slots are held", n)
	}
}

// The statement was carried out, and its answer got lost.
func TestDrain_AnOutcomeWhoseAnswerIsLostCountsAsRecorded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		history string
		result  error
		count   func(handler.Drained) int
		state   queue.State
	}{
		{"done", "on", nil, func(r handler.Drained) int { return r.Done }, queue.Done},
		{"done without history", "off", nil, func(r handler.Drained) int { return r.Done }, ""},
		{"retried", "on", errors.New("no luck"), func(r handler.Drained) int { return r.Retried }, queue.Queued},
		{"failed", "on", handler.Discard(errors.New("no luck")), func(r handler.Drained) int { return r.Failed }, queue.Failed},
		{"snoozed", "on", handler.Snooze(time.Hour), func(r handler.Drained) int { return r.Snoozed }, queue.Queued},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			p := newProxy(t)
			w.configure(queue.Settings{History: c.history})
			id := w.add("k")
			hooked := 0
			d := w.drainerOn(p.pool(t), kinds(map[string]handler.RawFunc{"k": func(context.Context, *queue.Job) error {
				p.set(func() { p.lose = true })
				return c.result
			}}), handler.Config{Backoff: later, OnFailure: func(context.Context, handler.Failure) { hooked++ }})
			report := w.drain(d)
			if p.losses() != 1 || c.count(report) != 1 || report.Lost != 0 {
				t.Errorf("%d lost; report %+v", p.losses(), report)
			}
			if c.state == "" {
				if _, err := w.store.Get(w.ctx, w.pool, id); !errors.Is(err, queue.ErrNotFound) {
					t.Errorf("it is still there: %v", err)
				}
			} else if job := w.wants(id, c.state); job.Attempts != 1 || hooked != job.Failures {
				t.Errorf("%+v, %d calls of the hook", job, hooked)
			}
		})
	}
}

// Every answer of a drain may get lost: at most the jobs claimed by a lost answer wait for the end of their lease.
func TestDrain_AnyLostAnswer(t *testing.T) {
	t.Parallel()
	for n := range 8 {
		w := newWorld(t)
		p := newProxy(t)
		ids := w.addMany(6, "k")
		answers := 0
		pool := p.pool(t, dbtest.MaxConns(1))
		w.must(pool.Ping(w.ctx))
		d := w.drainerOn(pool, kinds(map[string]handler.RawFunc{"k": func(context.Context, *queue.Job) error {
			if answers++; answers == n {
				p.set(func() { p.lose = true })
			}
			return nil
		}}), handler.Config{Concurrency: 1, BatchSize: 2})
		if n == 0 {
			p.set(func() { p.lose = true }) // that of the start
		}
		w.drain(d)
		w.expire()
		w.drain(d)
		for _, id := range ids {
			w.wants(id, queue.Done)
		}
		if held := w.int(`SELECT count(*) FROM doze.slots WHERE token IS NOT NULL`); held != 0 {
			t.Errorf("%d: %d slots are held", n, held)
		}
	}
}

// Backends end between claim and finish, and again while the pool is idle.
func TestDrain_SurvivesARestartOfTheDatabase(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	app := "doze-" + uuid.NewString()
	pool := dbtest.Pool(t, dbtest.Configure(func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["application_name"] = app }))
	ends := func() {
		w.t.Helper()
		if n := w.int(`SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = $1`, app); n == 0 {
			t.Error("no backend was there to be ended")
		}
		w.until(`SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = $1`, app)
	}
	h := newWaiter()
	d := w.drainerOn(pool, kinds(map[string]handler.RawFunc{"k": h.run}), handler.Config{Concurrency: 5})
	for round := range 3 {
		ids := w.addMany(5, "k")
		if round > 0 {
			ends() // stale connections in the pool
		}
		wait := w.inBackground(w.ctx, d)
		for range ids {
			receive(w, h.begun)
		}
		ends()
		for range ids {
			h.proceed <- nil
		}
		report, err := wait()
		w.must(err)
		w.addsUp(report)
		if report.Done != 5 || report.Lost != 0 {
			t.Errorf("report %+v", report)
		}
		for _, id := range ids {
			if job := w.wants(id, queue.Done); job.Attempts != 1 {
				t.Errorf("%d attempts", job.Attempts)
			}
		}
	}
}

// A part of the start that is refused, here by a lock on the queue's row, leaves neither a second
// slot nor a job that is held and not run.
func TestDrain_BeginsAgainAfterAConflict(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.configure(queue.Settings{Slots: 1})
	id := w.add("k")
	pool := dbtest.Pool(t, dbtest.Configure(func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["lock_timeout"] = "20ms" }))
	tx, err := w.pool.Begin(w.ctx)
	w.must(err)
	defer tx.Rollback(w.ctx)
	_, err = tx.Exec(w.ctx, queue.Qualify(`SELECT FROM doze.bells WHERE queue = 'q' FOR UPDATE`, w.name))
	w.must(err)
	wait := w.inBackground(w.ctx, w.drainerOn(pool, kinds(map[string]handler.RawFunc{"k": nothing}), handler.Config{}))
	w.until(`SELECT attempts > 1 FROM doze.jobs WHERE id = $1::text::uuid`, id.String()) // claimed, and given back
	w.must(tx.Rollback(w.ctx))
	report, err := wait()
	w.must(err)
	w.addsUp(report)
	if job := w.wants(id, queue.Done); job.Reaps != 0 || report.Done != 1 || report.NoSlot {
		t.Errorf("%+v; report %+v", job, report)
	}
	if n := w.int(`SELECT count(*) FROM doze.slots WHERE token IS NOT NULL`); n != 0 {
		t.Errorf("%d slots are held", n)
	}
}
