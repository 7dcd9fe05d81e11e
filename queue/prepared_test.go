package queue_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/dozequeue/doze/internal/dbtest"
	"github.com/dozequeue/doze/queue"
)

// names is how many statements of Doze's the session has prepared.
func (w *world) names(conn *pgx.Conn) (n int) {
	w.t.Helper()
	w.must(conn.QueryRow(w.ctx, "SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'doze%'", pgx.QueryExecModeExec).Scan(&n))
	return n
}

func TestPrepared_OnADirectConnectionOnly(t *testing.T) {
	t.Parallel()
	for name, pooled := range map[string]bool{"direct": false, "behind PgBouncer": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var opts []dbtest.Option
			if pooled {
				opts = append(opts, dbtest.At(dbtest.PgBouncer(t, dbtest.URL(t))))
			}
			w := newWorld(t, opts...)
			w.queue("q")
			conn := w.conn()
			for round, want := range []int{0, 2, 2} { // it is not known at first, and then the same two statements come again
				_, _, err := w.store.InsertAndRing(w.ctx, conn, newJobs(1), false, bell)
				w.must(err)
				if pooled {
					want = 0
				}
				if n := w.names(conn); n != want {
					t.Errorf("after call %d %d statements are prepared, want %d", round+1, n, want)
				}
			}
		})
	}
}

// Somebody drops the names: one call fails, in a class that is tried again, and the next one goes through.
func TestPrepared_IsRepairedAfterDiscard(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conn := w.conn()
	insert := func() error {
		_, _, err := w.store.InsertAndRing(w.ctx, conn, newJobs(1), false, bell)
		return err
	}
	for range 2 {
		w.must(insert())
	}
	_, err := conn.Exec(w.ctx, "DEALLOCATE ALL", pgx.QueryExecModeExec)
	w.must(err)
	if err := insert(); queue.Classify(err) != queue.Conflict {
		t.Errorf("with its names dropped: %v; want one that is tried again", err)
	}
	w.must(insert())
	if n := w.int(`SELECT count(*) FROM doze.jobs`); n != 3 {
		t.Errorf("%d jobs, want 3: the call that failed stored nothing", n)
	}
}

// An error in a round trip leaves what was prepared in it unknown. Nothing is prepared twice under one name.
func TestPrepared_SurvivesErrors(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conn := w.conn()
	w.queue("q")
	w.start(conn, "q", 1) // so that it is known to be direct
	for range 3 {
		if _, _, err := w.store.InsertAndRing(w.ctx, conn, []queue.NewJob{newJob(func(j *queue.NewJob) { j.Kind = "not a kind!" })}, false, bell); err == nil {
			t.Error("a wrong kind was stored")
		}
		slot := newSlot("q")
		_, err := w.store.Start(w.ctx, conn, slot, "", 1)
		w.must(err)
		w.must(w.store.Abandon(w.ctx, conn, slot))
		if _, _, err := w.store.InsertAndRing(w.ctx, conn, newJobs(1), false, bell); err != nil {
			t.Fatal(err)
		}
	}
}
