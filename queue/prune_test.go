package queue_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/dozequeue/doze/queue"
)

// file puts a finished job into history as of days ago, where a finish of that day would have.
func (w *world) file(days int, state queue.State) {
	w.t.Helper()
	w.exec(`INSERT INTO doze.history (id, bucket, queue, kind, state, priority, run_at, attempts, failures, max_attempts, reaps, created_at, finished_at, payload)
		SELECT gen_random_uuid(), CASE WHEN $2 = 'failed' THEN -1 ELSE (floor(extract(epoch FROM t) / 86400)::bigint % 8)::smallint END,
		       'q', 'k', $2, 0, t, 1, 0, 10, 0, t, t, '{}' FROM (SELECT now() - make_interval(days => $1)) d(t)`, days, string(state))
}

// History is a ring of eight days: whole days older than the time to keep are emptied, and today and
// the days to keep stay, whatever the day.
func TestPruneHistory_EmptiesWholeDays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	left := func() string {
		t.Helper()
		return w.text(`SELECT (floor(extract(epoch FROM now()) / 86400) - floor(extract(epoch FROM finished_at) / 86400))::text
			FROM doze.history WHERE state <> 'failed' GROUP BY 1 ORDER BY 1`)
	}
	for _, c := range []struct {
		keepDays int
		emptied  int
		left     string
	}{
		// A day that ended d days ago at the latest has ended more than d-1 days ago, and less than d.
		{6, 0, "0,1,2,3,4,5,6"}, {3, 3, "0,1,2,3"}, {3, 0, "0,1,2,3"}, {1, 2, "0,1"}, {0, 1, "0"}, {0, 0, "0"},
	} {
		if c.keepDays == 6 {
			for d := range 7 {
				w.file(d, queue.Done)
				w.file(d, queue.Cancelled)
				w.file(d, queue.Failed)
			}
		}
		n, err := w.store.PruneHistory(w.ctx, w.pool, time.Duration(c.keepDays)*24*time.Hour)
		w.must(err)
		if got := left(); n != c.emptied || got != c.left {
			t.Errorf("keep %d days: emptied %d, left the days %s; want %d and %s", c.keepDays, n, got, c.emptied, c.left)
		}
	}
	if n := w.int(`SELECT count(*) FROM doze.history_failed`); n != 7 {
		t.Errorf("%d failed jobs are left, want all 7: they wait for a person", n)
	}
	// The eighth day's place is today's: its rows stay until today is pruned, and nothing of today goes.
	w.file(7, queue.Done)
	w.file(8, queue.Done)
	if n, err := w.store.PruneHistory(w.ctx, w.pool, queue.MaxKeep); err != nil || n != 1 || left() != "0,8" {
		t.Errorf("after eight days without a sweep: emptied %d, %v, left %s", n, err, left())
	}
	for _, keep := range []time.Duration{-1, queue.MaxKeep + 1} {
		var wrong *queue.FieldError
		if _, err := w.store.PruneHistory(w.ctx, w.pool, keep); !errors.As(err, &wrong) {
			t.Errorf("keep %v: %v, want a FieldError", keep, err)
		}
	}
}

// A finished job goes where the pruning looks for it.
func TestFinish_FilesUnderToday(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, c := w.claim(w.conn())
	w.finish(outcome(c, queue.Done))
	w.file(0, queue.Done)
	if n := w.int(`SELECT count(DISTINCT bucket) FROM doze.history`); n != 1 {
		t.Errorf("jobs that ended today lie in %d partitions", n)
	}
}

// A day that somebody reads is left for the next sweep: no error, no long wait, and the other
// days are emptied all the same.
func TestPruneHistory_SkipsADayThatIsLocked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, mode := range []string{"ACCESS SHARE", "ACCESS EXCLUSIVE"} {
		w.file(2, queue.Done)
		w.file(3, queue.Done)
		w.file(4, queue.Done)
		tx, err := w.pool.Begin(w.ctx)
		w.must(err)
		bucket := w.int(`SELECT bucket FROM doze.history WHERE finished_at < now() - interval '2 days 12 hours' AND finished_at > now() - interval '3 days 12 hours'`)
		_, err = tx.Exec(w.ctx, queue.Qualify(fmt.Sprintf("LOCK TABLE doze.history_%d IN %s MODE", bucket, mode), w.name))
		w.must(err)
		ctx, cancel := context.WithTimeout(w.ctx, 10*time.Second)
		n, err := w.store.PruneHistory(ctx, w.pool, 24*time.Hour)
		cancel()
		if err != nil || n != 2 {
			t.Errorf("locked in %s: emptied %d, %v; want the two other days", mode, n, err)
		}
		w.must(tx.Rollback(w.ctx))
		if n, err := w.store.PruneHistory(w.ctx, w.pool, 24*time.Hour); err != nil || n != 1 {
			t.Errorf("afterwards: emptied %d, %v; want 1", n, err)
		}
	}
}

// Deletes go in bounded chunks, oldest first, and two sweeps at once do not wait for each other.
func TestPruneFailed_InChunksOldestFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for d := range 10 {
		w.file(d, queue.Failed)
	}
	w.file(9, queue.Done)
	prune := func(limit int) int {
		t.Helper()
		n, err := w.store.PruneFailed(w.ctx, w.pool, 3*24*time.Hour-time.Hour, limit)
		w.must(err)
		return n
	}
	if n := prune(2); n != 2 {
		t.Errorf("deleted %d, want 2", n)
	}
	if got := w.text(`SELECT count(*)::text || ' up to ' || extract(day FROM now() - min(finished_at)) FROM doze.history_failed`); got != "8 up to 7" {
		t.Errorf("left %s, want the oldest two gone", got)
	}
	tx, err := w.pool.Begin(w.ctx)
	w.must(err)
	if n, err := w.store.PruneFailed(w.ctx, tx, 0, 3); err != nil || n != 3 {
		t.Errorf("in a transaction: %d, %v", n, err)
	}
	if n := prune(100); n != 2 {
		t.Errorf("beside it: deleted %d, want the 2 that it left", n)
	}
	w.must(tx.Commit(w.ctx))
	if n := prune(100); n != 0 {
		t.Errorf("at last: deleted %d, want none: the others are to be kept", n)
	}
	if n := w.int(`SELECT count(*) FROM doze.history`); n != 4 {
		t.Errorf("%d rows left, want 3 failed jobs and the done one", n)
	}
}

// An id that has failed twice: its newer failure outlives the older one.
func TestPruneFailed_TellsTwoFailuresOfOneIDApart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.file(9, queue.Failed)
	w.file(1, queue.Failed)
	w.exec(`UPDATE doze.history_failed SET id = $1::text::uuid`, uuid.NewString())
	if n, err := w.store.PruneFailed(w.ctx, w.pool, 5*24*time.Hour, 10); err != nil || n != 1 {
		t.Errorf("deleted %d, %v; want 1", n, err)
	}
	if n := w.int(`SELECT count(*) FROM doze.history_failed WHERE finished_at > now() - interval '5 days'`); n != 1 {
		t.Error("the newer failure is gone")
	}
}

func TestPruneKeys_DeletesOnlyWhatHasExpired(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conn := w.conn()
	w.queue("q")
	for i := range 10 {
		w.insert(newJob(keyed(fmt.Sprint("done-", i), time.Hour)))
	}
	_, taken := w.start(conn, "q", 10)
	var outcomes []queue.Outcome
	for _, c := range taken.Claimed {
		outcomes = append(outcomes, outcome(c, queue.Done))
	}
	w.finish(outcomes...)
	w.insert(newJob(keyed("live", 0)))
	w.exec(`UPDATE doze.keys SET expires_at = now() - interval '1 second' WHERE key < 'done-7' AND expires_at < 'infinity'`)
	for _, want := range []int{3, 3, 1, 0} {
		n, err := w.store.PruneKeys(w.ctx, w.pool, 3)
		w.must(err)
		if n != want {
			t.Errorf("deleted %d keys, want %d", n, want)
		}
	}
	if got := w.text(`SELECT key FROM doze.keys ORDER BY key`); got != "done-7,done-8,done-9,live" {
		t.Errorf("left %s", got)
	}
}
