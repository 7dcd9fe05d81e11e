package queue_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/dozequeue/doze/queue"
)

func TestList_PagesFromNewestToOldest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conn := w.conn()
	w.queue("q")
	jobs := newJobs(25)
	w.insert(jobs...)
	_, taken := w.start(conn, "q", 12)
	var outcomes []queue.Outcome
	for i, c := range taken.Claimed[:9] {
		outcomes = append(outcomes, outcome(c, []queue.State{queue.Done, queue.Failed, queue.Cancelled}[i%3]))
	}
	w.finish(outcomes...) // live and finished jobs are listed together

	var got []uuid.UUID
	before := uuid.Nil
	for page := 0; ; page++ {
		list, err := w.store.List(w.ctx, w.pool, queue.Filter{Before: before, Limit: 7})
		w.must(err)
		if len(list) == 0 {
			if page != 4 {
				t.Errorf("%d pages, want 4", page)
			}
			break
		}
		for _, j := range list {
			if j.Payload != nil {
				t.Error("a listing shows payloads")
			}
			got = append(got, j.ID)
		}
		before = list[len(list)-1].ID
	}
	want := ids(jobs)
	for i, j := 0, len(want)-1; i < j; i, j = i+1, j-1 {
		want[i], want[j] = want[j], want[i]
	}
	if !same(got, want) {
		t.Errorf("listed %v\nwant %v", got, want)
	}
}

func TestList_Filters(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conn := w.conn()
	w.queue("q")
	w.insert(append(newJobs(6), newJobs(4, inQueue("other"), func(j *queue.NewJob) { j.Kind = "mail" })...)...)
	_, taken := w.start(conn, "q", 4)
	w.finish(outcome(taken.Claimed[0], queue.Done), outcome(taken.Claimed[1], queue.Failed), outcome(taken.Claimed[2], queue.Cancelled))
	for want, filters := range map[int][]queue.Filter{
		10: {{}},
		6:  {{Queue: "q"}, {Queue: "q", Kind: "k"}, {State: queue.Queued}},
		4:  {{Kind: "mail"}, {Queue: "other", State: queue.Queued}},
		2:  {{Queue: "q", State: queue.Queued}, {Limit: 2}},
		1:  {{State: queue.Running}, {State: queue.Done}, {State: queue.Failed, Queue: "q", Kind: "k"}, {State: queue.Cancelled}},
		0:  {{Queue: "nowhere"}, {Queue: "q", Kind: "mail"}, {State: queue.Done, Queue: "other"}, {Queue: "' OR 1=1 --"}},
	} {
		for _, f := range filters {
			got, err := w.store.List(w.ctx, w.pool, f)
			if err != nil || len(got) != want {
				t.Errorf("%+v: %d jobs, %v; want %d", f, len(got), err, want)
			}
			for _, j := range got {
				if f.State != "" && j.State != f.State || f.Queue != "" && j.Queue != f.Queue || f.Kind != "" && j.Kind != f.Kind {
					t.Errorf("%+v lists %+v", f, j)
				}
			}
		}
	}
	for _, f := range []queue.Filter{{Limit: -1}, {Limit: 1001}, {State: "asleep"}} {
		var wrong *queue.FieldError
		if _, err := w.store.List(w.ctx, w.pool, f); !errors.As(err, &wrong) {
			t.Errorf("%+v: %v, want a FieldError", f, err)
		}
	}
}

func TestQueues_Counts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conn := w.conn()
	w.must(w.store.Configure(w.ctx, w.pool, "busy", queue.Settings{Slots: 7}))
	w.must(w.store.Pause(w.ctx, w.pool, "paused"))
	w.insert(newJobs(6, inQueue("busy"))...)
	w.insert(newJobs(2, inQueue("busy"), after(time.Hour))...)
	w.insert(newJob(inQueue("paused"), func(j *queue.NewJob) { j.RunAt = time.Now().Add(-time.Hour) }))
	w.insert(newJob(inQueue("without-a-row"), after(time.Hour)))
	_, taken := w.start(conn, "busy", 4)
	w.finish(outcome(taken.Claimed[0], queue.Done), outcome(taken.Claimed[1], queue.Failed), outcome(taken.Claimed[2], queue.Failed))
	got, err := w.store.Queues(w.ctx, w.pool)
	w.must(err)
	want := []queue.Counts{
		{Queue: "busy", Slots: 7, Held: 1, Queued: 4, Due: 2, Running: 1, Failed: 2},
		{Queue: "paused", Paused: true, Slots: 4, Queued: 1, Due: 1},
		{Queue: "without-a-row", Queued: 1},
	}
	if len(got) != len(want) {
		t.Fatalf("%d queues, want %d: %+v", len(got), len(want), got)
	}
	if got[1].Oldest < 59*time.Minute || got[1].Oldest > 70*time.Minute || got[0].Oldest > 3*time.Minute || got[2].Oldest != 0 {
		t.Errorf("oldest: %v, %v, %v", got[0].Oldest, got[1].Oldest, got[2].Oldest)
	}
	for i := range want {
		got[i].Oldest = 0
		if got[i] != want[i] {
			t.Errorf("got  %+v\nwant %+v", got[i], want[i])
		}
	}
}

// Queues are named before the database is asked.
func TestQueueNames_AreCheckedBeforeAnySQL(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, name := range badQueues {
		var wrong *queue.FieldError
		for what, err := range map[string]error{
			"pause":     w.store.Pause(w.ctx, nil, name),
			"resume":    w.store.Resume(w.ctx, nil, name),
			"configure": w.store.Configure(w.ctx, nil, name, queue.Settings{Slots: 1}),
		} {
			if !errors.As(err, &wrong) {
				t.Errorf("%s %q: %v, want a FieldError", what, name, err)
			}
		}
	}
	for _, name := range goodQueues {
		w.must(w.store.Pause(w.ctx, w.pool, name))
		w.insert(newJob(inQueue(name)))
	}
	if n := w.int(`SELECT count(*) FROM doze.queues q JOIN doze.jobs j ON j.queue = q.queue WHERE paused_at IS NOT NULL`); n != len(goodQueues) {
		t.Errorf("%d of %d names came back whole", n, len(goodQueues))
	}
}
