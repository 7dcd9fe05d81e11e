package handler_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/dozequeue/doze/handler"
	"github.com/dozequeue/doze/internal/dbtest"
	"github.com/dozequeue/doze/queue"
)

// enqueue inserts a job and fires for its ring, as an enqueuer does. It reports whether it fired.
func (w *world) enqueue(j queue.NewJob, trigger queue.Trigger) bool {
	fired := false
	w.with(func(conn *pgx.Conn) {
		_, fire, err := w.store.InsertAndRing(w.ctx, conn, []queue.NewJob{j}, false, bell)
		if err != nil {
			w.t.Error(err)
		}
		for _, name := range fire {
			fired = true
			if err := trigger.Fire(w.ctx, queue.Wake{Version: 1, Queue: name, Reason: queue.ReasonEnqueue}); err != nil {
				w.t.Error(err)
			}
		}
	})
	return fired
}

func TestWake_ABurstStartsABoundedNumberOfDrains(t *testing.T) {
	t.Parallel()
	const jobs, writers, slots = 10_000, 8, 4
	w := newWorld(t, dbtest.MaxConns(12))
	w.configure(queue.Settings{Slots: slots})
	d := w.drainer(kinds(map[string]handler.RawFunc{"k": nothing}), handler.Config{})
	p := handler.NewInProcess(d, 0).Bind()
	var enqueuers sync.WaitGroup
	var fired atomic.Int32
	for range writers {
		enqueuers.Go(func() {
			for range jobs / writers {
				if w.enqueue(newJob("k"), p) {
					fired.Add(1)
				}
			}
		})
	}
	enqueuers.Wait()
	w.must(p.Wait(w.ctx))
	starts, most := p.Starts()
	t.Logf("%d enqueues fired %d times; %d drains, %d at once", jobs, fired.Load(), starts, most)
	if held := w.int(`SELECT count(*) FROM doze.jobs`); held != 0 || w.done() != jobs {
		t.Errorf("%d jobs are left, %d are done", held, w.done())
	}
	if starts > 50 {
		t.Errorf("%d drains", starts)
	}
}

// No more drains than slots claim at once.
func TestSlots_BoundTheDrainsThatClaim(t *testing.T) {
	t.Parallel()
	const slots = 2
	w := newWorld(t)
	w.configure(queue.Settings{Slots: slots})
	h := newWaiter()
	d := w.drainer(kinds(map[string]handler.RawFunc{"k": h.run}), handler.Config{Concurrency: 1, BatchSize: 1})
	ids := w.addMany(6, "k")
	var waits []func() (handler.Drained, error)
	for range 5 {
		waits = append(waits, w.inBackground(w.ctx, d))
	}
	receive(w, h.begun)
	receive(w, h.begun)
	if n := w.int(`SELECT count(*) FROM doze.jobs WHERE token IS NOT NULL`); n != slots {
		t.Errorf("%d jobs run", n)
	}
	for range ids {
		h.proceed <- nil
	}
	done, without := 0, 0
	for _, wait := range waits {
		report, err := wait()
		w.must(err)
		w.addsUp(report)
		done += report.Done
		if report.NoSlot {
			without++
		}
	}
	if done != len(ids) || without > 3 {
		t.Errorf("%d done; %d drains found no slot", done, without)
	}
}

// A drain with a long job in hand promises nothing, so a second job gets a drain of its own.
func TestWake_AJobBesideALongOneIsNotKeptWaiting(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	long := newWaiter()
	quick := make(chan struct{}, 1)
	d := w.drainer(kinds(map[string]handler.RawFunc{"long": long.run, "quick": func(context.Context, *queue.Job) error { quick <- struct{}{}; return nil }}), handler.Config{})
	p := handler.NewInProcess(d, 0).Bind()
	w.enqueue(newJob("long"), p)
	receive(w, long.begun)
	w.until(`SELECT count(*) = 1 FROM doze.slots WHERE state = 'busy'`)
	if !w.enqueue(newJob("quick"), p) {
		t.Error("the second enqueue did not fire")
	}
	receive(w, quick)
	long.proceed <- nil
	w.must(p.Wait(w.ctx))
	if starts, _ := p.Starts(); starts != 2 || w.done() != 2 {
		t.Errorf("%d drains, %d done", starts, w.done())
	}
}

// A backlog fans out, one more drain at a time up to the slots.
func TestWake_ABacklogFansOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.configure(queue.Settings{Slots: 3})
	h := newWaiter()
	d := w.drainer(kinds(map[string]handler.RawFunc{"k": h.run}), handler.Config{Concurrency: 1})
	p := handler.NewInProcess(d, 0).Bind()
	ids := w.addMany(9, "k")
	w.must(p.Fire(w.ctx, wakeQ))
	for range 3 {
		receive(w, h.begun)
	}
	for range ids {
		h.proceed <- nil
	}
	w.must(p.Wait(w.ctx))
	if starts, most := p.Starts(); most < 3 || starts > 9 || w.done() != 9 {
		t.Errorf("%d drains, %d at once, %d done", starts, most, w.done())
	}
}

func TestAlarm_WakesForADelayedJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.drainer(kinds(map[string]handler.RawFunc{"k": nothing}), handler.Config{})
	p := handler.NewInProcess(d, 0).Bind()
	id := w.add("k", delayed(1500*time.Millisecond))
	w.must(p.Fire(w.ctx, wakeQ)) // finds nothing due, and sets the alarm
	w.must(p.Wait(w.ctx))
	if n := w.int(`SELECT count(*) FROM doze.bells WHERE armed_id IS NOT NULL`); n != 1 {
		t.Error("no alarm is set")
	}
	w.until(`SELECT count(*) = 1 FROM doze.history`)
	w.must(p.Wait(w.ctx))
	w.wants(id, queue.Done)
	if starts, _ := p.Starts(); starts != 2 {
		t.Errorf("%d drains", starts)
	}
	if n := w.int(`SELECT count(*) FROM doze.bells WHERE armed_id IS NOT NULL`); n != 0 {
		t.Error("the alarm that went off is still set")
	}
}

// lost are the queues that have come to rest with a due job that nobody will come for: no bell is
// set and no open slot alive.
func (w *world) lost() string {
	w.t.Helper()
	return w.text(`SELECT DISTINCT q.queue FROM doze.jobs j JOIN doze.bells q ON q.queue = j.queue
		WHERE j.run_at <= now() AND j.locked_until <= now() AND (q.bell_until IS NULL OR q.bell_until < now())
		  AND NOT EXISTS (SELECT FROM doze.slots s WHERE s.queue = q.queue AND s.state = 'open' AND s.locked_until > now())`)
}

// The check must be able to fail: here is the order that loses a job, step by step, and the right one.
func TestWake_ExitWithoutALastLookLosesAJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.drainer(kinds(map[string]handler.RawFunc{"k": nothing}), handler.Config{})
	for _, c := range []struct {
		name string
		exit func(*pgx.Conn, queue.Slot) queue.Next
		lost string
	}{
		{"naive", func(conn *pgx.Conn, slot queue.Slot) queue.Next {
			w.must(w.store.Abandon(w.ctx, conn, slot))
			return queue.Next{}
		}, "q"},
		{"right", func(conn *pgx.Conn, slot queue.Slot) queue.Next {
			_, next, err := w.store.Exit(w.ctx, conn, slot, nil)
			w.must(err)
			return next
		}, ""},
	} {
		w.with(func(conn *pgx.Conn) {
			slot := queue.Slot{Queue: "q", Token: uuid.New(), Lease: time.Minute}
			taken, err := w.store.Start(w.ctx, conn, slot, "", 10)
			w.must(err)
			if !taken.Slot || len(taken.Claimed) != 0 {
				t.Fatalf("%s: %+v", c.name, taken)
			}
			if w.enqueue(newJob("k"), &recorder{}) {
				t.Errorf("%s: the enqueue fired, although an open drain was there", c.name)
			}
			if next := c.exit(conn, slot); next.Due { // so the drain goes on
				w.drain(d)
			}
			if lost := w.lost(); lost != c.lost {
				t.Errorf("%s: lost %q, want %q", c.name, lost, c.lost)
			}
			w.drain(d)
		})
	}
}

// Rounds of enqueuers and drains at random, with doubled and dropped triggers. DOZE_STRESS_ROUNDS sets
// how many, DOZE_STRESS_SEED which.
func TestWake_StressLosesNoJob(t *testing.T) {
	t.Parallel()
	rounds, seed := 300, rand.Uint64()
	if text := os.Getenv("DOZE_STRESS_ROUNDS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		rounds = n
	}
	if text := os.Getenv("DOZE_STRESS_SEED"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seed = n
	}
	w := newWorld(t, dbtest.MaxConns(16))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute+time.Duration(rounds)*100*time.Millisecond)
	defer cancel()
	w.ctx = ctx
	var ran sync.Map
	var twice atomic.Int32
	cfg := handler.Config{Concurrency: 2, BatchSize: 2}
	d := w.drainer(kinds(map[string]handler.RawFunc{"k": func(_ context.Context, job *queue.Job) error {
		if _, again := ran.LoadOrStore(job.ID, true); again {
			twice.Add(1)
		}
		return nil
	}}), cfg)
	jobs, drains, dropped := 0, 0, 0
	for round := range rounds {
		r := rand.New(rand.NewPCG(seed, uint64(round)))
		name := fmt.Sprint("q", round%50)
		w.must(w.store.Configure(w.ctx, w.pool, name, queue.Settings{Slots: 1 + r.IntN(2)}))
		faulty := r.IntN(4) == 0 // a trigger may be dropped in this round
		tr := &unreliable{w: w, d: d, seed: r.Uint64(), faulty: faulty}
		var enqueuers sync.WaitGroup
		for range 2 + r.IntN(3) {
			n := 1 + r.IntN(2)
			jobs += n
			enqueuers.Go(func() {
				for range n {
					w.enqueue(newJob("k", func(j *queue.NewJob) { j.Queue = name }), tr)
				}
			})
		}
		enqueuers.Wait()
		tr.drains.Wait()
		drains += int(tr.started.Load())
		if lost := w.lost(); lost != "" {
			t.Fatalf("round %d of seed %d lost a job in %s", round, seed, lost)
		}
		due := w.int(`SELECT count(*) FROM doze.jobs`)
		if due > 0 && tr.dropped.Load() == 0 {
			t.Fatalf("round %d of seed %d rests with %d due jobs, and no trigger was dropped", round, seed, due)
		}
		if tr.dropped.Load() > 0 { // as the bell's end and the next enqueue or sweep would
			dropped += int(tr.dropped.Load())
			_, err := d.Drain(w.ctx, queue.Wake{Queue: name})
			w.must(err)
		}
	}
	if left := w.int(`SELECT count(*) FROM doze.jobs`); left != 0 || w.done() != jobs || twice.Load() != 0 {
		t.Errorf("seed %d: %d jobs left, %d of %d done, %d ran twice", seed, left, w.done(), jobs, twice.Load())
	}
	t.Logf("%d rounds, %d jobs, %d drains, %d triggers dropped; seed %d", rounds, jobs, drains, dropped, seed)
}

// unreliable drains in goroutines; it fires some wakes twice, and in a faulty round drops some.
type unreliable struct {
	w                *world
	d                *handler.Drainer
	seed             uint64
	faulty           bool
	calls            atomic.Uint64
	drains           sync.WaitGroup
	started, dropped atomic.Int32
}

func (u *unreliable) Fire(_ context.Context, wake queue.Wake) error {
	r := rand.New(rand.NewPCG(u.seed, u.calls.Add(1)))
	n := 1
	switch {
	case u.faulty && r.IntN(3) == 0:
		u.dropped.Add(1)
		return nil
	case r.IntN(4) == 0:
		n = 2
	}
	for range n {
		u.started.Add(1)
		u.drains.Go(func() {
			if _, err := u.d.Drain(u.w.ctx, wake); err != nil {
				u.w.t.Error(err)
			}
		})
	}
	return nil
}
