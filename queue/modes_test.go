package queue_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/dozequeue/doze/internal/dbtest"
	"github.com/dozequeue/doze/queue"
)

// Every statement, in each way in which pgx can send it.
func TestStore_EveryMethodInEveryExecMode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dbtest.ExecModes(t, func(t *testing.T, mode pgx.QueryExecMode) {
		w := &world{t: t, ctx: w.ctx, name: w.name, store: w.store, pool: dbtest.Pool(t, dbtest.Mode(mode))}
		w.life("q_" + uuid.NewString())
	})
}

// Behind a transaction-mode pooler each transaction may meet another server connection,
// and search_path is gone. (The two modes that prepare statements by name, or in a round trip
// of their own, depend on the pooler's version.)
func TestStore_EveryMethodThroughPgBouncer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	through := dbtest.PgBouncer(t, dbtest.URL(t))
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeCacheDescribe} {
		t.Run(mode.String(), func(t *testing.T) {
			w := &world{t: t, ctx: w.ctx, name: w.name, store: w.store, pool: dbtest.Pool(t, dbtest.At(through), dbtest.Mode(mode))}
			w.life("q_" + uuid.NewString())
		})
	}
}

// life takes jobs through every method of the store. What each does in detail is for
// other tests: this one shows that its arguments and results travel.
func (w *world) life(name string) {
	w.t.Helper()
	ctx, s, db, conn := w.ctx, w.store, w.pool, w.conn()
	must := func(err error) { w.t.Helper(); w.must(err) }
	check := func(ok bool, what string, got any) {
		w.t.Helper()
		if !ok {
			w.t.Errorf("%s: got %+v", what, got)
		}
	}

	must(s.Configure(ctx, db, name, queue.Settings{Slots: 2, MaxReaps: 5, History: "on"}))
	must(s.Pause(ctx, db, name))
	must(s.Resume(ctx, db, name))

	one := newJob(inQueue(name))
	in, err := s.Insert(ctx, db, []queue.NewJob{one}, false)
	must(err)
	check(len(in) == 1 && in[0].ID == one.ID && !in[0].Duplicate, "insert one", in)
	many := []queue.NewJob{
		newJob(inQueue(name), keyed("key "+name, time.Hour)), newJob(inQueue(name), after(time.Hour)),
		newJob(inQueue(name), func(j *queue.NewJob) { j.RunAt = time.Unix(1e9, 0); j.Priority = -3 }), newJob(inQueue(name)),
	}
	in, err = s.Insert(ctx, db, many, true)
	must(err)
	check(len(in) == 4 && !in[0].Duplicate, "insert many", in)
	in, fire, err := s.InsertAndRing(ctx, conn, newJobs(1, inQueue(name)), false, bell)
	must(err)
	check(len(in) == 1 && same(fire, []string{name}), "insert and ring", fire)
	must(s.Unring(ctx, db, name))
	rang, err := s.Ring(ctx, db, name, time.Time{}, bell)
	must(err)
	check(rang, "ring after unring", rang)
	due, err := s.Due(ctx, db)
	must(err)
	check(contains(due, name), "due", due)
	next, err := s.Next(ctx, db, name)
	must(err)
	check(next.Due, "next", next)
	armed, err := s.Arm(ctx, db, name, time.Minute, uuid.New(), time.Minute)
	must(err)
	check(armed, "arm", armed)
	must(s.Disarm(ctx, db))
	waiting, err := s.Waiting(ctx, db)
	must(err)
	check(contains(waiting, name), "waiting", waiting)
	free, err := s.SlotFreeIn(ctx, db, name)
	must(err)
	check(free < 0, "slot free in", free)
	must(s.GiveBack(ctx, db, name, []uuid.UUID{uuid.New()}))

	slot, taken := w.start(conn, name, 2)
	check(len(taken.Claimed) == 2 && taken.Claimed[0].ID == many[2].ID && taken.MaxReaps == 5, "start", taken)
	check(string(taken.Claimed[0].Payload) == `{"n": 1}`, "payload", string(taken.Claimed[0].Payload))
	held, err := s.Extend(ctx, db, taken.Claimed, time.Minute)
	must(err)
	check(len(held) == 2, "extend", held)
	held, err = s.Renew(ctx, conn, slot, queue.Busy, taken.Claimed)
	must(err)
	check(len(held) == 2, "renew", held)
	full, err := s.Saturated(ctx, conn, slot, bell)
	must(err)
	check(full, "saturated", full)
	taken, err = s.Step(ctx, conn, slot, []queue.Outcome{
		outcome(taken.Claimed[0], queue.Queued, func(o *queue.Outcome) { o.Delay, o.Failed, o.Error = time.Hour, true, "nul \x00 \xff" }),
		outcome(taken.Claimed[1], queue.Done),
	}, 10, false, queue.Open)
	must(err)
	check(len(taken.Held) == 2 && len(taken.Claimed) == 3, "step", taken)
	held, err = s.Finish(ctx, db, []queue.Outcome{outcome(taken.Claimed[0], queue.Failed, func(o *queue.Outcome) { o.Failed, o.Error = true, "for good" })})
	must(err)
	check(len(held) == 1, "finish", held)
	failed := taken.Claimed[0].ID
	w.expire(taken.Claimed[1].ID)
	reaped, err := s.Reap(ctx, db, 1000)
	must(err)
	check(contains(reaped, taken.Claimed[1].ID), "reap", reaped)
	held, rang, err = s.HandOver(ctx, conn, slot, []queue.Outcome{outcome(taken.Claimed[2], queue.Queued, func(o *queue.Outcome) { o.Delay = -1 })}, bell)
	must(err)
	check(len(held) == 1 && !rang, "hand over: the bell is set", held)
	must(s.Abandon(ctx, conn, slot, uuid.New()))
	slot = newSlot(name)
	taken, err = s.Retake(ctx, conn, slot, 10)
	must(err)
	check(taken.Slot && taken.Alone(), "retake", taken)
	held, next, err = s.Exit(ctx, conn, slot, []queue.Outcome{outcome(taken.Claimed[0], queue.Cancelled)})
	must(err)
	check(len(held) == 1 && next.Due, "exit", next)

	job, err := s.Get(ctx, db, failed)
	must(err)
	check(job.State == queue.Failed && job.LastError == "for good" && !job.FinishedAt.IsZero(), "get", job)
	job, err = s.Retry(ctx, db, failed)
	must(err)
	check(job.State == queue.Queued && string(job.Payload) == `{"n": 1}`, "retry", job)
	job, err = s.Cancel(ctx, db, failed)
	must(err)
	check(job.State == queue.Cancelled, "cancel", job)
	listed, err := s.List(ctx, db, queue.Filter{Queue: name, State: queue.Queued, Kind: "k", Limit: 10, Before: uuid.Max})
	must(err)
	check(len(listed) == 3 && listed[0].Payload == nil, "list", len(listed))
	counts, err := s.Queues(ctx, db)
	must(err)
	for _, c := range counts {
		if c.Queue == name {
			check(c.Queued == 3 && c.Due == 1 && c.Running == 0 && c.Slots == 2 && c.Held == 0, "queues", c)
		}
	}
	_, err = s.PruneHistory(ctx, db, queue.MaxKeep)
	must(err)
	_, err = s.PruneFailed(ctx, db, time.Hour, 10)
	must(err)
	_, err = s.PruneKeys(ctx, db, 10)
	must(err)
}

func contains[T comparable](all []T, one T) bool {
	for _, a := range all {
		if a == one {
			return true
		}
	}
	return false
}

// A statement that hangs and is cut off has claimed nothing, and the connection is not left
// inside a transaction.
func TestStart_CutOffMidwayClaimsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.queue("q")
	w.insert(newJob())
	blocker := w.conn()
	_, err := blocker.Exec(w.ctx, queue.Qualify("BEGIN; LOCK TABLE doze.jobs IN ACCESS EXCLUSIVE MODE", w.name), pgx.QueryExecModeSimpleProtocol)
	w.must(err)
	conn := w.conn()
	_, err = conn.Exec(w.ctx, "SET statement_timeout = '50ms'")
	w.must(err)
	taken, err := w.store.Start(w.ctx, conn, newSlot("q"), "", 1)
	if code(err) != "57014" || queue.Classify(err) != queue.Conflict || len(taken.Claimed) != 0 {
		t.Errorf("claimed %d, error %v; want a statement timeout", len(taken.Claimed), err)
	}
	_, err = conn.Exec(w.ctx, "RESET statement_timeout")
	w.must(err)
	_, err = blocker.Exec(w.ctx, "ROLLBACK")
	w.must(err)
	if _, taken = w.start(conn, "q", 1); len(taken.Claimed) != 1 || taken.Claimed[0].Attempts != 1 {
		t.Errorf("the next drain claimed %+v, want the job's first attempt", taken.Claimed)
	}

	// The caller's context ends while the claim waits.
	_, err = blocker.Exec(w.ctx, queue.Qualify("BEGIN; LOCK TABLE doze.jobs IN ACCESS EXCLUSIVE MODE", w.name), pgx.QueryExecModeSimpleProtocol)
	w.must(err)
	own, err := pgx.ConnectConfig(w.ctx, w.pool.Config().ConnConfig)
	w.must(err)
	pid := own.PgConn().PID()
	ctx, cancel := context.WithCancel(w.ctx)
	result := make(chan error, 1)
	go func() {
		_, err := w.store.Start(ctx, own, newSlot("q"), "", 1)
		result <- err
	}()
	w.waitUntilBlocked(pid)
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context canceled", err)
	}
	_, err = blocker.Exec(w.ctx, "ROLLBACK")
	w.must(err)
}

// waitUntilBlocked returns when the server process waits for a lock.
func (w *world) waitUntilBlocked(pid uint32) {
	w.t.Helper()
	for w.int(`SELECT count(*) FROM pg_catalog.pg_locks WHERE pid = $1 AND NOT granted`, int32(pid)) == 0 {
		if w.ctx.Err() != nil {
			w.t.Fatal("it never waited for a lock")
		}
	}
}
