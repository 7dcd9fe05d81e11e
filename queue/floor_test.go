package queue_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/dozequeue/doze/queue"
)

// raise has a drain raise the floor of queue q, as each does with a claim from the head.
func (w *world) raise(conn *pgx.Conn) {
	w.t.Helper()
	slot := newSlot("q")
	taken, err := w.store.Start(w.ctx, conn, slot, "", 0)
	w.must(err)
	if !taken.Slot {
		w.t.Fatal("no slot")
	}
	_, err = w.store.Step(w.ctx, conn, slot, nil, 1, false, "")
	w.must(err)
	_, err = w.pool.Exec(w.ctx, queue.Qualify(`UPDATE doze.slots SET state = 'free', token = NULL, locked_until = NULL`, w.name))
	w.must(err)
}

// The floor is raised to the oldest live job, of whatever priority, and never to within two seconds: a job that is committed a
// moment late is not rung for in any special way.
func TestFloor_IsRaisedToTheOldestLiveJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conn := w.conn()
	w.queue("q")
	floor := func() string {
		return w.text(`SELECT CASE WHEN floor = '-infinity' THEN 'none' WHEN floor = (SELECT min(run_at) FROM doze.jobs) THEN 'oldest'
		                           WHEN floor BETWEEN now() - interval '1 minute' AND now() - interval '2 seconds' THEN 'lately' ELSE floor::text END FROM doze.bells`)
	}
	if got := floor(); got != "none" {
		t.Errorf("at first the floor is %s", got)
	}
	w.raise(conn)
	if got := floor(); got != "lately" {
		t.Errorf("with no job the floor is %s, want a while ago", got)
	}
	jobs := newJobs(3, func(j *queue.NewJob) { j.Priority = 7 })
	jobs[1].Priority, jobs[1].RunAt = -3, time.Now().Add(-time.Hour)
	jobs[2].Priority = 10
	_, _, err := w.store.InsertAndRing(w.ctx, conn, jobs, false, bell)
	w.must(err)
	if got := floor(); got != "oldest" {
		t.Errorf("after a job from an hour ago the floor is %s, want that", got)
	}
	w.exec(`UPDATE doze.jobs SET token = gen_random_uuid(), locked_until = now() + interval '1 hour', attempts = 1`)
	w.raise(conn)
	if got := floor(); got != "oldest" {
		t.Errorf("while it runs the floor is %s: nobody may raise it, since it may come back", got)
	}
	w.exec(`DELETE FROM doze.jobs`)
	w.raise(conn)
	if got := floor(); got != "lately" {
		t.Errorf("when all are gone the floor is %s, want a while ago", got)
	}
}

// Whatever is committed late is found, however it came in: its transaction began before the floor was raised.
func TestFloor_IsLoweredForWhatIsCommittedLate(t *testing.T) {
	t.Parallel()
	doors := map[string]func(w *world, tx pgx.Tx) (rung queue.Inserted){
		"one job": func(w *world, tx pgx.Tx) queue.Inserted {
			in, err := w.store.Insert(w.ctx, tx, newJobs(1), false)
			w.must(err)
			return in[0]
		},
		"jobs with keys": func(w *world, tx pgx.Tx) queue.Inserted {
			in, err := w.store.Insert(w.ctx, tx, []queue.NewJob{newJob(), newJob(keyed("k", 0))}, false)
			w.must(err)
			return in[1]
		},
		"many by copy": func(w *world, tx pgx.Tx) queue.Inserted {
			in, err := w.store.Insert(w.ctx, tx, newJobs(200), false)
			w.must(err)
			return in[199]
		},
		"nobody knows when": func(w *world, tx pgx.Tx) queue.Inserted {
			_, err := w.store.Insert(w.ctx, tx, newJobs(1), false)
			w.must(err)
			return queue.Inserted{}
		},
		"a failed job again": func(w *world, tx pgx.Tx) queue.Inserted {
			_, claimed := w.claim(w.conn())
			w.finish(outcome(claimed, queue.Failed))
			job, err := w.store.Retry(w.ctx, tx, claimed.ID)
			w.must(err)
			return queue.Inserted{RunAt: job.RunAt}
		},
		"a later one now": func(w *world, tx pgx.Tx) queue.Inserted {
			job := newJob(after(time.Hour))
			w.insert(job)
			now, err := w.store.Retry(w.ctx, tx, job.ID)
			w.must(err)
			return queue.Inserted{RunAt: now.RunAt}
		},
	}
	for name, enqueue := range doors {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.queue("q")
			conn := w.conn()
			tx, err := w.pool.Begin(w.ctx)
			w.must(err)
			defer func() { _ = tx.Rollback(context.WithoutCancel(w.ctx)) }()
			in := enqueue(w, tx)
			w.exec(`UPDATE doze.bells SET floor = clock_timestamp()`)
			w.must(tx.Commit(w.ctx))
			if next, err := w.store.Next(w.ctx, conn, "q"); err != nil || next.Due {
				t.Fatalf("next is %+v, %v: this is to be about what lies below the floor", next, err)
			}
			_, err = w.store.Ring(w.ctx, w.pool, "q", in.RunAt, bell)
			w.must(err)
			if next, err := w.store.Next(w.ctx, conn, "q"); err != nil || !next.Due {
				t.Errorf("after the ring next is %+v, %v", next, err)
			}
			if _, taken := w.start(conn, "q", 1000); len(taken.Claimed) == 0 {
				t.Error("after the ring nothing was claimed")
			}
		})
	}
}

// Enqueues that ring in the same round trip lower the floor where that is called for.
func TestFloor_IsLoweredByInsertAndRing(t *testing.T) {
	t.Parallel()
	for name, insert := range map[string]func(w *world, conn *pgx.Conn) error{
		"a time long ago": func(w *world, conn *pgx.Conn) error {
			_, _, err := w.store.InsertAndRing(w.ctx, conn, []queue.NewJob{newJob(), newJob(func(j *queue.NewJob) { j.RunAt = time.Now().Add(-time.Hour) })}, false, bell)
			return err
		},
		"the repeat of one that was committed": func(w *world, conn *pgx.Conn) error {
			job := newJob()
			w.insert(job)
			w.exec(`UPDATE doze.jobs SET run_at = now() - interval '1 hour'`)
			_, _, err := w.store.InsertAndRing(w.ctx, conn, []queue.NewJob{job}, true, bell)
			return err
		},
		"the clock was set back": func(w *world, conn *pgx.Conn) error {
			w.exec(`UPDATE doze.bells SET floor = now() + interval '1 hour'`)
			_, _, err := w.store.InsertAndRing(w.ctx, conn, newJobs(1), false, bell)
			return err
		},
		"one that took a while": func(w *world, conn *pgx.Conn) error {
			// The key's row is held for longer than those who raise the floor leave alone.
			holder := w.conn()
			w.insert(newJob(keyed("k", 0)))
			w.exec(`DELETE FROM doze.jobs`)
			w.exec(`UPDATE doze.keys SET expires_at = now()`)
			tx, err := holder.Begin(w.ctx)
			w.must(err)
			_, err = tx.Exec(w.ctx, queue.Qualify(`SELECT FROM doze.keys FOR UPDATE`, w.name))
			w.must(err)
			result := make(chan error)
			go func() {
				_, _, err := w.store.InsertAndRing(w.ctx, conn, []queue.NewJob{newJob(keyed("k", 0))}, false, bell)
				result <- err
			}()
			w.waitUntilBlocked(conn.PgConn().PID())
			_, err = tx.Exec(w.ctx, queue.Qualify(`UPDATE doze.bells SET floor = clock_timestamp(); SELECT pg_sleep(1.1)`, w.name), pgx.QueryExecModeSimpleProtocol)
			w.must(errors.Join(err, tx.Commit(w.ctx)))
			return <-result
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.queue("q")
			conn := w.conn()
			w.exec(`UPDATE doze.bells SET floor = now() - interval '1 minute'`)
			w.must(insert(w, conn))
			if n := w.int(`SELECT count(*) FROM doze.jobs j JOIN doze.bells q ON q.queue = j.queue WHERE j.run_at < q.floor`); n != 0 {
				t.Errorf("%d jobs lie below the floor", n)
			}
			if _, taken := w.start(conn, "q", 1000); len(taken.Claimed) == 0 {
				t.Error("nothing was claimed")
			}
		})
	}
}

// Ticks that nobody was awake for become jobs that are due long ago.
func TestFloor_IsLoweredForTicks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.queue("q")
	tick := time.Now().Add(-time.Hour).Truncate(time.Second)
	s := queue.Schedule{Name: "s", Queue: "q", Kind: "k", Payload: []byte("null"), MaxAttempts: 1, Cron: "0 * * * *", TimeZone: "UTC", CatchUp: "all", CatchUpLimit: 10, NextAt: tick}
	w.must(w.store.PutSchedule(w.ctx, w.pool, s))
	w.exec(`UPDATE doze.bells SET floor = now() - interval '1 minute'`)
	made, err := w.store.Tick(w.ctx, w.pool, s, []time.Time{tick}, tick.Add(24*time.Hour))
	w.must(err)
	if _, taken := w.start(w.conn(), "q", 10); !same(claimedIDs(taken.Claimed), made) || len(made) != 1 {
		t.Errorf("claimed %v, want the job of the tick, %v", claimedIDs(taken.Claimed), made)
	}
}

// A floor in the future is from before the clock was set back. It hides nothing, neither while the clock has not come there
// again nor after.
func TestFloor_InTheFutureIsNone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.queue("q")
	conn := w.conn()
	w.insert(newJobs(3)...)
	future := func() { w.exec(`UPDATE doze.bells SET floor = now() + interval '1 hour'`) }
	future()
	if next, err := w.store.Next(w.ctx, conn, "q"); err != nil || !next.Due {
		t.Errorf("next is %+v, %v", next, err)
	}
	slot, taken := w.start(conn, "q", 1)
	if len(taken.Claimed) != 1 {
		t.Errorf("a start claimed %d", len(taken.Claimed))
	}
	if n := w.int(`SELECT count(*) FROM doze.bells WHERE floor > now()`); n != 0 {
		t.Error("after a start the floor is in the future still")
	}
	future()
	taken, err := w.store.Step(w.ctx, conn, slot, nil, 1, false, "")
	w.must(err)
	if len(taken.Claimed) != 1 {
		t.Errorf("a claim from the head took %d", len(taken.Claimed))
	}
	if n := w.int(`SELECT count(*) FROM doze.jobs j JOIN doze.bells q ON q.queue = j.queue WHERE j.run_at < q.floor`); n != 0 {
		t.Error("after a claim from the head there are jobs below the floor")
	}
	future()
	if rang, err := w.store.Saturated(w.ctx, conn, slot, bell); err != nil || !rang {
		t.Errorf("saturated: rang %v, %v", rang, err)
	}
}

// An exit now and then raises the floor, for queues whose drains find one job each.
func TestFloor_IsRaisedByExits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.queue("q")
	conn := w.conn()
	for n := range 10_000 {
		if w.int(`SELECT count(*) FROM doze.bells WHERE floor > '-infinity'`) == 1 {
			t.Logf("after %d exits", n)
			return
		}
		_, _, err := w.store.Exit(w.ctx, conn, queue.Slot{Queue: "q", Token: uuid.New()}, nil)
		w.must(err)
	}
	t.Error("no exit raised it")
}
