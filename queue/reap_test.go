package queue_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/dozequeue/doze/queue"
)

func TestReap_TakesBackExpiredLeasesOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conn := w.conn()
	var expired []uuid.UUID
	for _, name := range []string{"a", "b", "c"} { // of every queue, those of a paused one too
		for _, p := range []int{-10, 0, 10} {
			w.insert(newJobs(3, inQueue(name), func(j *queue.NewJob) { j.Priority = p })...)
		}
		w.insert(newJob(inQueue(name), after(time.Hour)))
		w.queue(name)
		_, taken := w.start(conn, name, 6)
		for i, c := range taken.Claimed {
			if i%2 == 0 {
				expired = append(expired, c.ID)
			}
		}
	}
	w.must(w.store.Pause(w.ctx, w.pool, "b"))
	w.expire(expired...)
	var got []uuid.UUID
	for _, limit := range []int{1, 2, 100, 100} { // never more than the limit
		ids, err := w.store.Reap(w.ctx, w.pool, limit)
		w.must(err)
		if len(ids) > limit {
			t.Errorf("reaped %d, limit %d", len(ids), limit)
		}
		got = append(got, ids...)
	}
	if len(got) != len(expired) {
		t.Errorf("reaped %d, want %d", len(got), len(expired))
	}
	for _, id := range expired {
		if !contains(got, id) {
			t.Errorf("%s was not reaped", id)
		}
	}
	if n := w.int(`SELECT count(*) FROM doze.jobs WHERE token IS NULL AND locked_until = '-infinity' AND reaps = 1 AND attempts = 1 AND failures = 0`); n != len(expired) {
		t.Errorf("%d jobs are queued with one reap, want %d", n, len(expired))
	}
	if n := w.int(`SELECT count(*) FROM doze.jobs WHERE token IS NOT NULL AND reaps = 0`); n != 9 {
		t.Errorf("%d jobs still run, want 9", n)
	}
}

// The reap meets a holder at the same row: whoever commits first wins, the other changes nothing.
func TestReap_AgainstFinishAndExtend(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	drain := w.conn()
	conn := w.conn()
	for _, c := range []struct {
		name string
		do   func(c queue.Claimed) (int, error)
		want queue.State
	}{
		{"finish", func(c queue.Claimed) (int, error) {
			held, err := w.store.Finish(w.ctx, drain, []queue.Outcome{outcome(c, queue.Done)})
			return len(held), err
		}, queue.Done},
		{"extend", func(c queue.Claimed) (int, error) {
			held, err := w.store.Extend(w.ctx, drain, []queue.Claimed{c}, time.Minute)
			return len(held), err
		}, queue.Running},
	} {
		// The holder's write is under way when the reap comes.
		slot, job := w.claim(conn, inQueue(c.name))
		w.expire(job.ID)
		_, err := drain.Exec(w.ctx, "BEGIN")
		w.must(err)
		if n, err := c.do(job); err != nil || n != 1 {
			t.Errorf("%s of an expired lease that nobody took: %d, %v", c.name, n, err)
		}
		reaped, err := w.store.Reap(w.ctx, w.pool, 10) // does not wait
		w.must(err)
		_, err = drain.Exec(w.ctx, "COMMIT")
		w.must(err)
		if len(reaped) != 0 || w.state(job.ID) != c.want {
			t.Errorf("%s, then reap: reaped %d, the job is %s, want %s", c.name, len(reaped), w.state(job.ID), c.want)
		}
		reaped, err = w.store.Reap(w.ctx, w.pool, 10)
		w.must(err)
		if len(reaped) != 0 {
			t.Errorf("%s, then reap: reaped it afterwards", c.name)
		}
		w.must(w.store.Abandon(w.ctx, conn, slot))

		// The reap is under way when the holder writes.
		_, job = w.claim(conn, inQueue(c.name+"2"))
		w.expire(job.ID)
		tx, err := w.pool.Begin(w.ctx)
		w.must(err)
		reaped, err = w.store.Reap(w.ctx, tx, 10)
		w.must(err)
		if len(reaped) != 1 {
			t.Fatalf("reaped %d, want 1", len(reaped))
		}
		pid := drain.PgConn().PID()
		late := make(chan int, 1)
		go func() {
			n, err := c.do(job)
			if err != nil {
				t.Error(err)
			}
			late <- n
		}()
		w.waitUntilBlocked(pid)
		w.must(tx.Commit(w.ctx))
		if n := <-late; n != 0 || w.state(job.ID) != queue.Queued {
			t.Errorf("reap, then %s: accepted %d, the job is %s", c.name, n, w.state(job.ID))
		}
	}
}

// An operator's cancel meets a drain that finishes the job: it ends once.
func TestCancel_AgainstFinish(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conn := w.conn()
	for i := range 20 {
		slot, c := w.claim(conn, keyed("k", 0))
		var cancelled queue.Job
		var cancelErr, finishErr error
		var held []uuid.UUID
		inParallel(2, func(which int) error {
			if which == i%2 {
				cancelled, cancelErr = w.store.Cancel(w.ctx, w.pool, c.ID)
			} else {
				held, finishErr = w.store.Finish(w.ctx, w.pool, []queue.Outcome{outcome(c, queue.Done)})
			}
			return nil
		}, nil)
		w.must(finishErr)
		state := w.state(c.ID)
		if (len(held) == 1) != (state == queue.Done) || (cancelErr == nil) != (state == queue.Cancelled) || cancelErr == nil && cancelled.State != queue.Cancelled {
			t.Errorf("round %d: finished %d, cancel %v, the job is %s", i, len(held), cancelErr, state)
		}
		if n := w.int(`SELECT count(*) FROM doze.job_list WHERE id = $1`, c.ID); n != 1 {
			t.Errorf("round %d: %d rows", i, n)
		}
		w.must(w.store.Abandon(w.ctx, conn, slot))
	}
}

// A job that was cancelled while it ran: its drain learns of it at the next renewal, and what its
// handler reports is refused.
func TestCancel_OfARunningJobIsSeenAtTheNextRenewal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conn := w.conn()
	w.queue("q")
	w.insert(newJobs(2)...)
	slot, taken := w.start(conn, "q", 2)
	_, err := w.store.Cancel(w.ctx, w.pool, taken.Claimed[0].ID)
	w.must(err)
	held, err := w.store.Renew(w.ctx, conn, slot, queue.Open, taken.Claimed)
	w.must(err)
	if !same(held, []uuid.UUID{taken.Claimed[1].ID}) {
		t.Errorf("renewed %v, want only the other job", held)
	}
	if w.finish(outcome(taken.Claimed[0], queue.Done), outcome(taken.Claimed[1], queue.Done)) != 1 || w.state(taken.Claimed[0].ID) != queue.Cancelled {
		t.Error("the cancelled job was finished")
	}
}

// A job that was run to an end is not what makes drains vanish, so a few crashes over a long life do not
// add up. One that was only given back still is suspect.
func TestFinish_ForgivesReapsOfAJobThatWasRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conn := w.conn()
	_, job := w.claim(conn)
	w.exec(`UPDATE doze.jobs SET reaps = 2`)
	w.finish(outcome(job, queue.Queued, func(o *queue.Outcome) { o.Delay = -1 }))
	if n := w.int(`SELECT reaps FROM doze.jobs`); n != 2 {
		t.Errorf("given back: %d reaps, want 2", n)
	}
	w.exec(`UPDATE doze.jobs SET token = $1::text::uuid, locked_until = now() + interval '1 minute'`, job.Token.String())
	w.finish(outcome(job, queue.Queued))
	if n := w.int(`SELECT reaps FROM doze.jobs`); n != 0 {
		t.Errorf("run: %d reaps, want 0", n)
	}
}
