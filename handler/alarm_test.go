package handler_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dozequeue/doze/handler"
	"github.com/dozequeue/doze/queue"
)

// A process that is started again after a kill finds its predecessor's slots held. The wake finds none free,
// and nobody else comes: the alarm must be set for when the dead drain's lease ends.
func TestDrain_WithoutASlotSetsTheAlarmForTheEndOfTheLease(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before  string
		atLeast time.Duration
	}{
		"a job is due":       {`UPDATE doze.jobs SET run_at = now()`, 20 * time.Second},
		"a job is due later": {`UPDATE doze.jobs SET run_at = now() + interval '10 seconds'`, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			book := &recorder{}
			w.configure(queue.Settings{Slots: 1})
			w.add("k")
			w.exec(c.before)
			w.exec(`UPDATE doze.slots SET state = 'busy', token = gen_random_uuid(), locked_until = now() + interval '30 seconds'`)
			d := w.drainer(kinds(map[string]handler.RawFunc{"k": nothing}), handler.Config{Alarm: book})
			report := w.drain(d)
			set := book.set()
			if !report.NoSlot || len(set) != 1 || set[0] < c.atLeast || set[0] > 31*time.Second {
				t.Errorf("no slot %v, alarms %v; want one, %v or more from now", report.NoSlot, set, c.atLeast)
			}
			if w.drain(d); len(book.set()) != 1 {
				t.Errorf("the next one set it again: %v", book.set())
			}
		})
	}
}

// Two enqueuers whose alarms reach the service in another order than the database: the earlier one must go
// off, and none may be waited for that is gone.
func TestInProcess_AlarmsThatCrossAreBothKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	fired := make(chan string, 10)
	p := handler.NewInProcess(w.drainer(kinds(nil), handler.Config{}), time.Minute)
	p.Intercept(func(_ context.Context, wake queue.Wake) (handler.Drained, error) {
		fired <- wake.Alarm
		return handler.Drained{}, nil
	})
	set := func(id string, in time.Duration) {
		t.Helper()
		w.must(p.Set(w.ctx, queue.Wake{Version: 1, Queue: "q", Reason: queue.ReasonAlarm, Alarm: id}, in))
	}
	set("sooner", 10*time.Millisecond)
	set("later", time.Hour)
	if got := receive(w, fired); got != "sooner" {
		t.Errorf("%q went off first", got)
	}
	set("moved", time.Hour)
	set("moved", time.Millisecond)
	if got := receive(w, fired); got != "moved" {
		t.Errorf("%q went off, want the alarm that was set again", got)
	}
	w.must(p.Close(w.ctx))
}

// Nobody else comes after an in-process drain that failed, so it comes again itself.
func TestInProcess_ADrainThatFailsIsStartedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	calls := make(chan queue.Wake, 10)
	var fails atomic.Int32
	fails.Store(2)
	p := handler.NewInProcess(w.drainer(kinds(nil), handler.Config{}), time.Minute)
	p.RetryAfter(time.Millisecond)
	p.Intercept(func(_ context.Context, wake queue.Wake) (handler.Drained, error) {
		calls <- wake
		if fails.Add(-1) >= 0 {
			return handler.Drained{}, errors.New("no database")
		}
		return handler.Drained{}, nil
	})
	w.must(p.Fire(w.ctx, wakeQ))
	for range 3 {
		if wake := receive(w, calls); wake != wakeQ {
			t.Errorf("woken by %+v", wake)
		}
	}
	w.must(p.Close(w.ctx))
	if n, _ := p.Starts(); n != 3 {
		t.Errorf("%d drains, want 3: it went well in the end", n)
	}
}

// A process with a handler that did not return takes no wakes: its drains would do nothing, and the
// enqueuer is to know.
func TestInProcess_RefusesWakesWhenTainted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	block := make(chan struct{})
	defer close(block)
	d := w.drainer(kinds(map[string]handler.RawFunc{"stuck": func(context.Context, *queue.Job) error { <-block; return nil }}),
		handler.Config{Timeout: 10 * time.Millisecond, Grace: 10 * time.Millisecond})
	p := handler.NewInProcess(d, time.Minute)
	w.add("stuck")
	w.drain(d)
	if err := p.Fire(w.ctx, wakeQ); !errors.Is(err, handler.ErrTainted) {
		t.Errorf("fire: %v, want ErrTainted", err)
	}
	if err := p.Set(w.ctx, wakeQ, time.Hour); !errors.Is(err, handler.ErrTainted) {
		t.Errorf("set: %v, want ErrTainted", err)
	}
}

// A drain that claims no more, since its time is nearly up, promises nothing while its last jobs run.
func TestDrain_IsNotOpenWhenItClaimsNoMore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.configure(queue.Settings{Slots: 2})
	h := newWaiter()
	w.add("k")
	d := w.drainer(kinds(map[string]handler.RawFunc{"k": h.run}), handler.Config{Trigger: &recorder{}, Margin: 59 * time.Second, Grace: time.Second})
	// It stops claiming before it would say that it is saturated (after 50 ms).
	ctx, cancel := context.WithTimeout(w.ctx, 59*time.Second+45*time.Millisecond)
	defer cancel()
	wait := w.inBackground(ctx, d)
	receive(w, h.begun)
	w.until(`SELECT state = 'busy' FROM doze.slots WHERE token IS NOT NULL`)
	rang, err := w.store.Ring(w.ctx, w.pool, "q", time.Time{}, bell)
	if err != nil || !rang {
		t.Errorf("an enqueue rang %v, %v; want that it asks for another drain", rang, err)
	}
	h.proceed <- nil
	if report, err := wait(); err != nil || report.Done != 1 {
		t.Errorf("%+v, %v", report, err)
	}
}

// Without an alarm a job whose row a stranger has locked is handed over, not left to the sweep.
func TestDrain_HandsOverAJobThatSomebodyHasLocked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.add("k")
	fired := &recorder{}
	d := w.drainer(kinds(map[string]handler.RawFunc{"k": nothing}), handler.Config{Trigger: fired})
	w.with(func(conn *pgx.Conn) {
		tx, err := conn.Begin(w.ctx)
		w.must(err)
		defer func() { _ = tx.Rollback(w.ctx) }()
		_, err = tx.Exec(w.ctx, queue.Qualify("SELECT FROM doze.jobs WHERE id = $1::text::uuid FOR UPDATE", w.name), id.String())
		w.must(err)
		if report := w.drain(d); !report.HandedOver || !report.More {
			t.Errorf("report %+v", report)
		}
	})
	wakes := fired.fired()
	if len(wakes) != 1 || wakes[0].Reason != queue.ReasonHandoff || wakes[0].Hop < 2 {
		t.Fatalf("fired %+v; want one that counts its hops, so that this ends", wakes)
	}
	if report, err := d.Drain(w.ctx, wakes[0]); err != nil || report.Done != 1 {
		t.Errorf("its successor: %+v, %v", report, err)
	}
}

// A claim whose answer was lost is given back: a lease that runs to the end of a function's life would
// hold jobs that nobody runs for as long.
func TestDrain_GivesBackWhatALostClaimTook(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := newProxy(t)
	var ran atomic.Int32
	w.addMany(30, "k")
	d := w.drainerOn(p.pool(t), kinds(map[string]handler.RawFunc{"k": func(context.Context, *queue.Job) error {
		if ran.Add(1) == 10 {
			p.set(func() { p.lose = true })
		}
		return nil
	}}), handler.Config{Concurrency: 10, Lease: time.Minute})
	report := w.drain(d)
	if n := w.int(`SELECT count(*) FROM doze.jobs`); n != 0 || w.done() != 30 || p.lost != 1 {
		t.Errorf("%d jobs are left, %d done, %d answers lost; report %+v", n, w.done(), p.lost, report)
	}
}

// How much is claimed at once is bounded by its payloads, and by what can be run soon.
func TestDrain_BoundsAClaim(t *testing.T) {
	t.Parallel()
	slow := func(ctx context.Context, _ *queue.Job) error {
		ctx, cancel := context.WithTimeout(ctx, 60*time.Millisecond)
		defer cancel()
		<-ctx.Done()
		return nil
	}
	big := `"` + strings.Repeat("x", 1000) + `"`
	for name, c := range map[string]struct {
		run     handler.RawFunc
		payload string
		cfg     handler.Config
		atMost  int
	}{
		"by bytes": {nothing, big, handler.Config{Concurrency: 10, BatchBytes: 20_000}, 20},
		"by time":  {slow, "1", handler.Config{Concurrency: 2}, 70}, // not 1000
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.addMany(200, "k", payload(c.payload))
			var most atomic.Int32
			d := w.drainer(kinds(map[string]handler.RawFunc{"k": func(ctx context.Context, job *queue.Job) error {
				if n := int32(w.int(`SELECT count(*) FROM doze.jobs WHERE token IS NOT NULL`)); n > most.Load() {
					most.Store(n)
				}
				return c.run(ctx, job)
			}}), c.cfg)
			if report := w.drain(d); report.Done != 200 {
				t.Errorf("report %+v", report)
			}
			if n := int(most.Load()); n > 3*c.atMost {
				t.Errorf("%d jobs were in hand, want at most three batches of %d: one that is run, one that is claimed and one that is recorded", n, c.atMost)
			}
		})
	}
}

// A near due time is waited for without a slot; with an alarm that can be taken back in case the drain
// vanishes meanwhile.
func TestDrain_WaitsForANearDueTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.add("k", delayed(300*time.Millisecond))
	w.add("k", delayed(time.Hour))
	book := newAlarmBook()
	d := w.drainer(kinds(map[string]handler.RawFunc{"k": nothing}), handler.Config{Alarm: book, Wait: time.Minute})
	wait := w.inBackground(w.ctx, d)
	cover := receive(w, book.set)
	w.until(`SELECT NOT EXISTS (SELECT FROM doze.slots WHERE state <> 'free')`)
	report, err := wait()
	if err != nil || report.Done != 1 || report.NextMS < 3_500_000 {
		t.Errorf("%+v, %v; want the near one done, and the far one's time", report, err)
	}
	w.wants(id, queue.Done)
	next := receive(w, book.set)
	if id := receive(w, book.cleared); id != cover.Alarm || w.armed() != next.Alarm {
		t.Errorf("cleared %s, armed %s; covered by %+v, next %+v", id, w.armed(), cover, next)
	}
}

func TestDrain_StopsWaitingWithItsCaller(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.add("k", delayed(50*time.Second))
	book := newAlarmBook()
	d := w.drainer(kinds(map[string]handler.RawFunc{"k": nothing}), handler.Config{Alarm: book, Wait: time.Minute})
	ctx, cancel := context.WithCancel(w.ctx)
	wait := w.inBackground(ctx, d)
	cover := receive(w, book.set)
	cancel()
	if report, err := wait(); err != nil || report.Claimed != 0 {
		t.Errorf("%+v, %v", report, err)
	}
	w.wants(id, queue.Queued)
	if next := receive(w, book.set); w.armed() != next.Alarm || next.Alarm == cover.Alarm || len(book.cleared) != 0 {
		t.Errorf("armed %q, %d cleared; want an alarm for the job", w.armed(), len(book.cleared))
	}
	// With too little time left it is not waited for.
	short, end := context.WithTimeout(w.ctx, 10*time.Second)
	defer end()
	if report, err := d.Drain(short, wakeQ); err != nil || report.NextMS < 30_000 {
		t.Errorf("%+v, %v", report, err)
	}
}
