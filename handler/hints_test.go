package handler_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/dozequeue/doze/enqueue"
	"github.com/dozequeue/doze/handler"
	"github.com/dozequeue/doze/queue"
	"github.com/dozequeue/doze/sweeper"
)

// A trigger and an alarm are only hints. Here each is doubled, dropped, late, early and forged, and each time
// every job is done exactly once, none before it is due, none is left waiting without somebody who
// comes for it, no alarm is left over, and there are no more drains and wakes than that takes.
//
// The test carries the wakes itself, and moves the time in the database rather than waiting for it.

func TestHints_ATriggerThatIsDoubled(t *testing.T) {
	t.Parallel()
	x := newHints(t, newService(t))
	x.add("held")
	wake := x.fired(1)
	running := x.inBackground(wake)
	receive(x.world, x.held.begun)
	x.exact()
	for _, wait := range []func() handler.Drained{x.inBackground(wake), x.inBackground(wake)} { // two at once, beside it
		if report := wait(); report.Claimed != 0 {
			t.Errorf("a doubled wake claimed: %+v", report)
		}
	}
	x.held.proceed <- nil
	running()
	if report := x.deliver(wake); report.Claimed != 0 {
		t.Errorf("a wake that came again afterwards claimed: %+v", report)
	}
	x.atRest(limits{drains: 4, wakes: 1, alarms: 2})
}

func TestHints_ATriggerThatIsDropped(t *testing.T) {
	t.Parallel()
	x := newHints(t, newService(t))
	x.add("k")
	x.add("k") // relies on the wake of the first
	if wake := x.fired(1); wake.Alarm == "" {
		t.Fatalf("fired %+v without an alarm in case it is lost", wake)
	}
	x.pass(31 * time.Second)
	if report := x.goOff(); report.Done != 2 {
		t.Errorf("the alarm brought %+v, want both jobs done", report)
	}
	x.atRest(limits{drains: 1, wakes: 1, alarms: 2})

	// A busy queue does not wait for the alarm: once the bell's time is over, the next enqueue rings.
	x.add("k")
	x.pass(bell + time.Second)
	x.add("k")
	if report := x.deliver(x.fired(3)); report.Done != 2 {
		t.Errorf("the next wake brought %+v, want both jobs done", report)
	}
	x.pass(bell)
	x.goOff() // the alarm of the wake that was dropped, for nothing
	x.atRest(limits{drains: 3, wakes: 3, alarms: 4})
}

func TestHints_ATriggerThatIsLate(t *testing.T) {
	t.Parallel()
	x := newHints(t, newService(t))
	x.add("k")
	late := x.fired(1)
	x.pass(bell + time.Second)
	x.add("k")
	if report := x.deliver(x.fired(2)); report.Done != 2 {
		t.Errorf("the second wake brought %+v, want both jobs done", report)
	}
	x.add("k") // rings, and its wake is under way when the late one comes
	x.fired(3)
	if report := x.deliver(late); report.Done != 1 {
		t.Errorf("the late wake brought %+v, want the third job done", report)
	}
	if report := x.deliver(x.fired(3)); report.Claimed != 0 {
		t.Errorf("the third wake brought %+v", report)
	}
	// And it comes once more, while another drain is at work.
	x.add("held")
	running := x.inBackground(x.fired(4))
	receive(x.world, x.held.begun)
	x.exact()
	if report := x.deliver(late); report.Claimed != 0 {
		t.Errorf("the late wake brought %+v beside a drain that has it all", report)
	}
	x.held.proceed <- nil
	running()
	x.atRest(limits{drains: 5, wakes: 4, alarms: 6})
}

// A wake that comes before the commit finds nothing, and answers the bell. So whoever commits rings again.
func TestHints_ATriggerThatIsEarly(t *testing.T) {
	t.Parallel()
	x := newHints(t, newService(t))
	commit := x.addTx("k")
	if report := x.deliver(wakeQ); report.Claimed != 0 {
		t.Errorf("claimed before the commit: %+v", report)
	}
	commit()
	if report := x.deliver(x.fired(1)); report.Done != 1 {
		t.Errorf("after the commit: %+v", report)
	}

	x.add("k") // rings
	commit = x.addTx("k")
	if report := x.deliver(x.fired(2)); report.Done != 1 {
		t.Errorf("of two jobs of which one is committed: %+v", report)
	}
	commit()
	if report := x.deliver(x.fired(3)); report.Done != 1 {
		t.Errorf("after the commit of the other: %+v", report)
	}

	// The drain is still there when the commit comes, and may have promised to look again or not.
	x.add("held")
	running := x.inBackground(x.fired(4))
	receive(x.world, x.held.begun)
	x.exact()
	commit = x.addTx("k")
	if report := x.deliver(wakeQ); report.Claimed != 0 {
		t.Errorf("claimed before the commit: %+v", report)
	}
	commit()
	x.held.proceed <- nil
	running()
	if wakes := x.trigger.fired(); len(wakes) > 4 {
		x.deliver(wakes[4])
	}
	x.atRest(limits{drains: 7, wakes: 5, alarms: 10})
}

func TestHints_ATriggerThatIsForged(t *testing.T) {
	t.Parallel()
	x := newHints(t, newService(t))
	x.queue("other")
	x.add("k", enqueue.In(time.Hour))
	x.add("k", enqueue.In(time.Hour), enqueue.On("other"))
	own, foreign := x.armed(), x.armedIn("other")
	x.exact()
	x.standing("q", "other")
	for name, wake := range map[string]queue.Wake{
		"unknown queue":           {Queue: "nobody-has-heard-of-it"},
		"unknown queue, an alarm": {Queue: "nobody-has-heard-of-it", Reason: queue.ReasonAlarm, Alarm: own},
		"nothing but the queue":   {Queue: "q"},
		"a version to come":       {Version: 2, Queue: "q", Reason: "because"},
		"a garbage alarm":         {Queue: "q", Reason: queue.ReasonEnqueue, Alarm: "'; DROP TABLE doze.jobs; --\x00"},
		"an unknown alarm":        {Queue: "q", Reason: queue.ReasonEnqueue, Alarm: uuid.NewString()},
		"another queue's alarm":   {Queue: "q", Reason: queue.ReasonEnqueue, Alarm: foreign},
		"the queue's own alarm":   {Queue: "q", Reason: queue.ReasonEnqueue, Alarm: own},
		"many hops":               {Queue: "q", Reason: queue.ReasonHandoff, Hop: math.MaxInt},
		"hops below zero":         {Queue: "q", Reason: queue.ReasonHandoff, Hop: math.MinInt},
	} {
		if report := x.deliver(wake); report.Claimed != 0 || report.HandedOver {
			t.Errorf("%s: %+v", name, report)
		}
		x.standing("q", "other")
		if id := x.armedIn("other"); id != foreign {
			t.Errorf("%s: the other queue's alarm is %q, want %q", name, id, foreign)
		}
	}
	for _, name := range []string{"", "no queue\n", "a/b", string(make([]byte, 1000))} {
		if _, err := x.d.Drain(x.ctx, queue.Wake{Version: 1, Queue: name, Alarm: own}); err == nil {
			t.Errorf("a wake for %q was taken", name)
		}
	}
	if n := x.int(`SELECT count(*) FROM doze.queues`); n != 2 {
		t.Errorf("there are %d queues, want the two that were there", n)
	}
	if n := len(x.trigger.fired()); n != 0 {
		t.Errorf("%d wakes fired for none that was asked for", n)
	}
	// Each such wake cost one drain, and at most one alarm. Nothing was lost by it.
	x.pass(time.Hour)
	x.goOffIn("other")
	x.goOff()
	x.allGoOff()
	x.atRest(limits{drains: 10 + 12, wakes: 0, alarms: 2 + 10 + 2})
}

// A forged number of hops neither makes a chain of drains longer than it may be, nor costs a job.
func TestHints_ATriggerWithAForgedNumberOfHops(t *testing.T) {
	t.Parallel()
	for name, hop := range map[string]int{"none": 0, "below zero": -1_000_000, "many": 1_000_000_000} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newHints(t, newService(t))
			x.chain(queue.Wake{Version: 1, Queue: "q", Reason: queue.ReasonHandoff, Hop: hop}, func(wake queue.Wake) queue.Wake {
				// As it comes from outside.
				body, err := json.Marshal(wake)
				x.must(err)
				wake, err = handler.ParseWake(body)
				x.must(err)
				return wake
			})
		})
	}
}

func TestHints_AnAlarmThatIsDoubled(t *testing.T) {
	t.Parallel()
	x := newHints(t, newService(t))
	x.add("held", enqueue.In(time.Hour))
	x.pass(time.Hour)
	alarm := x.takeAlarm("q")
	running := x.inBackground(alarm)
	receive(x.world, x.held.begun)
	x.exact()
	for _, wait := range []func() handler.Drained{x.inBackground(alarm), x.inBackground(alarm)} {
		if report := wait(); report.Claimed != 0 {
			t.Errorf("a doubled alarm claimed: %+v", report)
		}
	}
	// What is due later meanwhile has an alarm: one of its own, or that of the running drain.
	x.add("k", enqueue.In(time.Hour))
	if report := x.deliver(alarm); report.Claimed != 0 {
		t.Errorf("a doubled alarm claimed: %+v", report)
	}
	x.held.proceed <- nil
	running()
	x.standing("q")
	if report := x.deliver(alarm); report.Claimed != 0 {
		t.Errorf("an alarm that came again afterwards claimed: %+v", report)
	}
	x.standing("q")
	x.pass(time.Hour)
	x.goOff()
	x.allGoOff()
	x.atRest(limits{drains: 8, wakes: 0, alarms: 6})
}

func TestHints_AnAlarmThatIsDropped(t *testing.T) {
	t.Parallel()
	x := newHints(t, newService(t))
	x.add("k", enqueue.In(time.Hour))
	x.takeAlarm("q")
	x.pass(time.Hour + 10*time.Second)
	// Any wake brings what it was for, and the alarm that nobody will hear does not keep later ones from being set.
	x.add("k")
	if report := x.deliver(x.fired(1)); report.Done != 2 || x.armed() != "" {
		t.Errorf("%+v, armed %q; want both jobs done and the overdue alarm taken down", report, x.armed())
	}
	x.add("k", enqueue.In(time.Hour))
	x.standing("q")

	// Nobody enqueues: the sweep sees what is due.
	x.takeAlarm("q")
	x.pass(time.Hour + time.Second)
	s, err := sweeper.New(x.pool, sweeper.Config{Schema: x.name, Trigger: x.trigger, Alarm: x.service})
	x.must(err)
	if swept, err := s.Sweep(x.ctx); err != nil || !slices.Equal(swept.Fired, []string{"q"}) || len(swept.Armed) != 0 {
		t.Fatalf("%+v, %v", swept, err)
	}
	if report := x.deliver(x.fired(2)); report.Done != 1 {
		t.Errorf("what the sweep brought: %+v", report)
	}
	x.atRest(limits{drains: 2, wakes: 2, alarms: 4})

	// Or it sees that an alarm is long overdue and nothing is due, and sets the next one.
	sooner := x.add("k", enqueue.In(time.Hour))
	x.add("k", enqueue.In(2*time.Hour)) // relies on the alarm of the other
	_, err = x.store.Cancel(x.ctx, x.pool, sooner)
	x.must(err)
	x.forget(sooner)
	x.takeAlarm("q")
	x.pass(time.Hour)
	if swept, err := s.Sweep(x.ctx); err != nil || len(swept.Armed) != 0 {
		t.Errorf("%+v, %v; want none set, as the alarm may only be late", swept, err)
	}
	x.pass(4 * time.Minute)
	if swept, err := s.Sweep(x.ctx); err != nil || len(swept.Fired) != 0 || !slices.Equal(swept.Armed, []string{"q"}) {
		t.Errorf("%+v, %v; want the next alarm set", swept, err)
	}
	x.standing("q")
	x.pass(time.Hour)
	x.goOff()
	x.atRest(limits{drains: 3, wakes: 2, alarms: 7})
}

func TestHints_AnAlarmThatIsLate(t *testing.T) {
	t.Parallel()
	x := newHints(t, newService(t))
	x.add("k", enqueue.In(time.Hour))
	late := x.takeAlarm("q")
	x.pass(time.Hour + time.Second)
	x.add("k")
	if report := x.deliver(x.fired(1)); report.Done != 2 {
		t.Errorf("a wake that came before the late alarm: %+v", report)
	}
	x.add("k", enqueue.In(time.Hour))
	x.standing("q")
	if report := x.deliver(late); report.Claimed != 0 {
		t.Errorf("the late alarm claimed: %+v", report)
	}
	x.standing("q") // it did not take down the alarm that came after it
	x.pass(time.Hour)
	x.goOff()
	x.allGoOff()
	x.atRest(limits{drains: 4, wakes: 1, alarms: 5})

	// So late that it counts as lost: the next is set beside it, and stays when it comes.
	x.add("k", enqueue.In(time.Hour))
	late = x.takeAlarm("q")
	x.exec(`UPDATE doze.bells SET armed_at = now() - interval '4 minutes'`)
	x.add("k", enqueue.In(time.Hour))
	x.standing("q")
	if report := x.deliver(late); report.Claimed != 0 {
		t.Errorf("the late alarm claimed: %+v", report)
	}
	x.standing("q")
	x.pass(time.Hour + time.Second)
	if report := x.goOff(); report.Done != 2 {
		t.Errorf("both are due: %+v", report)
	}
	x.allGoOff()
	x.atRest(limits{drains: 8, wakes: 1, alarms: 10})
}

func TestHints_AnAlarmThatIsEarly(t *testing.T) {
	t.Parallel()
	for name, service := range map[string]func(testing.TB) alarmService{"kept": newKeeper, "to be taken back": newService} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newHints(t, service(t))
			x.add("k", enqueue.In(time.Hour))
			for range 5 {
				if report := x.goOff(); report.Claimed != 0 || report.NextMS < 3_000_000 {
					t.Errorf("an early alarm claimed, or does not know when the next is due: %+v", report)
				}
				x.standing("q")
			}
			if n := x.service.count(); n != 1+5 {
				t.Errorf("%d alarms were set, want one for each that was early", n)
			}
			// Just before the time: the next alarm is a second away all the same, which the service checks.
			x.exec(`UPDATE doze.jobs SET run_at = now() + interval '20 milliseconds'`)
			x.goOff()
			x.pass(2 * time.Second)
			x.allGoOff() // the one above, unless the job was due by then
			x.atRest(limits{drains: 7, wakes: 0, alarms: 9})
		})
	}
}

func TestHints_AnAlarmThatIsForged(t *testing.T) {
	t.Parallel()
	for name, service := range map[string]func(testing.TB) alarmService{"kept": newKeeper, "to be taken back": newService} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newHints(t, service(t))
			_, taken := x.service.(queue.Clearer)
			x.queue("other")
			x.add("k", enqueue.In(time.Hour))
			x.add("k", enqueue.In(time.Hour), enqueue.On("other"))
			own, foreign := x.armed(), x.armedIn("other")
			x.exact()
			for _, id := range []string{"", "garbage", "00000000-0000-0000-0000-000000000000", uuid.NewString(), foreign, own + "0", "\x00"} {
				if report := x.deliver(queue.Wake{Version: 1, Queue: "q", Reason: queue.ReasonAlarm, Alarm: id}); report.Claimed != 0 {
					t.Errorf("alarm %q: claimed %+v", id, report)
				}
				x.standing("q", "other")
				if got := x.armedIn("other"); got != foreign {
					t.Errorf("alarm %q: the other queue's is %q, want %q", id, got, foreign)
				}
				if got := x.armed(); !taken && got != own {
					t.Errorf("alarm %q: the queue's is %q, want %q", id, got, own)
				}
			}
			// One that names the watch of a drain at work takes it down, and leaves another.
			x.add("held")
			running := x.inBackground(x.fired(1))
			receive(x.world, x.held.begun)
			x.exact()
			if watch := x.armed(); taken && watch == own {
				t.Error("no watch is set")
			} else {
				x.deliver(queue.Wake{Version: 1, Queue: "q", Reason: queue.ReasonAlarm, Alarm: watch})
			}
			x.standing("q", "other")
			x.held.proceed <- nil
			running()
			x.standing("q", "other")
			x.pass(time.Hour)
			x.goOffIn("other")
			x.goOff()
			x.allGoOff()
			x.atRest(limits{drains: 9 + 14, wakes: 1, alarms: 2 + 7 + 6})
		})
	}
}

// hints is a world in which the test carries the wakes and alarms.
type hints struct {
	*world
	service alarmService
	trigger *recorder
	client  *enqueue.Client
	d       *handler.Drainer
	held    *waiter

	mu     sync.Mutex
	added  []uuid.UUID
	ran    map[uuid.UUID]int
	early  int
	drains int
	stop   func() // what the handler "last" does
}

func newHints(t *testing.T, service alarmService) *hints {
	t.Helper()
	x := &hints{world: newWorld(t), service: service, trigger: &recorder{}, held: newWaiter(), ran: make(map[uuid.UUID]int)}
	var err error
	x.client, err = enqueue.New(x.pool, x.trigger, enqueue.Config{Schema: x.name, Bell: bell, Alarm: service})
	x.must(err)
	x.d = x.drainerWith(handler.Config{})
	return x
}

// drainerWith has a handler for the kinds k (done at once), held (done when it is told to) and last (done, and
// stops its drain's caller).
func (x *hints) drainerWith(cfg handler.Config) *handler.Drainer {
	x.t.Helper()
	cfg.Trigger, cfg.Alarm, cfg.Lease = x.trigger, x.service, time.Minute
	counted := func(run handler.RawFunc) handler.RawFunc {
		return func(ctx context.Context, job *queue.Job) error {
			due := x.int(`SELECT (run_at <= clock_timestamp())::integer FROM doze.jobs WHERE id = $1::text::uuid`, job.ID.String())
			x.mu.Lock()
			x.ran[job.ID]++
			x.early += 1 - due
			x.mu.Unlock()
			return run(ctx, job)
		}
	}
	last := func(context.Context, *queue.Job) error { x.stop(); return nil }
	return x.drainer(kinds(map[string]handler.RawFunc{"k": counted(nothing), "held": counted(x.held.run), "last": counted(last)}), cfg)
}

// add adds a job to queue q, unless the options say otherwise.
func (x *hints) add(kind string, opts ...enqueue.Option) uuid.UUID {
	x.t.Helper()
	added, err := x.client.AddJob(x.ctx, kind, nil, append([]enqueue.Option{enqueue.On("q")}, opts...)...)
	x.must(err)
	x.added = append(x.added, added.ID)
	return added.ID
}

// addTx adds a job in a transaction. The function returned commits it, and fires.
func (x *hints) addTx(kind string) (commit func()) {
	x.t.Helper()
	tx, err := x.pool.Begin(x.ctx)
	x.must(err)
	added, err := x.client.AddTx(x.ctx, tx, rawArgs(kind), enqueue.On("q"))
	if err != nil {
		_ = tx.Rollback(x.ctx)
		x.t.Fatal(err)
	}
	x.added = append(x.added, added.ID)
	return func() {
		x.t.Helper()
		x.must(tx.Commit(x.ctx))
		x.must(x.client.Fire(x.ctx, added))
	}
}

// rawArgs are the arguments of a kind that has none.
type rawArgs string

func (k rawArgs) Kind() string { return string(k) }

// forget leaves a job out of what is to be done.
func (x *hints) forget(id uuid.UUID) {
	x.added = slices.DeleteFunc(x.added, func(other uuid.UUID) bool { return other == id })
}

// fired is the nth wake, which must be the last one fired until now.
func (x *hints) fired(n int) queue.Wake {
	x.t.Helper()
	wakes := x.trigger.fired()
	if len(wakes) != n {
		x.t.Fatalf("fired %d wakes, want %d: %+v", len(wakes), n, wakes)
	}
	return wakes[n-1]
}

// deliver has a wake arrive, and returns when its drain has ended.
func (x *hints) deliver(wake queue.Wake) handler.Drained {
	x.t.Helper()
	return x.inBackground(wake)()
}

// inBackground has a wake arrive; the function returned waits until its drain has ended.
func (x *hints) inBackground(wake queue.Wake) func() handler.Drained {
	x.drains++
	reports := make(chan handler.Drained, 1)
	go func() {
		report, err := x.d.Drain(x.ctx, wake)
		if err != nil {
			x.t.Errorf("woken by %+v: %v", wake, err)
		}
		x.addsUp(report)
		reports <- report
	}()
	return func() handler.Drained { x.t.Helper(); return receive(x.world, reports) }
}

// pass lets time pass in the database. No drain may be at work.
func (x *hints) pass(d time.Duration) {
	x.t.Helper()
	by := d.Milliseconds()
	x.exec(`UPDATE doze.jobs SET run_at = run_at - $1 * interval '1 millisecond'`, by)
	x.exec(`UPDATE doze.bells SET bell_until = bell_until - $1 * interval '1 millisecond', armed_at = armed_at - $1 * interval '1 millisecond'`, by)
}

// exact has each alarm go off just when what it is for is due. On a machine that takes its time it is a little later, and
// if that is more than a tenth of a second the next drain sets another one, which would count here.
func (x *hints) exact() {
	x.t.Helper()
	x.exec(`UPDATE doze.bells q SET armed_at = (SELECT min(greatest(j.run_at, j.locked_until)) FROM doze.jobs j WHERE j.queue = q.queue) WHERE armed_at IS NOT NULL`)
}

func (x *hints) armedIn(name string) string {
	x.t.Helper()
	return x.text(`SELECT armed_id::text FROM doze.bells WHERE armed_id IS NOT NULL AND queue = $1`, name)
}

// takeAlarm is the alarm that is set for a queue, which the service then has no longer: it goes off, or is lost.
func (x *hints) takeAlarm(name string) queue.Wake {
	x.t.Helper()
	id := x.armedIn(name)
	wake, ok := x.service.take(name, id)
	if !ok {
		x.t.Fatalf("the alarm %q of queue %s is recorded, and the service has none", id, name)
	}
	return wake
}

// goOff has the alarm of queue q go off, at its time or not.
func (x *hints) goOff() handler.Drained {
	x.t.Helper()
	return x.goOffIn("q")
}

func (x *hints) goOffIn(name string) handler.Drained {
	x.t.Helper()
	return x.deliver(x.takeAlarm(name))
}

// allGoOff has every alarm go off that the service still has.
func (x *hints) allGoOff() {
	x.t.Helper()
	for _, wake := range x.service.all() {
		if wake, ok := x.service.take(wake.Queue, wake.Alarm); ok {
			x.deliver(wake)
		}
	}
}

// standing fails the test unless each of these queues, which wait for something, has an alarm that goes off
// when that is due or before, in the database and in the service.
func (x *hints) standing(names ...string) {
	x.t.Helper()
	// A little later than the time itself, as each delay is counted from a moment later than the last.
	x.standingWithin(30*time.Second, names...)
}

func (x *hints) standingWithin(late time.Duration, names ...string) {
	x.t.Helper()
	for _, name := range names {
		id := x.armedIn(name)
		inTime := x.int(`SELECT count(*) FROM doze.bells q WHERE q.queue = $1 AND q.armed_at <= $2 * interval '1 millisecond' +
			(SELECT greatest(min(greatest(j.run_at, j.locked_until)), now()) FROM doze.jobs j WHERE j.queue = q.queue)`, name, late.Milliseconds())
		if inTime != 1 || !x.service.has(name, id) {
			x.t.Errorf("queue %s waits, and its alarm %q is in time %d, in the service %v", name, id, inTime, x.service.has(name, id))
		}
	}
}

// limits are how many drains there may have been until now, and how many wakes fired and alarms set.
type limits struct{ drains, wakes, alarms int }

// atRest fails the test unless every job was done once and nothing is left.
func (x *hints) atRest(most limits) {
	x.t.Helper()
	if x.held.left() != 0 {
		x.t.Error("a handler still waits")
	}
	for _, id := range x.added {
		if job := x.wants(id, queue.Done); job.Attempts != 1 || x.ran[id] != 1 {
			x.t.Errorf("job %s (%s) had %d attempts, and ran %d times", id, job.Kind, job.Attempts, x.ran[id])
		}
	}
	if x.early != 0 || len(x.ran) != len(x.added) {
		x.t.Errorf("%d jobs ran before they were due; %d ran, %d were added", x.early, len(x.ran), len(x.added))
	}
	if n, lost := x.int(`SELECT count(*) FROM doze.jobs`), x.lost(); n != 0 || lost != "" {
		x.t.Errorf("%d jobs are left; lost in %q", n, lost)
	}
	if n := x.int(`SELECT count(*) FROM doze.slots WHERE state <> 'free'`); n != 0 {
		x.t.Errorf("%d slots are held", n)
	}
	if armed := x.text(`SELECT queue || ' ' || armed_id FROM doze.bells WHERE armed_id IS NOT NULL OR armed_at IS NOT NULL`); armed != "" {
		x.t.Errorf("an alarm is set and there is nothing to do: %s", armed)
	}
	if all := x.service.all(); len(all) != 0 {
		x.t.Errorf("the service has alarms for nothing: %+v", all)
	}
	if got := (limits{x.drains, len(x.trigger.fired()), x.service.count()}); got.drains > most.drains || got.wakes > most.wakes || got.alarms > most.alarms {
		x.t.Errorf("it took %+v, want at most %+v", got, most)
	}
}

// left is how many handlers wait.
func (h *waiter) left() int { return len(h.begun) + len(h.proceed) }

// chain begins with a wake, in a queue whose drains are all stopped after their first job, and checks that they
// hand over to each other as often as they may and no more, and that the rest is done by another chain.
func (x *hints) chain(first queue.Wake, carry func(queue.Wake) queue.Wake) {
	x.t.Helper()
	const jobs, hops = 7, 3
	x.configure(queue.Settings{Slots: 1})
	for range jobs {
		x.add("last")
	}
	x.d = x.drainerWith(handler.Config{MaxHops: hops, Concurrency: 1, BatchSize: 1})
	fired, done, inARow, most := len(x.trigger.fired()), 0, 0, 0
	for wake := carry(first); done < jobs; {
		var ctx context.Context
		ctx, x.stop = context.WithCancel(x.ctx)
		report, err := x.d.Drain(ctx, wake)
		x.stop()
		x.must(err)
		x.addsUp(report)
		x.drains++
		inARow++
		most = max(most, inARow)
		if report.Done != 1 {
			x.t.Fatalf("a drain that is stopped after one job: %+v", report)
		}
		done++
		switch wakes := x.trigger.fired(); {
		case len(wakes) > fired+1:
			x.t.Fatalf("one drain fired %+v", wakes[fired:])
		case len(wakes) == fired+1:
			fired++
			wake = carry(wakes[fired-1])
		case done < jobs: // the chain has ended, and the alarm begins another
			if lost := x.int(`SELECT count(*) FROM doze.bells WHERE bell_until IS NOT NULL`); lost != 0 {
				x.t.Error("a bell is set that nobody answers")
			}
			x.standingWithin(2*time.Minute, "q") // after a pause
			x.pass(time.Minute)
			wake = carry(x.takeAlarm("q"))
			inARow = 0
		}
	}
	if most > hops+1 {
		x.t.Errorf("%d drains in a row, want at most %d", most, hops+1)
	}
	x.allGoOff()
	x.atRest(limits{drains: 2 * jobs, wakes: jobs + 1, alarms: 4 * jobs})
}

// alarmService is an alarm service that keeps what it is told, and the test has its alarms go off.
type alarmService interface {
	queue.Alarm
	has(queueName, id string) bool
	take(queueName, id string) (queue.Wake, bool)
	all() []queue.Wake
	count() int
}

// keeper is one that cannot take alarms back.
type keeper struct {
	t      testing.TB
	mu     sync.Mutex
	alarms []queue.Wake
	ever   int
}

func newKeeper(t testing.TB) alarmService { return &keeper{t: t} }

func (k *keeper) Set(_ context.Context, wake queue.Wake, in time.Duration) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if in < time.Second || wake.Reason != queue.ReasonAlarm || wake.Alarm == "" {
		k.t.Errorf("alarm %+v in %v; want one with an id, a second away or more", wake, in)
	}
	k.ever++
	k.alarms = append(k.alarms, wake)
	return nil
}

func (k *keeper) at(queueName, id string) int {
	return slices.IndexFunc(k.alarms, func(w queue.Wake) bool { return w.Queue == queueName && w.Alarm == id })
}

func (k *keeper) has(queueName, id string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.at(queueName, id) >= 0
}

func (k *keeper) take(queueName, id string) (queue.Wake, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	i := k.at(queueName, id)
	if i < 0 {
		return queue.Wake{}, false
	}
	wake := k.alarms[i]
	k.alarms = slices.Delete(k.alarms, i, i+1)
	return wake, true
}

func (k *keeper) all() []queue.Wake {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.alarms)
}

// count is how many alarms were ever set.
func (k *keeper) count() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ever
}

// service is one that can take alarms back.
type service struct{ keeper }

func newService(t testing.TB) alarmService { return &service{keeper{t: t}} }

func (s *service) Clear(_ context.Context, queueName, id string) error {
	if id == "" {
		return fmt.Errorf("queue %q: no id", queueName)
	}
	s.take(queueName, id)
	return nil
}
