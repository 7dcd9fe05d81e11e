package handler_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dozequeue/doze/handler"
	"github.com/dozequeue/doze/internal/dbtest"
	"github.com/dozequeue/doze/queue"
)

// bill is a handler that writes a row of its own with its job's completion; then does what end says.
func (w *world) bill(end func(context.Context, pgx.Tx) error) handler.RawFunc {
	w.exec(`CREATE TABLE IF NOT EXISTS doze.bills (job uuid)`)
	return func(ctx context.Context, job *queue.Job) error {
		tx, err := w.pool.Begin(ctx)
		if err != nil {
			return err
		}
		defer tx.Rollback(context.WithoutCancel(ctx))
		if _, err := tx.Exec(ctx, queue.Qualify(`INSERT INTO doze.bills VALUES ($1::text::uuid)`, w.name), job.ID.String()); err != nil {
			return err
		}
		if err := handler.CompleteTx(ctx, tx); err != nil {
			return err
		}
		return end(ctx, tx)
	}
}

func TestCompleteTx_TheJobIsDoneExactlyWhenTheTransactionCommits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		end   func(context.Context, pgx.Tx) error
		state queue.State
		bills int
		text  string
		count func(handler.Drained) int
	}{
		{"commit", func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) }, queue.Done, 1, "",
			func(r handler.Drained) int { return r.Done }},
		{"commit and then an error", func(ctx context.Context, tx pgx.Tx) error { return errors.Join(tx.Commit(ctx), errors.New("too late")) }, queue.Done, 1, "",
			func(r handler.Drained) int { return r.Done }},
		{"commit and then a panic", func(ctx context.Context, tx pgx.Tx) error { _ = tx.Commit(ctx); panic("too late") }, queue.Done, 1, "",
			func(r handler.Drained) int { return r.Done }},
		{"rollback with an error", func(context.Context, pgx.Tx) error { return errors.New("changed my mind") }, queue.Queued, 0, "changed my mind",
			func(r handler.Drained) int { return r.Retried }},
		{"rollback and snooze", func(context.Context, pgx.Tx) error { return handler.Snooze(time.Hour) }, queue.Queued, 0, "",
			func(r handler.Drained) int { return r.Snoozed }},
		{"rollback and nil", func(context.Context, pgx.Tx) error { return nil }, queue.Queued, 0, "in a transaction that was not committed",
			func(r handler.Drained) int { return r.Retried }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			id := w.add("bill")
			var hooked []handler.Failure
			report := w.drain(w.drainer(kinds(map[string]handler.RawFunc{"bill": w.bill(c.end)}), handler.Config{Backoff: later,
				OnFailure: func(_ context.Context, f handler.Failure) { hooked = append(hooked, f) }}))
			job := w.wants(id, c.state)
			if !strings.Contains(job.LastError, c.text) || c.text == "" && job.LastError != "" || c.count(report) != 1 || report.Lost != 0 {
				t.Errorf("last error %q; report %+v", job.LastError, report)
			}
			if len(hooked) != job.Failures || job.Failures > 0 && !strings.Contains(hooked[0].Err.Error(), c.text) {
				t.Errorf("the hook got %+v", hooked)
			}
			if n := w.int(`SELECT count(*) FROM doze.bills`); n != c.bills {
				t.Errorf("%d bills", n)
			}
		})
	}
}

func TestCompleteTx_IsRefusedToWhoLostTheLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.add("bill")
	other := w.drainer(kinds(map[string]handler.RawFunc{"bill": nothing}), handler.Config{})
	bill := w.bill(func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) })
	var got error
	report := w.drain(w.drainer(kinds(map[string]handler.RawFunc{"bill": func(ctx context.Context, job *queue.Job) error {
		w.expire()
		w.drain(other)
		got = bill(ctx, job)
		return got
	}}), handler.Config{}))
	if !errors.Is(got, handler.ErrLeaseLost) || report.Lost != 1 {
		t.Errorf("%v; report %+v", got, report)
	}
	w.wants(id, queue.Done)
	if n := w.int(`SELECT count(*) FROM doze.bills`); n != 0 {
		t.Errorf("%d bills", n)
	}
	w.must(pgx.BeginFunc(w.ctx, w.pool, func(tx pgx.Tx) error {
		if err := handler.CompleteTx(w.ctx, tx); err == nil {
			t.Error("a context that is not a handler's: no error")
		}
		return nil
	}))
}

// The transaction holds the job's row. A renewal must not wait for it: that would cost all the others of the drain
// their leases.
func TestCompleteTx_ALongTransactionDoesNotKeepLeasesFromBeingRenewed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	other := newWaiter()
	id, neighbour := w.add("bill"), w.add("other")
	completed, commit := make(chan struct{}), make(chan struct{})
	bill := w.bill(func(ctx context.Context, tx pgx.Tx) error {
		close(completed)
		select {
		case <-commit:
			return tx.Commit(ctx)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	wait := w.inBackground(w.ctx, w.drainer(kinds(map[string]handler.RawFunc{"bill": bill, "other": other.run}), handler.Config{Lease: 3 * time.Second}))
	receive(w, other.begun)
	receive(w, completed)
	w.until(`SELECT locked_until > (SELECT max(run_at) FROM doze.jobs) + interval '4.5 seconds' FROM doze.jobs WHERE id = $1::text::uuid`, neighbour.String())
	close(commit)
	other.proceed <- nil
	report, err := wait()
	w.must(err)
	w.addsUp(report)
	if report.Done != 2 {
		t.Errorf("report %+v", report)
	}
	w.wants(id, queue.Done)
}

func TestPgBouncer_CompleteTx(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.add("bill")
	direct := w.pool
	bill := w.bill(func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) })
	w.pool = dbtest.Pool(t, dbtest.At(dbtest.PgBouncer(t, dbtest.URL(t))), dbtest.Mode(pgx.QueryExecModeExec))
	report := w.drain(w.drainer(kinds(map[string]handler.RawFunc{"bill": bill}), handler.Config{}))
	w.pool = direct
	if w.wants(id, queue.Done); report.Done != 1 {
		t.Errorf("report %+v", report)
	}
}
