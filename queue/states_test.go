package queue_test

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/dozequeue/doze/queue"
)

// Every state a job can be in, against everything that can be done to it.
func TestStates_EveryTransitionIsAllowedOrRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conn := w.conn()

	type held = queue.Claimed
	n := 0
	bring := func(state string) held {
		t.Helper()
		n++
		name := fmt.Sprintf("q%d", n) // a queue of its own, so that a claim meets no other job
		if state == "queued" || state == "later" {
			j := newJob(inQueue(name))
			if state == "later" {
				j.Delay = time.Hour
			}
			w.queue(name)
			w.insert(j)
			return held{Job: queue.Job{ID: j.ID, Queue: name, Attempts: 0}, Token: uuid.New()}
		}
		slot, c := w.claim(conn, inQueue(name))
		switch state {
		case "expired":
			w.expire(c.ID)
		case "done", "failed", "cancelled":
			w.finish(outcome(c, queue.State(state)))
		}
		w.must(w.store.Abandon(w.ctx, conn, slot))
		return c
	}

	finish := func(state queue.State) func(held) string {
		return func(c held) string {
			if w.finish(outcome(c, state, func(o *queue.Outcome) { o.Delay = 0 })) == 0 {
				return "refused"
			}
			return ""
		}
	}
	refused := func(err error) string {
		var se *queue.StateError
		if errors.As(err, &se) {
			return "refused"
		}
		w.must(err)
		return ""
	}
	does := map[string]func(held) string{
		"claim": func(c held) string {
			_, taken := w.start(conn, c.Queue, 10)
			if len(taken.Claimed) == 0 {
				return "refused"
			}
			return ""
		},
		"done":    finish(queue.Done),
		"fail":    finish(queue.Failed),
		"requeue": finish(queue.Queued),
		"extend": func(c held) string {
			got, err := w.store.Extend(w.ctx, w.pool, []queue.Claimed{c}, time.Minute)
			w.must(err)
			if len(got) == 0 {
				return "refused"
			}
			return ""
		},
		"reap": func(c held) string {
			got, err := w.store.Reap(w.ctx, w.pool, 1000)
			w.must(err)
			if !contains(got, c.ID) {
				return "refused"
			}
			return ""
		},
		"cancel": func(c held) string { _, err := w.store.Cancel(w.ctx, w.pool, c.ID); return refused(err) },
		"retry":  func(c held) string { _, err := w.store.Retry(w.ctx, w.pool, c.ID); return refused(err) },
	}

	// What the job's state is afterwards; "-" where the action is refused and changes nothing.
	states := []string{"queued", "later", "running", "expired", "done", "failed", "cancelled"}
	want := map[string][]string{
		"claim":   {"running", "-", "-", "queued", "-", "-", "-"}, // an expired lease is reaped
		"done":    {"-", "-", "done", "done", "-", "-", "-"},
		"fail":    {"-", "-", "failed", "failed", "-", "-", "-"},
		"requeue": {"-", "-", "queued", "queued", "-", "-", "-"},
		"extend":  {"-", "-", "running", "running", "-", "-", "-"},
		"reap":    {"-", "-", "-", "queued", "-", "-", "-"},
		"cancel":  {"cancelled", "cancelled", "cancelled", "cancelled", "-", "-", "cancelled"},
		"retry":   {"queued", "queued", "-", "-", "-", "queued", "queued"},
	}
	row := func(id uuid.UUID) string {
		return w.text(`SELECT row_to_json(j)::text FROM (SELECT * FROM doze.job_list WHERE id = $1) j`, id)
	}
	for action, afterwards := range want {
		for i, from := range states {
			c := bring(from)
			before := row(c.ID)
			answer := does[action](c)
			after, now := afterwards[i], w.state(c.ID)
			switch {
			case after == "-" && (answer != "refused" || row(c.ID) != before):
				t.Errorf("%s of a job that is %s: answer %q, want refused, and nothing changed; it is %s", action, from, answer, now)
			case after != "-" && string(now) != after:
				t.Errorf("%s of a job that is %s makes it %s, want %s", action, from, now, after)
			case after != "-" && answer == "refused" && !(action == "claim" && from == "expired"):
				t.Errorf("%s of a job that is %s was refused", action, from)
			}
			if n := w.int(`SELECT count(*) FROM doze.job_list WHERE id = $1`, c.ID); n != 1 {
				t.Errorf("%s of a job that is %s leaves %d rows of it", action, from, n)
			}
		}
	}
	if n := w.int(`SELECT count(*) FROM doze.jobs WHERE (token IS NULL) <> (locked_until = '-infinity')`); n != 0 {
		t.Errorf("%d jobs have half a lease", n)
	}
}

// The fence is all of id, attempts and token: one stale part refuses the write.
func TestFence_EachPartAloneRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conn := w.conn()
	for what, stale := range map[string]func(*queue.Claimed){
		"token":              func(c *queue.Claimed) { c.Token = uuid.New() },
		"attempts too low":   func(c *queue.Claimed) { c.Attempts-- },
		"attempts too high":  func(c *queue.Claimed) { c.Attempts++ },
		"both":               func(c *queue.Claimed) { c.Token, c.Attempts = uuid.New(), 7 },
		"id":                 func(c *queue.Claimed) { c.ID = uuid.Must(uuid.NewV7()) },
		"no token":           func(c *queue.Claimed) { c.Token = uuid.Nil },
		"another job's both": func(c *queue.Claimed) { _, *c = w.claim(conn, inQueue("other")); c.ID = uuid.New() },
	} {
		slot, c := w.claim(conn, inQueue("q"))
		before := w.text(`SELECT j::text FROM doze.jobs j WHERE id = $1`, c.ID)
		bad := c
		stale(&bad)
		for _, state := range []queue.State{queue.Done, queue.Failed, queue.Cancelled, queue.Queued} {
			if n := w.finish(outcome(bad, state)); n != 0 {
				t.Errorf("finish as %s with a stale %s was accepted", state, what)
			}
		}
		taken, err := w.store.Step(w.ctx, conn, slot, []queue.Outcome{outcome(bad, queue.Done)}, 0, false, "")
		w.must(err)
		if len(taken.Held) != 0 {
			t.Errorf("a step that finishes with a stale %s was accepted", what)
		}
		held, err := w.store.Extend(w.ctx, w.pool, []queue.Claimed{bad}, time.Hour)
		w.must(err)
		if len(held) != 0 {
			t.Errorf("extend with a stale %s was accepted", what)
		}
		if after := w.text(`SELECT j::text FROM doze.jobs j WHERE id = $1`, c.ID); after != before {
			t.Errorf("stale %s: the row changed from %s to %s", what, before, after)
		}
		// The same call with the right fence goes through, so it was the fence that refused.
		if n := w.finish(outcome(c, queue.Done)); n != 1 {
			t.Errorf("the holder was refused, too")
		}
		w.must(w.store.Abandon(w.ctx, conn, slot))
	}
}

// A failover to a standby that missed the claim: two holders count the same attempt, and
// only the token tells them apart.
func TestFence_HoldsWhereAttemptsRepeat(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conn := w.conn()
	_, lost := w.claim(conn)
	w.exec(`UPDATE doze.jobs SET token = NULL, locked_until = '-infinity', attempts = 0`) // the claim never was
	_, taken := w.start(conn, "q", 1)
	if len(taken.Claimed) != 1 || taken.Claimed[0].Attempts != lost.Attempts {
		t.Fatalf("claimed %+v, want the same attempt again", taken.Claimed)
	}
	if w.finish(outcome(lost, queue.Done)) != 0 {
		t.Error("the holder whose claim was lost has finished the other's job")
	}
	if w.finish(outcome(taken.Claimed[0], queue.Done)) != 1 {
		t.Error("the new holder was refused")
	}
}

// A holder that stalls past its lease meets another's claim, and each of its writes is refused.
func TestFence_StalledHolderChangesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conn := w.conn()
	_, stalled := w.claim(conn)
	w.expire(stalled.ID)
	_, err := w.store.Reap(w.ctx, w.pool, 10)
	w.must(err)
	_, taken := w.start(conn, "q", 1)
	if len(taken.Claimed) != 1 {
		t.Fatal("the reaped job was not claimed again")
	}
	now := taken.Claimed[0]
	if w.finish(outcome(stalled, queue.Done)) != 0 {
		t.Error("the stalled holder finished the job")
	}
	held, err := w.store.Extend(w.ctx, w.pool, []queue.Claimed{stalled}, time.Hour)
	w.must(err)
	if len(held) != 0 {
		t.Error("the stalled holder renewed the lease")
	}
	if w.state(now.ID) != queue.Running || now.Attempts != 2 || now.Reaps != 1 {
		t.Errorf("now %+v", now)
	}
}

func TestCancelAndRetry_SayWhyNot(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conn := w.conn()
	nobody := uuid.New()
	if _, err := w.store.Cancel(w.ctx, w.pool, nobody); !errors.Is(err, queue.ErrNotFound) {
		t.Errorf("cancel: %v, want ErrNotFound", err)
	}
	if _, err := w.store.Retry(w.ctx, w.pool, nobody); !errors.Is(err, queue.ErrNotFound) {
		t.Errorf("retry: %v, want ErrNotFound", err)
	}
	if _, err := w.store.Get(w.ctx, w.pool, nobody); !errors.Is(err, queue.ErrNotFound) {
		t.Errorf("get: %v, want ErrNotFound", err)
	}
	_, c := w.claim(conn)
	_, err := w.store.Retry(w.ctx, w.pool, c.ID)
	var se *queue.StateError
	if !errors.As(err, &se) || se.State != queue.Running || se.Op != "retry" || se.ID != c.ID {
		t.Errorf("retry of a running job: %v", err)
	}
	w.finish(outcome(c, queue.Done))
	_, err = w.store.Cancel(w.ctx, w.pool, c.ID)
	if !errors.As(err, &se) || se.State != queue.Done || se.Op != "cancel" {
		t.Errorf("cancel of a done job: %v", err)
	}
	first, err := w.store.Cancel(w.ctx, w.pool, func() uuid.UUID { j := newJob(); w.insert(j); return j.ID }())
	w.must(err)
	again, err := w.store.Cancel(w.ctx, w.pool, first.ID)
	if err != nil || !again.FinishedAt.Equal(first.FinishedAt) || again.State != queue.Cancelled {
		t.Errorf("cancelled twice: %+v, %v; want the first one, unchanged", again, err)
	}
}

// A retry starts the counts of failures and reaps anew, but never the attempts: they are the fence.
func TestRetry_KeepsTheFenceAndTheRest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conn := w.conn()
	_, c := w.claim(conn, func(j *queue.NewJob) { j.Priority, j.MaxAttempts = 5, 1 })
	w.exec(`UPDATE doze.jobs SET reaps = 2`)
	w.finish(outcome(c, queue.Failed, func(o *queue.Outcome) { o.Failed, o.Error = true, "boom" }))
	before := w.get(c.ID)
	if before.Failures != 1 || before.Reaps != 2 || before.LastError != "boom" || before.FinishedAt.IsZero() {
		t.Fatalf("failed as %+v", before)
	}
	got, err := w.store.Retry(w.ctx, w.pool, c.ID)
	w.must(err)
	want := before
	want.State, want.Failures, want.Reaps, want.FinishedAt, want.RunAt = queue.Queued, 0, 0, time.Time{}, got.RunAt
	if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		t.Errorf("retried as %+v\nwant %+v", got, want)
	}
	if got.RunAt.Before(before.FinishedAt) {
		t.Errorf("due at %v, before it failed", got.RunAt)
	}
}

// What a network says that has gone away is worth another try, however it says it.
func TestClassify_NetworkErrors(t *testing.T) {
	t.Parallel()
	for _, e := range []syscall.Errno{syscall.ETIMEDOUT, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.ECONNABORTED, syscall.ECONNRESET, syscall.EPIPE} {
		err := fmt.Errorf("claim: failed to receive message: %w", &net.OpError{Op: "read", Net: "tcp", Err: e})
		if c := queue.Classify(err); c != queue.Unavailable {
			t.Errorf("%v: class %v, want Unavailable", err, c)
		}
	}
}
