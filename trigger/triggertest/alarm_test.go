package triggertest

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dozequeue/doze/queue"
)

// timers is an alarm in this process that can be made to break one promise. It lives in a bubble.
type timers struct {
	fault      string
	mu         sync.Mutex
	set        map[string]*time.Timer
	seen       map[string]bool
	rang       time.Time
	gate       chan struct{}
	hang       chan struct{}
	broken     bool
	deliveries chan Delivery
}

func newTimers(fault string) *timers {
	open := make(chan struct{})
	close(open)
	return &timers{
		fault: fault, set: map[string]*time.Timer{}, seen: map[string]bool{},
		gate: open, hang: open, deliveries: make(chan Delivery, 64),
	}
}

// closing makes the channel that c holds one that is closed by the func that is returned.
func (a *timers) closing(c *chan struct{}) func() {
	a.mu.Lock()
	defer a.mu.Unlock()
	shut := make(chan struct{})
	*c = shut
	return func() { close(shut) }
}

func (a *timers) fixture() AlarmFixture {
	return AlarmFixture{
		Alarm:      a,
		Advance:    func(d time.Duration) { time.Sleep(d); synctest.Wait() },
		Deliveries: a.deliveries,
		Replaces:   true,
		Block:      func() func() { return a.closing(&a.gate) },
		Hang:       func() func() { return a.closing(&a.hang) },
		Break:      func() { a.mu.Lock(); a.broken = true; a.mu.Unlock() },
	}
}

func (a *timers) Set(ctx context.Context, w queue.Wake, in time.Duration) error {
	if w.Queue == "" && a.fault != "takes no queue" {
		return errors.New("no queue")
	}
	a.mu.Lock()
	hang, broken := a.hang, a.broken
	a.mu.Unlock()
	if a.fault == "ignores context" {
		<-hang
	}
	select {
	case <-hang:
	case <-ctx.Done():
		return ctx.Err()
	}
	if broken && a.fault != "hides failure" {
		return errors.New("broken")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	key := w.Queue
	switch a.fault {
	case "is one for all queues":
		key = ""
	case "does not replace":
		key += w.Alarm
	case "refuses an id again":
		if a.seen[w.Alarm] {
			return errors.New("seen before")
		}
		a.seen[w.Alarm] = true
	case "is early":
		in = 0
	case "is late":
		in += time.Hour
	case "loses one that is set after another":
		if !a.rang.IsZero() && time.Since(a.rang) < 5*time.Second {
			return nil
		}
	}
	if old := a.set[key]; old != nil {
		if a.fault == "keeps the first" && old.Stop() {
			old.Reset(15 * time.Second)
			return nil
		}
		old.Stop()
	}
	deliver := func() {
		a.mu.Lock()
		gate := a.gate
		a.rang = time.Now()
		a.mu.Unlock()
		if a.fault == "has no id" {
			w.Alarm = ""
		}
		body, _ := json.Marshal(w)
		a.deliveries <- Delivery{Wake: w, Body: body}
		<-gate
	}
	if a.fault == "waits for the drain" && in <= 0 {
		a.mu.Unlock()
		deliver()
		a.mu.Lock()
		return nil
	}
	a.set[key] = time.AfterFunc(max(in, 0), deliver)
	return nil
}

func bubbled(fault string) AlarmSetup {
	return func(t *testing.T, test func(*testing.T, AlarmFixture)) {
		synctest.Test(t, func(t *testing.T) { test(t, newTimers(fault).fixture()) })
	}
}

func TestRunAlarm_PassesAGoodAlarm(t *testing.T) { RunAlarm(t, bubbled("")) }

// One that does not drop what it replaced is good too, if it does not claim to.
func TestRunAlarm_PassesOneThatDoesNotReplace(t *testing.T) {
	RunAlarm(t, func(t *testing.T, test func(*testing.T, AlarmFixture)) {
		synctest.Test(t, func(t *testing.T) {
			f := newTimers("does not replace").fixture()
			f.Replaces = false
			test(t, f)
		})
	})
}

// TestFaultyAlarm is run by TestRunAlarm_FindsFaults in a process of its own.
func TestFaultyAlarm(t *testing.T) {
	fault := os.Getenv(faultEnv)
	if fault == "" {
		t.Skip("run by TestRunAlarm_FindsFaults")
	}
	RunAlarm(t, bubbled(fault))
}

func TestRunAlarm_FindsFaults(t *testing.T) {
	if os.Getenv(faultEnv) != "" {
		t.Skip("this is the inner process")
	}
	for fault, want := range map[string]string{
		"waits for the drain":                 "has not returned after",
		"ignores context":                     "has not returned after",
		"hides failure":                       "the service failed",
		"takes no queue":                      "for a wake without a queue",
		"has no id":                           "wake did not come",
		"is early":                            "more than a grain early",
		"is late":                             "wake did not come",
		"is one for all queues":               "did not come",
		"does not replace":                    "that was replaced came",
		"keeps the first":                     "wake did not come",
		"refuses an id again":                 "seen before",
		"loses one that is set after another": "wake did not come",
	} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(os.Args[0], "-test.run=^TestFaultyAlarm$")
			cmd.Env = append(os.Environ(), faultEnv+"="+fault)
			out, err := cmd.CombinedOutput()
			if err == nil {
				t.Fatalf("the suite passed an alarm that %s", fault)
			}
			if !strings.Contains(string(out), want) {
				t.Errorf("want %q in the report:\n%s", want, out)
			}
		})
	}
}
