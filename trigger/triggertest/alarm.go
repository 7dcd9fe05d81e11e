package triggertest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dozequeue/doze/queue"
)

// RunAlarm checks the contract of [queue.Alarm]:
//
//   - the wake comes as it was given, with its alarm's id, not before its time less a grain;
//   - Set does not wait for it, not even for one that is due now;
//   - a later Set for the same queue holds, sooner or later than the one before; the one before does
//     not come, or its wake carries its own id;
//   - an alarm that is set while another goes off is not lost with that one;
//   - queues do not disturb each other, and Set may be called by several goroutines;
//   - Set returns when its context ends, and a service that fails or a wake for no queue is an error.
//
// An alarm may be late, early, doubled or lost; the suite asks that one with a healthy service is not
// lost, is not earlier than a grain and not later than two.
func RunAlarm(t *testing.T, setup AlarmSetup) {
	t.Helper()
	tests := []struct {
		name string
		run  func(*testing.T, AlarmFixture)
	}{
		{"wakes in time and says which alarm it is", alarmWakes},
		{"does not wait for the wake", alarmDoesNotWait},
		{"is replaced by a sooner one", alarmSooner},
		{"is replaced by a later one", alarmLater},
		{"can be set twice with the same id", alarmTwice},
		{"can be set while another goes off", alarmWhileAnother},
		{"is one of many queues", alarmQueues},
		{"may be set by several goroutines", alarmConcurrent},
		{"returns when its context ends", alarmEndsWithContext},
		{"reports a service that fails", alarmFails},
		{"refuses a wake for no queue", alarmNoQueue},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			called := false
			setup(t, func(t *testing.T, f AlarmFixture) {
				called = true
				if f.Alarm == nil || f.Advance == nil || f.Deliveries == nil {
					t.Fatal("AlarmFixture: Alarm, Advance or Deliveries is nil, want all three")
				}
				test.run(t, f)
			})
			if !called && !t.Skipped() && !t.Failed() {
				t.Error("setup did not call the test")
			}
		})
	}
}

// ids are like those that the queue gives.
const idForm = "0b9c6c1e-6f4e-4c55-9d0e-%012d"

func alarmWake(f AlarmFixture, n, id int) queue.Wake {
	return queue.Wake{Version: 1, Queue: f.queues()[n], Reason: queue.ReasonAlarm, Alarm: fmt.Sprintf(idForm, id)}
}

func alarmWakes(t *testing.T, f AlarmFixture) {
	w := alarmWake(f, 0, 1)
	in := 5 * f.grain()
	set(t, f, w, in)
	f.Advance(in - f.grain() - time.Millisecond)
	for _, d := range arrived(f) {
		t.Errorf("came more than a grain early: %+v", d.Wake)
	}
	f.Advance(3*f.grain() + time.Millisecond)
	d := ring(t, f, w)
	want, err := json.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	if d.Body != nil && string(d.Body) != string(want) {
		t.Errorf("sent %s, want %s", d.Body, want)
	}
}

func alarmDoesNotWait(t *testing.T, f AlarmFixture) {
	release := func() {}
	if f.Block != nil {
		release = f.Block()
	}
	defer release()
	var before []queue.Wake
	for id, in := range []time.Duration{0, -time.Hour, time.Nanosecond, 5 * f.grain()} {
		w := alarmWake(f, id%2, id)
		set(t, f, w, in)
		f.Advance(max(in, 0) + 3*f.grain())
		ring(t, f, w, before...)
		before = append(before, w)
	}
}

func alarmSooner(t *testing.T, f AlarmFixture) {
	old, sooner := alarmWake(f, 0, 1), alarmWake(f, 0, 2)
	set(t, f, old, 20*f.grain())
	set(t, f, sooner, 5*f.grain())
	f.Advance(8 * f.grain())
	ring(t, f, sooner, old)
	f.Advance(20 * f.grain())
	for _, d := range arrived(f) {
		switch {
		case d.Wake == sooner: // doubled
		case d.Wake != old:
			t.Errorf("a wake that was not set: %+v", d.Wake)
		case f.Replaces:
			t.Errorf("the alarm that was replaced came: %+v", d.Wake)
		}
	}
}

func alarmLater(t *testing.T, f AlarmFixture) {
	old, later := alarmWake(f, 0, 1), alarmWake(f, 0, 2)
	set(t, f, old, 5*f.grain())
	set(t, f, later, 20*f.grain())
	f.Advance(25 * f.grain())
	ring(t, f, later, old)
}

// alarmTwice is what a caller does that did not hear the answer of its first try.
func alarmTwice(t *testing.T, f AlarmFixture) {
	w := alarmWake(f, 0, 1)
	set(t, f, w, 5*f.grain())
	set(t, f, w, 5*f.grain())
	f.Advance(8 * f.grain())
	ring(t, f, w)
}

// alarmWhileAnother sets each alarm when the one before has just woken its drain, and the service may
// not be done with it.
func alarmWhileAnother(t *testing.T, f AlarmFixture) {
	release := func() {}
	if f.Block != nil {
		release = f.Block()
	}
	defer release()
	var before []queue.Wake
	for id := range 4 {
		w := alarmWake(f, 0, id)
		set(t, f, w, 5*f.grain())
		f.Advance(8 * f.grain())
		ring(t, f, w, before...)
		before = append(before, w)
	}
}

func alarmQueues(t *testing.T, f AlarmFixture) {
	missing := map[queue.Wake]bool{}
	for i := range f.queues() {
		w := alarmWake(f, i, i)
		missing[w] = true
		set(t, f, w, 5*f.grain())
	}
	f.Advance(8 * f.grain())
	for _, d := range arrived(f) {
		delete(missing, d.Wake)
	}
	for w := range missing {
		t.Errorf("did not come: %+v", w)
	}
}

func alarmConcurrent(t *testing.T, f AlarmFixture) {
	var wg sync.WaitGroup
	for i := range f.queues() {
		for j := range 3 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				if err := f.Alarm.Set(ctx, alarmWake(f, i, 10*i+j), 5*f.grain()); err != nil {
					t.Errorf("set: %v", err)
				}
			})
		}
	}
	wg.Wait()
	f.Advance(8 * f.grain())
	woken := map[string]bool{}
	for _, d := range arrived(f) {
		woken[d.Wake.Queue] = true
	}
	for _, name := range f.queues() {
		if !woken[name] {
			t.Errorf("no alarm came for queue %s", name)
		}
	}
}

func alarmEndsWithContext(t *testing.T, f AlarmFixture) {
	if f.Hang != nil {
		defer f.Hang()()
	}
	w := alarmWake(f, 0, 1)
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	inTime(t, "Set with a context that had ended", func() { _ = f.Alarm.Set(ended, w, 5*f.grain()) })

	ending, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	inTime(t, "Set with a context that ends", func() {
		if err := f.Alarm.Set(ending, w, 5*f.grain()); err == nil && f.Hang != nil {
			t.Error("Set gave no error, and the service did not answer")
		}
	})
}

func alarmFails(t *testing.T, f AlarmFixture) {
	if f.Break == nil {
		t.Skip("this alarm cannot fail to be set")
	}
	f.Break()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := f.Alarm.Set(ctx, alarmWake(f, 0, 1), 5*f.grain()); err == nil {
		t.Error("Set gave no error, and the service failed")
	}
}

func alarmNoQueue(t *testing.T, f AlarmFixture) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := f.Alarm.Set(ctx, queue.Wake{Version: 1, Reason: queue.ReasonAlarm, Alarm: fmt.Sprintf(idForm, 1)}, f.grain()); err == nil {
		t.Error("Set gave no error for a wake without a queue")
	}
}

func set(t *testing.T, f AlarmFixture, w queue.Wake, in time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	inTime(t, "Set with a healthy service", func() {
		if err := f.Alarm.Set(ctx, w, in); err != nil {
			t.Errorf("set: %v", err)
		}
	})
	if t.Failed() {
		t.FailNow()
	}
}

// arrived takes the deliveries that are there.
func arrived(f AlarmFixture) (all []Delivery) {
	for {
		select {
		case d := <-f.Deliveries:
			all = append(all, d)
		default:
			return all
		}
	}
}

// ring takes the deliveries that are there, among which w must be, and gives w's. Others must be of
// alarms that were set before: replaced, or second deliveries.
func ring(t *testing.T, f AlarmFixture, w queue.Wake, before ...queue.Wake) (ours Delivery) {
	t.Helper()
	found := false
	for _, d := range arrived(f) {
		if d.Wake == w {
			ours, found = d, true
			continue
		}
		if !slices.Contains(before, d.Wake) {
			t.Errorf("a wake that was not set: %+v", d.Wake)
		}
	}
	if !found {
		t.Fatalf("wake did not come: %+v", w)
	}
	return ours
}
