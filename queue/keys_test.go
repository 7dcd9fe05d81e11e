package queue_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/dozequeue/doze/internal/dbtest"
	"github.com/dozequeue/doze/queue"
)

// A key is taken while its job lives, and for its hold after that.
func TestKeys_AreTakenForTheirHold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conn := w.conn()
	for _, hold := range []time.Duration{0, time.Hour} {
		for _, end := range []string{"done", "failed", "cancelled", "cancel"} {
			key := fmt.Sprintf("%v-%s", hold, end)
			name := "q-" + end
			slot, c := w.claim(conn, inQueue(name), keyed(key, hold))
			dup := func(what string, want uuid.UUID) {
				t.Helper()
				j := newJob(inQueue(name+"-other"), keyed(key, hold))
				in := w.insert(j)[0]
				if want == uuid.Nil {
					if in.Duplicate || in.ID != j.ID {
						t.Errorf("%s, hold %v, %s: got %+v, want a new job", key, hold, what, in)
					}
				} else if !in.Duplicate || in.ID != want {
					t.Errorf("%s, hold %v, %s: got %+v, want a duplicate of %s", key, hold, what, in, want)
				}
			}
			dup("while it runs", c.ID)
			w.finish(outcome(c, queue.Queued, func(o *queue.Outcome) { o.Delay = 0 }))
			dup("after a retry", c.ID)
			if end == "cancel" {
				_, err := w.store.Cancel(w.ctx, w.pool, c.ID)
				w.must(err)
			} else {
				taken, err := w.store.Step(w.ctx, conn, slot, nil, 1, true, "")
				w.must(err)
				w.finish(outcome(taken.Claimed[0], queue.State(end)))
			}
			if hold > 0 {
				dup("during its hold", c.ID)
				w.exec(`UPDATE doze.keys SET expires_at = now() - interval '1 second' WHERE key = $1`, key)
			}
			dup("after its hold", uuid.Nil)
			w.must(w.store.Abandon(w.ctx, conn, slot))
		}
	}
}

// Keys are of a kind: two kinds may use the same one.
func TestKeys_BelongToTheirKind(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	in := w.insert(newJob(keyed("k", 0)), newJob(keyed("k", 0), func(j *queue.NewJob) { j.Kind = "other" }))
	if in[0].Duplicate || in[1].Duplicate {
		t.Errorf("got %+v", in)
	}
}

// Twice in one batch: the first is inserted, the others are its duplicates.
func TestKeys_TwiceInOneBatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	jobs := []queue.NewJob{newJob(keyed("a", 0)), newJob(), newJob(keyed("a", 0)), newJob(keyed("b", 0)), newJob(keyed("a", 0))}
	in := w.insert(jobs...)
	for i := range in {
		if in[i].RunAt.IsZero() != in[i].Duplicate {
			t.Errorf("%d is due at %v: want a time, unless it is a duplicate", i, in[i].RunAt)
		}
		in[i].RunAt = time.Time{}
	}
	want := fmt.Sprint([]queue.Inserted{
		{ID: jobs[0].ID}, {ID: jobs[1].ID}, {ID: jobs[0].ID, Duplicate: true}, {ID: jobs[3].ID}, {ID: jobs[0].ID, Duplicate: true},
	})
	if fmt.Sprint(in) != want {
		t.Errorf("got  %v\nwant %s", in, want)
	}
	if n := w.int(`SELECT count(*) FROM doze.jobs`); n != 3 {
		t.Errorf("%d jobs, want 3", n)
	}
}

// A delayed job with a key becomes due and runs: it is no duplicate of itself.
func TestKeys_ADelayedJobIsNoDuplicateOfItself(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.queue("q")
	job := newJob(keyed("k", time.Hour), after(time.Hour))
	w.insert(job)
	w.exec(`UPDATE doze.jobs SET run_at = now()`)
	_, taken := w.start(w.conn(), "q", 1)
	if len(taken.Claimed) != 1 || taken.Claimed[0].Key != "k" {
		t.Fatalf("claimed %+v", taken.Claimed)
	}
	if w.finish(outcome(taken.Claimed[0], queue.Done)) != 1 {
		t.Error("not finished")
	}
}

// A retry of a finished job has its key again, unless another job has taken it meanwhile.
func TestKeys_ARetriedJobHasItsKeyAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conn := w.conn()
	fail := func(key string) queue.Claimed {
		t.Helper()
		slot, c := w.claim(conn, keyed(key, 0), inQueue("q-"+key))
		w.finish(outcome(c, queue.Failed))
		w.must(w.store.Abandon(w.ctx, conn, slot))
		return c
	}
	mine := fail("mine")
	_, err := w.store.Retry(w.ctx, w.pool, mine.ID)
	w.must(err)
	if in := w.insert(newJob(keyed("mine", 0)))[0]; !in.Duplicate || in.ID != mine.ID {
		t.Errorf("after the retry: %+v, want a duplicate", in)
	}

	lost := fail("lost")
	other := w.insert(newJob(keyed("lost", 0)))[0]
	_, err = w.store.Retry(w.ctx, w.pool, lost.ID)
	w.must(err)
	if in := w.insert(newJob(keyed("lost", 0)))[0]; !in.Duplicate || in.ID != other.ID {
		t.Errorf("after the retry: %+v, want the key still with %s", in, other.ID)
	}
	// And when the retried one finishes, it does not let go of what is not its own.
	_, taken := w.start(conn, "q-lost", 1)
	w.finish(outcome(taken.Claimed[0], queue.Done))
	if in := w.insert(newJob(keyed("lost", 0)))[0]; !in.Duplicate || in.ID != other.ID {
		t.Errorf("after the other finished: %+v, want the key still with %s", in, other.ID)
	}
}

// Four clients, ten keys, drains that finish them meanwhile: each insert names a job that was
// there, and no two live jobs share a key.
func TestKeys_ManyEnqueuersOfFewKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.MaxConns(8))
	w.queue("q")
	var enqueuers, drain sync.WaitGroup
	stop := make(chan struct{})
	drain.Add(1)
	conn := w.conn()
	go func() {
		defer drain.Done()
		slot := newSlot("q")
		taken, err := w.store.Start(w.ctx, conn, slot, "", 5)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err != nil {
				t.Error(err)
				return
			}
			var outcomes []queue.Outcome
			for _, c := range taken.Claimed {
				outcomes = append(outcomes, outcome(c, queue.Done))
			}
			taken, err = w.store.Step(w.ctx, conn, slot, outcomes, 5, true, "")
		}
	}()
	for e := range 4 {
		enqueuers.Add(1)
		go func() {
			defer enqueuers.Done()
			for i := range 100 {
				j := newJob(keyed(fmt.Sprintf("key-%d", (i*7+e)%10), 0))
				in, err := w.store.Insert(w.ctx, w.pool, []queue.NewJob{j}, false)
				switch {
				case err != nil:
					t.Error(err)
				case len(in) != 1 || in[0].ID == uuid.Nil || !in[0].Duplicate && in[0].ID != j.ID:
					t.Errorf("inserted %+v", in)
				default:
					if _, err := w.store.Get(w.ctx, w.pool, in[0].ID); err != nil {
						t.Errorf("the job that holds the key: %v", err)
					}
				}
			}
		}()
	}
	enqueuers.Wait()
	close(stop)
	drain.Wait()
	if n := w.int(`SELECT count(*) FROM (SELECT 1 FROM doze.jobs GROUP BY kind, key HAVING count(*) > 1) twice`); n != 0 {
		t.Errorf("%d keys have two live jobs", n)
	}
	if n := w.int(`SELECT count(*) FROM doze.jobs j JOIN doze.keys k USING (kind, key) WHERE k.job_id <> j.id OR k.expires_at <> 'infinity'`); n != 0 {
		t.Errorf("%d live jobs do not hold their key", n)
	}
}

// A repeat of an insert whose job has finished takes no key: nobody would ever give it back.
func TestKeys_ARepeatAfterTheEndTakesNoKey(t *testing.T) {
	t.Parallel()
	for _, between := range []string{"key pruned", "key passed on", "job live without a key"} {
		t.Run(between, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			conn := w.conn()
			first := newJob(keyed("rebuild", 0))
			var c queue.Claimed
			switch between {
			case "job live without a key":
				plain := first
				plain.Key = ""
				w.insert(plain)
			default:
				w.queue("q")
				w.insert(first)
				slot, taken := w.start(conn, "q", 1)
				c = taken.Claimed[0]
				w.finish(outcome(c, queue.Done))
				w.must(w.store.Abandon(w.ctx, conn, slot))
			}
			switch between {
			case "key pruned":
				w.exec(`UPDATE doze.keys SET expires_at = now() - interval '1 second'`)
				if n, err := w.store.PruneKeys(w.ctx, w.pool, 10); err != nil || n != 1 {
					t.Fatalf("pruned %d, %v", n, err)
				}
			case "key passed on":
				w.exec(`UPDATE doze.keys SET job_id = $1::text::uuid`, newJob().ID.String())
			}
			in, err := w.store.Insert(w.ctx, w.pool, []queue.NewJob{first}, true)
			w.must(err)
			if !in[0].Duplicate || in[0].ID != first.ID {
				t.Errorf("the repeat came to %+v, want a duplicate of itself", in[0])
			}
			if n := w.int(`SELECT count(*) FROM doze.keys WHERE expires_at = 'infinity'`); n != 0 {
				t.Errorf("%d keys are held for ever", n)
			}
			if in := w.insert(newJob(keyed("rebuild", 0))); in[0].Duplicate {
				t.Error("the key is still held")
			}
		})
	}
}

// A retried job has its key again, even if the key's row was pruned: two live jobs never share one.
func TestKeys_RetryTakesTheKeyBack(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]string{
		"row there":     `UPDATE doze.keys SET expires_at = now() - interval '1 second'`,
		"row pruned":    `DELETE FROM doze.keys`,
		"another's":     `UPDATE doze.keys SET job_id = gen_random_uuid(), expires_at = now() - interval '1 second'`,
		"another holds": `UPDATE doze.keys SET job_id = gen_random_uuid(), expires_at = 'infinity'`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			slot, job := w.claim(w.conn(), keyed("rebuild", 0))
			w.finish(outcome(job, queue.Failed, func(o *queue.Outcome) { o.Failed = true }))
			w.must(w.store.Abandon(w.ctx, w.conn(), slot))
			w.exec(before)
			_, err := w.store.Retry(w.ctx, w.pool, job.ID)
			w.must(err)
			second := w.insert(newJob(keyed("rebuild", 0)))[0]
			if !second.Duplicate || (name != "another holds") != (second.ID == job.ID) {
				t.Errorf("a second job came to %+v, want a duplicate", second)
			}
		})
	}
}
