package handler_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/dozequeue/doze/handler"
	"github.com/dozequeue/doze/queue"
)

// alarmBook is an alarm service that can take alarms back.
type alarmBook struct {
	set     chan queue.Wake
	cleared chan string
}

func newAlarmBook() *alarmBook {
	return &alarmBook{set: make(chan queue.Wake, 100), cleared: make(chan string, 100)}
}

func (a *alarmBook) Set(_ context.Context, wake queue.Wake, _ time.Duration) error {
	a.set <- wake
	return nil
}

func (a *alarmBook) Clear(ctx context.Context, _, id string) error {
	if err := ctx.Err(); err != nil { // as a service out of reach
		return err
	}
	a.cleared <- id
	return nil
}

func (w *world) armed() string {
	var id *string
	w.must(w.pool.QueryRow(w.ctx, queue.Qualify("SELECT armed_id::text FROM doze.bells WHERE queue = 'q'", w.store.Schema())).Scan(&id))
	if id == nil {
		return ""
	}
	return *id
}

func TestWatch_IsSetWhileADrainRunsAndTakenBackWithIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	book, h := newAlarmBook(), newWaiter()
	w.add("k")
	d := w.drainer(kinds(map[string]handler.RawFunc{"k": h.run}), handler.Config{Alarm: book})
	wait := w.inBackground(w.ctx, d)
	receive(w, h.begun)
	wake := receive(w, book.set)
	if id := w.armed(); id == "" || id != wake.Alarm {
		t.Errorf("armed %q, set outside %+v", id, wake)
	}
	h.proceed <- nil
	wait()
	if id := receive(w, book.cleared); id != wake.Alarm || w.armed() != "" || len(book.set) != 0 {
		t.Errorf("cleared %s, armed %q, %d more set; want the watch taken back and nothing set", id, w.armed(), len(book.set))
	}
}

// Whoever enqueued meanwhile may have relied on the watch: the last look comes after it is taken back.
func TestWatch_LeavesAnAlarmForWhatIsDueLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	book, h := newAlarmBook(), newWaiter()
	w.add("k")
	d := w.drainer(kinds(map[string]handler.RawFunc{"k": h.run}), handler.Config{Alarm: book})
	wait := w.inBackground(w.ctx, d)
	receive(w, h.begun)
	watch := receive(w, book.set)
	later := newJob("k")
	later.Delay = time.Hour
	if _, err := w.store.Insert(w.ctx, w.pool, []queue.NewJob{later}, false); err != nil {
		t.Fatal(err)
	}
	if set, err := w.store.SetNextAlarm(w.ctx, w.pool, book, "q"); err != nil || set {
		t.Fatalf("an alarm was set although the watch goes off sooner: %v, %v", set, err)
	}
	h.proceed <- nil
	wait()
	next := receive(w, book.set)
	if id := receive(w, book.cleared); id != watch.Alarm || w.armed() != next.Alarm || next.Alarm == watch.Alarm {
		t.Errorf("cleared %s, armed %q, next %+v, watch %+v", id, w.armed(), next, watch)
	}
}

func TestWatch_BringsBackTheJobsOfADrainThatVanished(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	book := newAlarmBook()
	id := w.add("k")
	// What a drain does first, and then it is gone.
	conn, err := w.pool.Acquire(w.ctx)
	w.must(err)
	slot := queue.Slot{Queue: "q", Token: newJob("k").ID, Lease: time.Minute, Watch: newJob("k").ID}
	taken, err := w.store.Start(w.ctx, conn.Conn(), slot, "", 10)
	conn.Release()
	if err != nil || len(taken.Claimed) != 1 || !taken.Watching {
		t.Fatalf("%+v, %v", taken, err)
	}
	w.exec("UPDATE doze.jobs SET locked_until = now() - interval '1 second' WHERE token IS NOT NULL")
	w.exec("UPDATE doze.slots SET locked_until = now() - interval '1 second' WHERE token IS NOT NULL")
	d := w.drainer(kinds(map[string]handler.RawFunc{"k": nothing}), handler.Config{Alarm: book})
	report, err := d.Drain(w.ctx, queue.Wake{Version: 1, Queue: "q", Reason: queue.ReasonAlarm, Alarm: slot.Watch.String()})
	if err != nil || report.Done != 1 {
		t.Errorf("%+v, %v", report, err)
	}
	w.wants(id, queue.Done)
	if armed := w.armed(); armed != "" {
		t.Errorf("armed %q after everything is done", armed)
	}
}

func TestWatch_IsNotSetForNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	book := newAlarmBook()
	w.configure(queue.Settings{Slots: 1})
	d := w.drainer(kinds(map[string]handler.RawFunc{"k": nothing}), handler.Config{Alarm: book})
	if _, err := d.Drain(w.ctx, wakeQ); err != nil {
		t.Fatal(err)
	}
	if len(book.set) != 0 || len(book.cleared) != 0 || w.armed() != "" {
		t.Errorf("%d set, %d cleared, armed %q for an empty queue", len(book.set), len(book.cleared), w.armed())
	}
}

// A successor whose wake is lost would be missed by nobody: the alarm goes with it.
func TestHandOver_SetsAnAlarmInCaseItsWakeIsLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	book, fired := newAlarmBook(), &recorder{}
	w.configure(queue.Settings{Slots: 1})
	w.addMany(3, "k")
	ctx, cancel := context.WithTimeout(w.ctx, 500*time.Millisecond)
	defer cancel()
	d := w.drainer(kinds(map[string]handler.RawFunc{"k": func(ctx context.Context, _ *queue.Job) error { <-ctx.Done(); return ctx.Err() }}),
		handler.Config{Trigger: fired, Alarm: book, Concurrency: 1})
	if report, err := d.Drain(ctx, wakeQ); err != nil || !report.HandedOver {
		t.Fatalf("%+v, %v", report, err)
	}
	receive(w, book.set) // the watch
	next := receive(w, book.set)
	if wakes := fired.fired(); len(wakes) != 1 || wakes[0].Alarm != next.Alarm || w.armed() != next.Alarm {
		t.Fatalf("fired %+v, armed %q, set %+v", wakes, w.armed(), next)
	}
	w.exec("UPDATE doze.jobs SET run_at = now()")
	d = w.drainer(kinds(map[string]handler.RawFunc{"k": nothing}), handler.Config{Trigger: fired, Alarm: book})
	if report, err := d.Drain(w.ctx, fired.fired()[0]); err != nil || report.Done != 3 || w.armed() != "" {
		t.Errorf("the successor: %+v, %v, armed %q", report, err, w.armed())
	}
	var cleared []string
	for range 3 { // the first drain's watch, and the second's two
		cleared = append(cleared, receive(w, book.cleared))
	}
	if !slices.Contains(cleared, next.Alarm) {
		t.Errorf("cleared %v, not %s", cleared, next.Alarm)
	}
}
