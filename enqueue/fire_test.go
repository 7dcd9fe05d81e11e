package enqueue

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/dozequeue/doze/queue"
)

func TestFire_FailureKeepsTheJobAndClearsTheBell(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, fail := range map[string]func(){
		"error": func() { b.trigger.err = errors.New("no such function") },
		"panic": func() {
			b.trigger.before = func(context.Context, queue.Wake) { panic("nil map") }
		},
	} {
		fail()
		before := b.client.Stats()
		added, err := b.client.Add(b.ctx, greet{"s3cret"}, On(name))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := b.store.Get(b.ctx, b.pool, added.ID); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if b.bell(name) {
			t.Errorf("%s: the bell is still set, so the next enqueue would not ring", name)
		}
		if s := b.client.Stats(); s.FireErrors != before.FireErrors+1 || s.Fired != 0 {
			t.Errorf("%s: stats %+v", name, s)
		}
		if text := b.logs.String(); !strings.Contains(text, "fire failed") || !strings.Contains(text, "queue="+name) || strings.Contains(text, "s3cret") {
			t.Errorf("%s: logged %q", name, text)
		}
		b.trigger.err, b.trigger.before = nil, nil
	}
	b.trigger.take()
	if _, err := b.client.Add(b.ctx, greet{}, On("error")); err != nil {
		t.Fatal(err)
	}
	wantQueues(t, b.trigger.take(), "error")
}

func TestFire_HangsNoLongerThanItsTimeout(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.trigger.before = func(ctx context.Context, _ queue.Wake) { <-ctx.Done() }
	b.trigger.err = context.DeadlineExceeded
	client := b.newClient(b.pool, Config{FireTimeout: 50 * time.Millisecond})
	if _, err := client.Add(b.ctx, greet{}); err != nil {
		t.Fatal(err)
	}
	if b.bell("default") || client.Stats().FireErrors != 1 {
		t.Errorf("bell %v, stats %+v", b.bell("default"), client.Stats())
	}
}

// An alarm service that does not answer, or panics, keeps nobody from being woken, in whichever way the wake comes about.
func TestFire_WhateverTheAlarmServiceDoes(t *testing.T) {
	t.Parallel()
	for kind, wrap := range map[string]func(*alarms) queue.Alarm{
		"plain":     func(a *alarms) queue.Alarm { return a },
		"clearable": func(a *alarms) queue.Alarm { return clearable{a} },
	} {
		for name, misbehave := range map[string]func(ctx context.Context){
			"hangs":  func(ctx context.Context) { <-ctx.Done() },
			"panics": func(context.Context) { panic("nil map") },
		} {
			t.Run(kind+" "+name, func(t *testing.T) {
				t.Parallel()
				b := setup(t)
				var asked []time.Time // when the alarm service had to be done
				service := &alarms{err: context.DeadlineExceeded, before: func(ctx context.Context, _ queue.Wake) {
					deadline, ok := ctx.Deadline()
					if !ok {
						t.Error("the alarm service has no deadline")
					}
					asked = append(asked, deadline)
					misbehave(ctx)
				}}
				b.trigger.before = func(ctx context.Context, _ queue.Wake) {
					deadline, ok := ctx.Deadline()
					if !ok || len(asked) > 0 && !deadline.After(asked[len(asked)-1]) {
						t.Error("the trigger has no time of its own")
					}
				}
				patience := 50 * time.Millisecond // which a service that hangs uses up
				if name == "panics" {
					patience = 10 * time.Second // and the database, on a busy machine, must not
				}
				client := b.newClient(b.pool, Config{Alarm: wrap(service), FireTimeout: patience})
				for call, add := range map[string]func(on string) error{
					"Add":     func(on string) error { _, err := client.Add(b.ctx, greet{}, On(on)); return err },
					"AddMany": func(on string) error { _, err := client.AddMany(b.ctx, soonAndLater(on)); return err },
					"InTx": func(on string) error {
						return client.InTx(b.ctx, func(tx *Tx) error { _, err := tx.AddMany(b.ctx, soonAndLater(on)); return err })
					},
					"Fire": func(on string) error {
						return client.Fire(b.ctx, Added{Queue: on}, Added{Queue: on + "-later", delay: time.Hour})
					},
				} {
					asked = nil
					if err := add(call); err != nil {
						t.Errorf("%s: %v", call, err)
					}
					wantQueues(t, b.trigger.take(), call)
					if most := map[string]int{"plain": 1, "clearable": 2}[kind]; len(asked) > most {
						t.Errorf("%s: the alarm service was asked %d times", call, len(asked))
					}
				}
				if s := client.Stats(); s.Fired != 4 || s.FireErrors != 0 {
					t.Errorf("stats %+v", s)
				}
				// What the service has not taken must not keep others from setting theirs.
				if n := value[int](b, "SELECT count(*) FROM doze.bells WHERE armed_at IS NOT NULL"); name == "panics" && n > 0 {
					t.Errorf("%d alarms are recorded that are not set", n)
				}
			})
		}
	}
}

// If the alarm service does not say whether it has the alarm, the wake names it all the same, so that the
// drain takes it back.
func TestFire_WakeNamesAnAlarmThatMayBeSet(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var id string
	service := &alarms{err: context.DeadlineExceeded, before: func(ctx context.Context, wake queue.Wake) {
		id = wake.Alarm
		<-ctx.Done()
	}}
	client := b.newClient(b.pool, Config{Alarm: clearable{service}, FireTimeout: 50 * time.Millisecond})
	var wake queue.Wake
	b.trigger.before = func(_ context.Context, w queue.Wake) { wake = w }
	if _, err := client.Add(b.ctx, greet{}); err != nil {
		t.Fatal(err)
	}
	if id == "" || wake.Alarm != id {
		t.Fatalf("the wake names alarm %q, want %q", wake.Alarm, id)
	}
	conn, err := b.pool.Acquire(b.ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	slot := queue.Slot{Queue: "default", Token: uuid.New(), Lease: time.Minute}
	if taken, err := b.store.Start(b.ctx, conn.Conn(), slot, wake.Alarm, 10); err != nil || !taken.Slot {
		t.Fatal(taken, err)
	}
	if !value[bool](b, "SELECT armed_at IS NULL FROM doze.bells") {
		t.Error("the alarm is still recorded")
	}
}

func soonAndLater(on string) []Entry {
	return []Entry{{greet{"soon"}, []Option{On(on)}}, {greet{"later"}, []Option{On(on + "-later"), In(time.Hour)}}}
}

// Those who are due come first: what is later has time.
func TestFire_BeforeAlarmsAreSet(t *testing.T) {
	t.Parallel()
	b := setup(t)
	fired := 0
	service := &alarms{before: func(context.Context, queue.Wake) { fired = len(b.trigger.take()) }}
	client := b.newClient(b.pool, Config{Alarm: service})
	err := client.InTx(b.ctx, func(tx *Tx) error { _, err := tx.AddMany(b.ctx, soonAndLater("q")); return err })
	if err != nil || fired != 1 || len(service.take()) != 1 {
		t.Errorf("%v, %d wakes were fired before the alarm was set, want 1 and 1 alarm", err, fired)
	}
}

// A grain that the service has is kept to.
func TestFire_AlarmOfAGrainedService(t *testing.T) {
	t.Parallel()
	b := setup(t)
	service := &alarms{}
	client := b.newClient(b.pool, Config{Alarm: grained{service}})
	if _, err := client.Add(b.ctx, greet{}, In(time.Second)); err != nil {
		t.Fatal(err)
	}
	if all := service.take(); len(all) != 1 || all[0].in != time.Minute {
		t.Errorf("set %+v, want one alarm in a minute", all)
	}
}

type grained struct{ *alarms }

func (grained) Grain() time.Duration { return time.Minute }

func TestFire_HappensBeforeAddReturnsAndAfterTheCommit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	seen := 0
	b.trigger.before = func(ctx context.Context, wake queue.Wake) {
		// Another connection, so it sees what is committed.
		seen = b.jobs()
		if wake.Version != 1 || wake.Reason != queue.ReasonEnqueue || wake.Hop != 0 {
			t.Errorf("wake %+v", wake)
		}
	}
	if _, err := b.client.Add(b.ctx, greet{}); err != nil {
		t.Fatal(err)
	}
	if seen != 1 {
		t.Errorf("the trigger saw %d jobs, want the one that was added", seen)
	}
}

func TestFire_OnceForABurst(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for range 20 {
		if _, err := b.client.Add(b.ctx, greet{}); err != nil {
			t.Fatal(err)
		}
	}
	wantQueues(t, b.trigger.take(), "default") // by the first, whose bell stands
}

func TestFire_NotWhileASlotIsOpen(t *testing.T) {
	t.Parallel()
	b := setup(t)
	conn, err := b.pool.Acquire(b.ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if err := b.store.Configure(b.ctx, b.pool, "default", queue.Settings{Slots: 2}); err != nil {
		t.Fatal(err)
	}
	slot := queue.Slot{Queue: "default", Token: uuid.New(), Lease: time.Minute}
	if taken, err := b.store.Start(b.ctx, conn.Conn(), slot, "", 10); err != nil || !taken.Slot {
		t.Fatal(taken, err)
	}
	for range 5 {
		if _, err := b.client.Add(b.ctx, greet{}); err != nil {
			t.Fatal(err)
		}
	}
	wantQueues(t, b.trigger.take())
	if b.bell("default") {
		t.Error("the bell is set")
	}
	if _, _, err := b.store.Exit(b.ctx, conn.Conn(), slot, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := b.client.Add(b.ctx, greet{}); err != nil {
		t.Fatal(err)
	}
	wantQueues(t, b.trigger.take(), "default")
}

func TestFire_NotForDelayedJobs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	added, err := b.client.Add(b.ctx, greet{}, In(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if !value[bool](b, "SELECT run_at = created_at + interval '1 hour' FROM doze.jobs") {
		t.Error("it is not due in an hour")
	}
	if err := b.client.Fire(b.ctx, added, Added{}); err != nil {
		t.Fatal(err)
	}
	wantQueues(t, b.trigger.take())
}

// A job that is certainly later wakes nobody now, be it later by a delay or by a time; one that may be due wakes.
func TestFire_JobsWithATime(t *testing.T) {
	t.Parallel()
	b := setup(t)
	service := &alarms{}
	withAlarm := b.newClient(b.pool, Config{Alarm: service})
	for _, c := range []struct {
		name   string
		client *Client
		option Option
		wakes  bool
		alarm  time.Duration // about; zero for none
	}{
		{"delay", withAlarm, In(time.Hour), false, time.Hour},
		{"in an hour", withAlarm, At(time.Now().Add(time.Hour)), false, time.Hour},
		{"in an hour elsewhere", withAlarm, At(time.Now().Add(time.Hour).In(time.FixedZone("", -9*3600))), false, time.Hour},
		{"at the end of time", withAlarm, At(time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)), false, queue.MaxDelay},
		// The database's clock may be ahead of this one by so much, and the drain that comes sets the alarm.
		{"in half a minute", withAlarm, At(time.Now().Add(30 * time.Second)), true, 0},
		{"an hour ago", withAlarm, At(time.Now().Add(-time.Hour)), true, 0},
		{"no time", withAlarm, At(time.Time{}), true, 0},
		{"delay, then no time", withAlarm, func(d *draft) { In(time.Hour)(d); At(time.Time{})(d) }, true, 0},
		// Nobody is woken when the time comes, but perhaps by an alarm of the drain that comes now.
		{"in an hour, and no alarm", b.client, At(time.Now().Add(time.Hour)), true, 0},
	} {
		entry := func(on string) []Entry { return []Entry{{greet{}, []Option{On(on), c.option}}} }
		for call, add := range map[string]func(on string) error{
			"Add":     func(on string) error { _, err := c.client.Add(b.ctx, greet{}, On(on), c.option); return err },
			"AddMany": func(on string) error { _, err := c.client.AddMany(b.ctx, entry(on)); return err },
			"InTx": func(on string) error {
				return c.client.InTx(b.ctx, func(tx *Tx) error { _, err := tx.Add(b.ctx, greet{}, On(on), c.option); return err })
			},
			"AddManyTx": func(on string) error {
				return c.client.InTx(b.ctx, func(tx *Tx) error { _, err := tx.AddMany(b.ctx, entry(on)); return err })
			},
		} {
			on := strings.ReplaceAll(strings.ReplaceAll(c.name+"."+call, " ", "-"), ",", "")
			if err := add(on); err != nil {
				t.Fatalf("%s: %v", on, err)
			}
			if woken := len(b.trigger.take()) > 0; woken != c.wakes || b.bell(on) != c.wakes {
				t.Errorf("%s: woken %v, rung %v, want %v", on, woken, b.bell(on), c.wakes)
			}
			switch set := service.take(); {
			case (c.alarm > 0) != (len(set) == 1) || len(set) > 1:
				t.Errorf("%s: alarms %v, want one in %v", on, set, c.alarm)
			case c.alarm > 0 && (set[0].queue != on || (set[0].in-c.alarm).Abs() > c.alarm/50):
				t.Errorf("%s: alarm %v, want it in %v", on, set[0], c.alarm)
			}
		}
	}
}

// What this machine's clock takes for later may be due by the database's, or have become due before the commit.
func TestFire_LaterJobThatIsDue(t *testing.T) {
	t.Parallel()
	b := setup(t)
	service := &alarms{}
	client := b.newClient(b.pool, Config{Alarm: service})
	for name, option := range map[string]Option{"time": At(time.Now().Add(time.Hour)), "delay": In(time.Hour)} {
		err := client.InTx(b.ctx, func(tx *Tx) error {
			if _, err := tx.Add(b.ctx, greet{}, On(name), option); err != nil {
				return err
			}
			_, err := tx.Exec(b.ctx, queue.Qualify("UPDATE doze.jobs SET run_at = now() WHERE queue = $1::text", b.schema), name)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		wantQueues(t, b.trigger.take(), name)
		wantAlarms(t, service.take(), nil)
	}
}

// Delayed jobs for a queue that has others to run, and somebody who does, bring nobody else.
func TestFire_LaterJobInABusyQueue(t *testing.T) {
	t.Parallel()
	b := setup(t)
	service := &alarms{}
	client := b.newClient(b.pool, Config{Alarm: service})
	for range 3 {
		if _, err := client.AddMany(b.ctx, []Entry{{greet{"now"}, nil}, {greet{"later"}, []Option{In(time.Hour)}}}); err != nil {
			t.Fatal(err)
		}
	}
	wantQueues(t, b.trigger.take(), "default")
	wantAlarms(t, service.take(), nil)
	b.finishAll("default")
	if _, err := client.Add(b.ctx, greet{"later"}, In(time.Hour)); err != nil {
		t.Fatal(err)
	}
	wantQueues(t, b.trigger.take())
	wantAlarms(t, service.take(), map[string]time.Duration{"default": time.Hour})
}

func TestFire_WhenTheRingFails(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if _, err := b.client.Add(b.ctx, greet{}); err != nil {
		t.Fatal(err)
	}
	b.trigger.take()
	b.exec("ALTER TABLE doze.queues RENAME TO elsewhere")
	added, err := b.client.Add(b.ctx, greet{})
	if err != nil || added.Duplicate || b.jobs() != 2 {
		t.Fatalf("%+v, %v, %d jobs", added, err, b.jobs())
	}
	wantQueues(t, b.trigger.take(), "default")
	if err := b.client.Fire(b.ctx, added); err != nil {
		t.Fatal(err)
	}
	wantQueues(t, b.trigger.take(), "default")
	b.exec("ALTER TABLE doze.elsewhere RENAME TO queues")
}
