package queue_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dozequeue/doze/queue"
)

// A drain that goes on from its cursor meets each job once, in order, in every priority.
func TestCursor_GoesOnWhereTheLastClaimEnded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conn := w.conn()
	w.queue("q")
	for _, priority := range []int{3, 0, -10, 10} {
		w.insert(newJobs(5, func(j *queue.NewJob) { j.Priority = priority })...) // those of one insert share a time
		w.insert(newJobs(5, func(j *queue.NewJob) { j.Priority, j.RunAt = priority, time.Unix(1e9, 0) })...)
	}
	slot, taken := w.start(conn, "q", 3)
	slot.From.Advance(taken.Claimed)
	seen := map[string]bool{}
	for {
		for _, c := range taken.Claimed {
			if seen[c.ID.String()] {
				t.Errorf("job %s was claimed twice", c.ID)
			}
			seen[c.ID.String()] = true
		}
		var done []queue.Outcome
		for _, c := range taken.Claimed {
			done = append(done, outcome(c, queue.Done))
		}
		var err error
		taken, err = w.store.Step(w.ctx, conn, slot, done, 3, false, "")
		w.must(err)
		if len(taken.Claimed) == 0 {
			break
		}
		slot.From.Advance(taken.Claimed)
	}
	if len(seen) != 40 {
		t.Errorf("%d of 40 jobs were claimed", len(seen))
	}
}

// What becomes due behind the cursor is seen by a claim from the head and by the last look, and by no claim
// from the cursor: so both of the others must come.
func TestCursor_HidesWhatIsBehindItFromItsOwnClaimsOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conn := w.conn()
	w.queue("q")
	w.insert(newJobs(2)...)
	slot, taken := w.start(conn, "q", 10)
	slot.From.Advance(taken.Claimed)
	behind := newJob(func(j *queue.NewJob) { j.RunAt = time.Now().Add(-time.Hour) })
	w.insert(behind)
	step, err := w.store.Step(w.ctx, conn, slot, nil, 10, false, "")
	w.must(err)
	if len(step.Claimed) != 0 {
		t.Errorf("the claim from the cursor took %d jobs", len(step.Claimed))
	}
	_, next, err := w.store.Exit(w.ctx, conn, slot, nil)
	w.must(err)
	if !next.Due {
		t.Error("the last look did not see it")
	}
	again, err := w.store.Retake(w.ctx, conn, slot, 10) // with the cursor still set
	w.must(err)
	if !same(claimedIDs(again.Claimed), ids([]queue.NewJob{behind})) {
		t.Errorf("the claim after a retake took %v", claimedIDs(again.Claimed))
	}
}

// The cursor moves on and never back, and lone jobs, which are claimed out of turn, do not move it.
func TestCursor_NeverGoesBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conn := w.conn()
	w.queue("q")
	var cursor queue.Cursor
	at := time.Unix(1e9, 0)
	job := func(at time.Time, reaps int) queue.Claimed {
		j := newJob()
		return queue.Claimed{Job: queue.Job{ID: j.ID, RunAt: at, Reaps: reaps}}
	}
	late := job(at.Add(time.Hour), 0)
	cursor.Advance([]queue.Claimed{late, job(at, 0)})
	cursor.Advance([]queue.Claimed{job(at, 0), job(at.Add(2*time.Hour), 1)})
	ahead := newJob(func(j *queue.NewJob) { j.RunAt = at.Add(90 * time.Minute) })
	w.insert(ahead, newJob(func(j *queue.NewJob) { j.RunAt = at.Add(30 * time.Minute) }))
	slot, _ := w.start(conn, "q", 0)
	slot.From = cursor
	step, err := w.store.Step(w.ctx, conn, slot, nil, 10, false, "")
	w.must(err)
	if !same(claimedIDs(step.Claimed), ids([]queue.NewJob{ahead})) {
		t.Errorf("claimed %v, want what is after the furthest", claimedIDs(step.Claimed))
	}
}

// Beside a snapshot that stays open a claim from the cursor touches as few pages after ten thousand jobs as at first.
func TestCursor_DoesNotWalkOverWhatVacuumCannotRemove(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.queue("q")
	holder, err := w.pool.Begin(w.ctx)
	w.must(err)
	defer func() { _ = holder.Rollback(w.ctx) }()
	_, err = holder.Exec(w.ctx, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
	w.must(err)
	var n int
	w.must(holder.QueryRow(w.ctx, queue.Qualify("SELECT count(*) FROM doze.jobs", w.name)).Scan(&n))
	conn := w.conn()
	slot, _ := w.start(conn, "q", 0)
	for range 10 {
		w.insert(newJobs(1000)...)
		taken, err := w.store.Step(w.ctx, conn, slot, nil, 1000, false, "")
		w.must(err)
		slot.From.Advance(taken.Claimed)
		var done []queue.Outcome
		for _, c := range taken.Claimed {
			done = append(done, outcome(c, queue.Done))
		}
		_, err = w.store.Step(w.ctx, conn, slot, done, 0, false, "")
		w.must(err)
	}
	pages := func(from queue.Cursor) int {
		t.Helper()
		var text string
		at, id := from.Places()
		w.must(conn.QueryRow(w.ctx, "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) "+w.statement("claim"), pgx.QueryExecModeExec,
			"q", slot.Token.String(), slot.Token.String(), int64(1000), int32(10), "", at, id).Scan(&text))
		var roots []struct {
			Plan struct {
				Hit  int `json:"Shared Hit Blocks"`
				Read int `json:"Shared Read Blocks"`
			}
		}
		w.must(json.Unmarshal([]byte(text), &roots))
		return roots[0].Plan.Hit + roots[0].Plan.Read
	}
	if head, cursor := pages(queue.Cursor{}), pages(slot.From); cursor > 200 || head < 5*cursor {
		t.Errorf("%d pages from the head, %d from the cursor; want few from the cursor, and many from the head or this shows nothing", head, cursor)
	}
}
