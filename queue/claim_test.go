package queue_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/dozequeue/doze/internal/dbtest"
	"github.com/dozequeue/doze/queue"
)

// Urgent first, then by due time, then by age.
func TestClaim_OrderIsPriorityThenDueTimeThenAge(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.queue("q")
	base := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	job := func(priority, minute int) queue.NewJob {
		return newJob(func(j *queue.NewJob) { j.Priority, j.RunAt = priority, base.Add(time.Duration(minute)*time.Minute) })
	}
	// Enqueued in another order than they are to run in.
	jobs := []queue.NewJob{job(10, 0), job(0, 2), job(-10, 9), job(0, 1), job(0, 1), job(-10, 3), job(1, 0), job(-1, 5)}
	w.insert(jobs...)
	want := []uuid.UUID{}
	for _, i := range []int{5, 2, 7, 3, 4, 1, 6, 0} {
		want = append(want, jobs[i].ID)
	}
	var got []uuid.UUID
	conn := w.conn()
	slot, taken := w.start(conn, "q", 3)
	for len(taken.Claimed) > 0 {
		got = append(got, claimedIDs(taken.Claimed)...)
		var err error
		taken, err = w.store.Step(w.ctx, conn, slot, nil, 3, false, "")
		w.must(err)
	}
	if !same(got, want) {
		t.Errorf("claimed in the order %v, want %v", got, want)
	}
}

func TestClaim_LeavesWhatIsNotDue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.queue("q")
	var later []queue.NewJob
	for p := queue.MinPriority; p <= queue.MaxPriority; p++ {
		later = append(later, newJobs(5, after(time.Hour), func(j *queue.NewJob) { j.Priority = p })...)
	}
	due := newJob(func(j *queue.NewJob) { j.Priority = 10 })
	w.insert(append(later, due)...)
	conn := w.conn()
	slot, taken := w.start(conn, "q", 1000)
	if !same(claimedIDs(taken.Claimed), []uuid.UUID{due.ID}) {
		t.Errorf("claimed %d jobs, want the one that is due", len(taken.Claimed))
	}
	_, next, err := w.store.Exit(w.ctx, conn, slot, []queue.Outcome{outcome(taken.Claimed[0], queue.Done)})
	w.must(err)
	if next.Due || next.In < 59*time.Minute || next.In > time.Hour {
		t.Errorf("next %+v, want in an hour", next)
	}
}

func TestClaim_NeverMoreThanItsLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.queue("q")
	var jobs []queue.NewJob
	for i := range 90 { // over several priorities, so that one lane alone does not decide
		jobs = append(jobs, newJob(func(j *queue.NewJob) { j.Priority = i%3 - 1 }))
	}
	w.insert(jobs...)
	conn := w.conn()
	slot, taken := w.start(conn, "q", 1)
	w.exec(`ANALYZE doze.slots, doze.queues`)
	// Whatever the planner does with the join, the limit is applied before it.
	for _, off := range []string{"", "enable_material", "enable_hashjoin", "enable_nestloop", "enable_mergejoin enable_hashjoin enable_material enable_sort"} {
		for _, name := range strings.Fields(off) {
			_, err := conn.Exec(w.ctx, "SET "+name+" = off")
			w.must(err)
		}
		for _, limit := range []int{1, 7} {
			var err error
			taken, err = w.store.Step(w.ctx, conn, slot, nil, limit, false, "")
			w.must(err)
			if len(taken.Claimed) != limit {
				t.Errorf("with %q off: claimed %d, want %d", off, len(taken.Claimed), limit)
			}
		}
		if other, err := w.store.Retake(w.ctx, conn, newSlot("q"), 1); err != nil || len(other.Claimed) != 1 {
			t.Errorf("with %q off: another slot claimed %d, %v", off, len(other.Claimed), err)
		}
		if n := w.int(`SELECT count(*) FROM doze.slots WHERE state <> 'free'`); n != 2 {
			t.Errorf("with %q off: %d slots are held by two drains", off, n)
		}
		w.exec(`UPDATE doze.slots SET state = 'free', token = NULL, locked_until = NULL WHERE token <> $1`, slot.Token)
		_, err := conn.Exec(w.ctx, "RESET ALL; SET search_path = ''", pgx.QueryExecModeSimpleProtocol)
		w.must(err)
	}
}

// Two claims under way at once take different jobs; the second does not wait for the first.
func TestClaim_ConcurrentClaimsNeverOverlap(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.queue("q")
	jobs := newJobs(10)
	w.insert(jobs...)
	one, two := w.conn(), w.conn()
	slot := newSlot("q")
	_, err := w.store.Start(w.ctx, one, slot, "", 0)
	w.must(err)
	_, err = one.Exec(w.ctx, "BEGIN") // so that the claim stays under way
	w.must(err)
	slot.From.Advance([]queue.Claimed{{Job: queue.Job{Priority: 10, RunAt: time.Unix(0, 0)}}}) // not from the head: that raises the floor, too
	first, err := w.store.Step(w.ctx, one, slot, nil, 4, true, "")
	w.must(err)
	_, second := w.start(two, "q", 100)
	if !same(claimedIDs(second.Claimed), ids(jobs[4:])) {
		t.Errorf("the second claimed %v, want the six after %v", claimedIDs(second.Claimed), claimedIDs(first.Claimed))
	}
	_, err = one.Exec(w.ctx, "COMMIT")
	w.must(err)
}

// A lock that a foreign key's check takes on a job does not hide it from a claim.
func TestClaim_TakesAJobThatAForeignKeyRefersTo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.queue("q")
	job := newJob()
	w.insert(job)
	stranger := w.conn()
	tx, err := stranger.Begin(w.ctx)
	w.must(err)
	_, err = tx.Exec(w.ctx, queue.Qualify("SELECT FROM doze.jobs FOR KEY SHARE", w.name))
	w.must(err)
	if _, taken := w.start(w.conn(), "q", 1); len(taken.Claimed) != 1 {
		t.Error("not claimed")
	}
	w.must(tx.Rollback(w.ctx))
}

// Only the holder of a slot claims, and only while its slot lasts.
func TestClaim_NeedsALivingSlot(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conn := w.conn()
	w.queue("q")
	w.insert(newJobs(9)...)
	slot, taken := w.start(conn, "q", 1)
	claims := func(s queue.Slot) int {
		t.Helper()
		got, err := w.store.Step(w.ctx, conn, s, nil, 1, true, "")
		w.must(err)
		return len(got.Claimed)
	}
	if n := claims(slot); n != 1 {
		t.Errorf("the holder claimed %d", n)
	}
	for what, s := range map[string]queue.Slot{
		"a token of nobody's": newSlot("q"),
		"another queue":       {Queue: "other", Token: slot.Token, Lease: time.Minute},
	} {
		if n := claims(s); n != 0 {
			t.Errorf("with %s: claimed %d", what, n)
		}
	}
	w.exec(`UPDATE doze.slots SET locked_until = now() - interval '1 second' WHERE token = $1`, slot.Token)
	if n := claims(slot); n != 0 {
		t.Errorf("with an expired slot: claimed %d", n)
	}
	if _, err := w.store.Renew(w.ctx, conn, slot, queue.Open, taken.Claimed); err != nil || claims(slot) != 1 {
		t.Errorf("nobody took the slot, so its holder may renew it: %v", err)
	}
	w.must(w.store.Abandon(w.ctx, conn, slot))
	if n := claims(slot); n != 0 {
		t.Errorf("with a slot given up: claimed %d", n)
	}
}

func TestClaim_NotWhilePaused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conn := w.conn()
	slot, running := w.claim(conn)
	w.insert(newJob())
	for range 2 { // pausing twice is pausing once
		w.must(w.store.Pause(w.ctx, w.pool, "q"))
	}
	taken, err := w.store.Step(w.ctx, conn, slot, nil, 10, true, "")
	w.must(err)
	if len(taken.Claimed) != 0 {
		t.Errorf("claimed %d from a paused queue", len(taken.Claimed))
	}
	if w.finish(outcome(running, queue.Done)) != 1 {
		t.Error("a running job could not finish")
	}
	if next, err := w.store.Next(w.ctx, w.pool, "q"); err != nil || next.Due || next.In >= 0 {
		t.Errorf("next of a paused queue: %+v, %v; want nothing", next, err)
	}
	if due, err := w.store.Due(w.ctx, w.pool); err != nil || len(due) != 0 {
		t.Errorf("due: %v, %v; want nothing", due, err)
	}
	if rang, err := w.store.Ring(w.ctx, w.pool, "q", time.Time{}, bell); err != nil || rang {
		t.Errorf("a paused queue's bell rang: %v, %v", rang, err)
	}
	for range 2 {
		w.must(w.store.Resume(w.ctx, w.pool, "q"))
	}
	taken, err = w.store.Step(w.ctx, conn, slot, nil, 10, true, "")
	w.must(err)
	if len(taken.Claimed) != 1 {
		t.Errorf("claimed %d after the resume, want 1", len(taken.Claimed))
	}
}

// A lease that has expired is counted as a reap, and its job does not run among others.
func TestClaim_ReapsAnExpiredLeaseRatherThanClaimIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conn := w.conn()
	slot, lost := w.claim(conn)
	w.expire(lost.ID)
	fresh := newJob()
	w.insert(fresh)
	taken, err := w.store.Step(w.ctx, conn, slot, nil, 10, true, "")
	w.must(err)
	if !same(claimedIDs(taken.Claimed), []uuid.UUID{fresh.ID}) || taken.Reaped != 1 {
		t.Errorf("claimed %v and reaped %d, want the fresh job and 1", claimedIDs(taken.Claimed), taken.Reaped)
	}
	got := w.get(lost.ID)
	if got.State != queue.Queued || got.Reaps != 1 || got.Attempts != 1 {
		t.Errorf("the lost job: %+v; want queued, 1 reap, and no attempt more", got)
	}
	if n := w.finish(outcome(lost, queue.Done)); n != 0 {
		t.Error("its old holder finished it")
	}
}

// A job that lost its drain runs alone: first, and with no other beside it.
func TestClaim_AReapedJobRunsAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conn := w.conn()
	slot, lost := w.claim(conn, func(j *queue.NewJob) { j.Priority = 10 })
	w.expire(lost.ID)
	_, err := w.store.Reap(w.ctx, w.pool, 10)
	w.must(err)
	w.insert(newJobs(5)...)
	w.must(w.store.Abandon(w.ctx, conn, slot))

	slot, taken := w.start(conn, "q", 10)
	if !same(claimedIDs(taken.Claimed), []uuid.UUID{lost.ID}) || !taken.Alone() || !taken.Full(10) {
		t.Fatalf("claimed %v, want only the reaped job, and to be told that there is more", claimedIDs(taken.Claimed))
	}
	// Another drain may run the others meanwhile.
	other, rest := w.start(conn, "q", 2)
	if len(rest.Claimed) != 2 || rest.Alone() {
		t.Errorf("another drain claimed %d", len(rest.Claimed))
	}
	// A drain that has something to run does not take a lone job.
	w.expire(lost.ID)
	_, err = w.store.Reap(w.ctx, w.pool, 10)
	w.must(err)
	rest, err = w.store.Step(w.ctx, conn, other, nil, 10, false, "")
	w.must(err)
	if contains(claimedIDs(rest.Claimed), lost.ID) || len(rest.Claimed) != 3 {
		t.Errorf("a busy drain claimed %v", claimedIDs(rest.Claimed))
	}
	taken, err = w.store.Step(w.ctx, conn, slot, nil, 10, true, "")
	w.must(err)
	if !taken.Alone() || taken.Claimed[0].Reaps != 2 || taken.Claimed[0].Attempts != 3 {
		t.Errorf("claimed %+v, want the job with two reaps", taken.Claimed)
	}
	// Two of them: one at a time.
	w.exec(`UPDATE doze.jobs SET reaps = 1, token = NULL, locked_until = '-infinity'`)
	taken, err = w.store.Step(w.ctx, conn, slot, nil, 10, true, "")
	w.must(err)
	if len(taken.Claimed) != 1 || !taken.Alone() {
		t.Errorf("claimed %d lone jobs at once", len(taken.Claimed))
	}
}

// However often its drain vanishes, a job's reaps are counted, so they can be bounded.
func TestReaps_CountEachVanishedDrain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conn := w.conn()
	slot, c := w.claim(conn)
	for want := 1; want <= 4; want++ {
		w.expire(c.ID)
		taken, err := w.store.Step(w.ctx, conn, slot, nil, 10, true, "") // the first time reaps, then claims alone at once
		w.must(err)
		if want == 1 {
			taken, err = w.store.Step(w.ctx, conn, slot, nil, 10, true, "")
			w.must(err)
		}
		if len(taken.Claimed) != 1 || taken.Claimed[0].Reaps != want || taken.Claimed[0].Failures != 0 || taken.Claimed[0].Attempts != want+1 {
			t.Fatalf("after %d vanished drains: %+v", want, taken.Claimed)
		}
	}
}

// A drain's own clock has no part in it: a lease counts by the database's.
func TestClaim_LeavesALivingLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conn := w.conn()
	_, c := w.claim(conn)
	if got := w.text(`SELECT (locked_until - clock_timestamp() BETWEEN interval '50 s' AND interval '60 s')::text FROM doze.jobs`); got != "true" {
		t.Error("the lease is not a minute of the database's time")
	}
	_, taken := w.start(conn, "q", 10)
	if len(taken.Claimed) != 0 || taken.Reaped != 0 {
		t.Errorf("a living lease was taken: %+v", taken)
	}
	reaped, err := w.store.Reap(w.ctx, w.pool, 10)
	w.must(err)
	if len(reaped) != 0 || w.state(c.ID) != queue.Running {
		t.Errorf("reaped %v", reaped)
	}
}

// The slots bound how many drains run, however many come at once.
func TestStart_NeverMoreHoldersThanSlots(t *testing.T) {
	t.Parallel()
	const slots, drains = 3, 20
	w := newWorld(t, dbtest.MaxConns(drains+1))
	w.must(w.store.Configure(w.ctx, w.pool, "q", queue.Settings{Slots: slots}))
	w.insert(newJobs(drains * 2)...)
	for round := range 10 {
		begin := make(chan struct{})
		got := make([]queue.Taken, drains)
		var all sync.WaitGroup
		for i := range drains {
			conn, err := w.pool.Acquire(w.ctx)
			w.must(err)
			all.Add(1)
			go func() {
				defer all.Done()
				defer conn.Release()
				<-begin
				taken, err := w.store.Start(w.ctx, conn.Conn(), newSlot("q"), "", 1)
				if err != nil {
					t.Error(err)
				}
				got[i] = taken
			}()
		}
		close(begin)
		all.Wait()
		held, claimed := 0, 0
		for _, taken := range got {
			if taken.Slot {
				held++
			}
			claimed += len(taken.Claimed)
		}
		if n := w.int(`SELECT count(*) FROM doze.slots WHERE state <> 'free'`); held != n || held > slots || held == 0 || claimed > held {
			t.Errorf("round %d: %d drains hold %d of %d slots and claimed %d", round, held, n, slots, claimed)
		}
		w.exec(`UPDATE doze.slots SET state = 'free', token = NULL, locked_until = NULL`)
		w.exec(`UPDATE doze.jobs SET token = NULL, locked_until = '-infinity'`)
	}
}

// An expired slot is free for the next drain, and its old holder keeps nothing.
func TestStart_TakesOverAnExpiredSlot(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conn := w.conn()
	w.must(w.store.Configure(w.ctx, w.pool, "q", queue.Settings{Slots: 1}))
	old, _ := w.start(conn, "q", 1)
	if taken, err := w.store.Start(w.ctx, conn, newSlot("q"), "", 1); err != nil || taken.Slot {
		t.Errorf("a second drain got the only slot: %v", err)
	}
	w.exec(`UPDATE doze.slots SET locked_until = now() - interval '1 ms'`)
	now, _ := w.start(conn, "q", 1)
	w.must(w.store.Abandon(w.ctx, conn, old))
	_, err := w.store.Renew(w.ctx, conn, old, queue.Busy, nil)
	w.must(err)
	if got := w.text(`SELECT state || ' ' || token FROM doze.slots`); got != "open "+now.Token.String() {
		t.Errorf("the slot is %s, want it open for %s", got, now.Token)
	}
}

// Fewer slots: those that are held go when their drains do. More: at once.
func TestConfigure_Slots(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conn := w.conn()
	set := func(n int) { t.Helper(); w.must(w.store.Configure(w.ctx, w.pool, "q", queue.Settings{Slots: n})) }
	rows := func() string { return w.text(`SELECT slot::text FROM doze.slots ORDER BY slot`) }
	set(3)
	first, _ := w.start(conn, "q", 1)
	second, _ := w.start(conn, "q", 1)
	set(1)
	if got := rows(); got != "1,2" {
		t.Errorf("slots %s, want 1 and the one that is held", got)
	}
	w.must(w.store.Abandon(w.ctx, conn, second))
	if taken, err := w.store.Start(w.ctx, conn, newSlot("q"), "", 1); err != nil || taken.Slot {
		t.Errorf("a slot above the limit was taken: %v", err)
	}
	if rang, err := w.store.Ring(w.ctx, w.pool, "q", time.Time{}, bell); err != nil || rang {
		t.Errorf("it rang, with only a slot above the limit free: %v, %v", rang, err)
	}
	w.must(w.store.Abandon(w.ctx, conn, first))
	set(2)
	if got := rows(); got != "1,2" {
		t.Errorf("slots %s, want 1,2", got)
	}
	for _, bad := range []queue.Settings{{Slots: -1}, {Slots: 1001}, {MaxReaps: 101}, {History: "yes"}} {
		if err := w.store.Configure(w.ctx, w.pool, "q", bad); err == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
}

// Eight drains, ten thousand jobs, each claimed once. Beside it the claim that everybody writes
// first, select then update, so that the test is known to notice.
func TestClaim_TheRace(t *testing.T) {
	t.Parallel()
	const drains = 8
	jobs := 10_000
	if testing.Short() {
		jobs = 2_000
	}
	w := newWorld(t, dbtest.MaxConns(drains+1))
	w.must(w.store.Configure(w.ctx, w.pool, "q", queue.Settings{Slots: drains}))
	for batch := range slices.Chunk(newJobs(jobs), 1000) {
		w.insert(batch...)
	}
	var mu sync.Mutex
	times := map[uuid.UUID]int{}
	attempts := map[int]int{}
	record := func(claimed []queue.Claimed) {
		mu.Lock()
		defer mu.Unlock()
		for _, c := range claimed {
			times[c.ID]++
			attempts[c.Attempts]++
		}
	}
	inParallel(drains, func(i int) error {
		conn, err := w.pool.Acquire(w.ctx)
		if err != nil {
			return err
		}
		defer conn.Release()
		slot, limit := newSlot("q"), 1+i*20 // small and large claims side by side
		taken, err := w.store.Start(w.ctx, conn.Conn(), slot, "", limit)
		for err == nil && len(taken.Claimed) > 0 {
			record(taken.Claimed)
			var outcomes []queue.Outcome
			for _, c := range taken.Claimed {
				outcomes = append(outcomes, outcome(c, queue.Done))
			}
			taken, err = w.store.Step(w.ctx, conn.Conn(), slot, outcomes, limit, true, "")
			if err == nil && len(taken.Held) != len(outcomes) {
				err = fmt.Errorf("%d of %d outcomes were accepted", len(taken.Held), len(outcomes))
			}
		}
		return err
	}, func(err error) { t.Error(err) })
	twice := 0
	for _, n := range times {
		if n != 1 {
			twice++
		}
	}
	if len(times) != jobs || twice != 0 || attempts[1] != jobs {
		t.Errorf("%d of %d jobs were claimed, %d of them more than once; attempts %v", len(times), jobs, twice, attempts)
	}
	if n := w.int(`SELECT count(*) FROM doze.history WHERE state = 'done'`); n != jobs {
		t.Errorf("%d jobs are done, want %d", n, jobs)
	}

	// The naive claim, on a copy.
	w.exec(`CREATE TABLE doze.naive AS SELECT id, 'queued' AS status FROM doze.history ORDER BY id LIMIT 1000`)
	w.exec(`ALTER TABLE doze.naive ADD PRIMARY KEY (id)`)
	clear(times)
	inParallel(drains, func(int) error {
		for {
			var id uuid.UUID
			err := w.pool.QueryRow(w.ctx, queue.Qualify(`SELECT id FROM doze.naive WHERE status = 'queued' ORDER BY id LIMIT 1`, w.name)).Scan(&id)
			if err == pgx.ErrNoRows {
				return nil
			} else if err != nil {
				return err
			}
			if _, err := w.pool.Exec(w.ctx, queue.Qualify(`UPDATE doze.naive SET status = 'running' WHERE id = $1`, w.name), id); err != nil {
				return err
			}
			mu.Lock()
			times[id]++
			mu.Unlock()
		}
	}, func(err error) { t.Error(err) })
	for _, n := range times {
		if n > 1 {
			twice++
		}
	}
	if twice == 0 {
		t.Error("the naive claim claimed no job twice, so this test would not have noticed")
	}
	t.Logf("%d jobs claimed once each; the naive claim took %d of %d twice or more", jobs, twice, len(times))
}

// inParallel runs fn n times at once and waits for all.
func inParallel(n int, fn func(i int) error, failed func(error)) {
	var all sync.WaitGroup
	for i := range n {
		all.Add(1)
		go func() {
			defer all.Done()
			if err := fn(i); err != nil {
				failed(err)
			}
		}()
	}
	all.Wait()
}

// A claim changes no indexed column and finds room on its row's page, so that it writes no index.
func TestClaim_IsAHotUpdate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.queue("q")
	for size := range 20 { // rows of different lengths fill their pages differently
		w.insert(newJobs(100, func(j *queue.NewJob) {
			j.Payload = json.RawMessage(`"` + strings.Repeat("x", size*37) + `"`)
		})...)
	}
	conn := w.conn()
	slot, _ := w.start(conn, "q", 0)
	look := func() (updates, hot int) { // as the server counts them
		t.Helper()
		w.must(conn.QueryRow(w.ctx, `SELECT n_tup_upd, n_tup_hot_upd FROM pg_catalog.pg_stat_xact_user_tables
			WHERE schemaname = $1 AND relname = 'jobs'`, w.name).Scan(&updates, &hot))
		return updates, hot
	}
	_, err := conn.Exec(w.ctx, "BEGIN")
	w.must(err)
	_, err = w.store.Step(w.ctx, conn, slot, nil, 2000, true, queue.Busy)
	w.must(err)
	if updates, hot := look(); updates != 2000 || hot != 2000 {
		t.Errorf("%d claims of which %d are HOT updates, want 2000 and all", updates, hot)
	}
	_, err = conn.Exec(w.ctx, "ROLLBACK")
	w.must(err)
}
