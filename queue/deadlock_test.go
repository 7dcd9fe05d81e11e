package queue_test

import (
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/dozequeue/doze/internal/dbtest"
	"github.com/dozequeue/doze/queue"
)

// A batch finish, a reap, a renewal and operators, all at the same rows at once: no deadlock, and
// every job ends in one place.
func TestDeadlocks_None(t *testing.T) {
	t.Parallel()
	rounds := 2000
	if testing.Short() {
		rounds = 200
	}
	w := newWorld(t, dbtest.MaxConns(8))
	conn := w.conn()
	w.queue("q")
	const n = 6
	states := []queue.State{queue.Done, queue.Queued, queue.Failed, queue.Done, queue.Queued, queue.Cancelled}
	for round := range rounds {
		jobs := newJobs(n)
		for i := range jobs {
			jobs[i].Key = string(rune('f' - i)) // keys in the opposite order to ids
		}
		in := w.insert(jobs...)
		token := uuid.New()
		claimed := make([]queue.Claimed, 0, n)
		for i := range in {
			if in[i].Duplicate {
				t.Fatalf("round %d: key %s is still taken by %s", round, jobs[i].Key, in[i].ID)
			}
			claimed = append(claimed, queue.Claimed{Job: queue.Job{ID: in[i].ID, Attempts: 1}, Token: token})
		}
		// Running, with a lease that has just run out.
		w.exec(`UPDATE doze.jobs SET token = $1::text::uuid, attempts = 1, locked_until = now() - interval '1 ms'`, token.String())
		outcomes := make([]queue.Outcome, n)
		for i, c := range claimed {
			outcomes[i] = outcome(c, states[(i+round)%n])
		}
		finish := func() error { _, err := w.store.Finish(w.ctx, w.pool, outcomes); return err }
		if round%2 == 1 { // as a drain does in which all are done
			for i, c := range claimed {
				outcomes[i] = outcome(c, queue.Done)
			}
			finish = func() error {
				_, err := w.store.Step(w.ctx, conn, newSlot("q"), outcomes, 0, false, "")
				return err
			}
		}
		begin := make(chan struct{})
		var all sync.WaitGroup
		for name, do := range map[string]func() error{
			"finish": finish,
			"reap":   func() error { _, err := w.store.Reap(w.ctx, w.pool, 100); return err },
			"cancel": func() error {
				for _, i := range []int{5, 2} {
					if _, err := w.store.Cancel(w.ctx, w.pool, in[i].ID); code(err) != "" {
						return err
					}
				}
				return nil
			},
			"insert": func() error { // takes over the keys that are let go
				again := newJobs(n)
				for i := range again {
					again[i].Key = jobs[(i+round)%n].Key
				}
				_, err := w.store.Insert(w.ctx, w.pool, again, false)
				return err
			},
			"prune": func() error { _, err := w.store.PruneKeys(w.ctx, w.pool, 100); return err },
		} {
			all.Add(1)
			go func() {
				defer all.Done()
				<-begin
				if err := do(); err != nil {
					t.Errorf("round %d: %s: %v", round, name, err)
				}
			}()
		}
		close(begin)
		all.Wait()
		if t.Failed() {
			return
		}
		if got := w.int(`SELECT count(*) FROM (SELECT id FROM doze.jobs UNION ALL SELECT id FROM doze.history) j WHERE id = ANY($1::uuid[])`, ids(jobs)); got != n {
			t.Fatalf("round %d: %d jobs became %d", round, n, got)
		}
		w.exec(`DELETE FROM doze.jobs`)
		w.exec(`DELETE FROM doze.keys`)
	}
}

// Two renewals and a finish whose jobs are named in different orders.
func TestExtend_LocksInOneOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.MaxConns(8))
	conn := w.conn()
	w.queue("q")
	w.insert(newJobs(100)...)
	_, taken := w.start(conn, "q", 100)
	back := make([]queue.Claimed, len(taken.Claimed))
	for i, c := range taken.Claimed {
		back[len(back)-1-i] = c
	}
	for range 100 {
		inParallel(2, func(i int) error {
			jobs := taken.Claimed
			if i == 1 {
				jobs = back
			}
			held, err := w.store.Extend(w.ctx, w.pool, jobs, time.Minute)
			if err == nil && len(held) != len(jobs) {
				t.Errorf("%d of %d leases renewed", len(held), len(jobs))
			}
			return err
		}, func(err error) { t.Error(err) })
	}
}
