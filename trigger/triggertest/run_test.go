package triggertest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dozequeue/doze/queue"
)

func TestGoldenIsTheOneOfQueue(t *testing.T) {
	want, err := os.ReadFile("../../queue/testdata/wake.json")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(golden, want) {
		t.Error("testdata/wake.json differs from queue/testdata/wake.json: copy that one here")
	}
}

// local is a trigger in this process that can be made to break one promise.
type local struct {
	fault      string
	mu         sync.Mutex
	gate       chan struct{} // closed: the receiver is not held
	broken     bool
	deliveries chan Delivery
	unsafe     map[string]int
}

func newLocal(fault string) *local {
	gate := make(chan struct{})
	close(gate)
	return &local{fault: fault, gate: gate, deliveries: make(chan Delivery, 64), unsafe: map[string]int{}}
}

func (l *local) fixture() Fixture {
	return Fixture{
		Trigger:    l,
		Deliveries: l.deliveries,
		Block: func() func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			gate := make(chan struct{})
			l.gate = gate
			return func() { close(gate) }
		},
		Break: func() { l.mu.Lock(); l.broken = true; l.mu.Unlock() },
	}
}

func (l *local) Fire(ctx context.Context, w queue.Wake) error {
	if w.Queue == "" && l.fault != "takes no queue" {
		return errors.New("no queue")
	}
	if err := ctx.Err(); err != nil && l.fault != "ignores context" {
		return err
	}
	l.mu.Lock()
	gate, broken := l.gate, l.broken
	l.mu.Unlock()
	if broken && l.fault != "hides failure" {
		return errors.New("broken")
	}
	if l.fault == "once" {
		l.mu.Lock()
		l.unsafe[w.Queue]++
		n := l.unsafe[w.Queue]
		l.mu.Unlock()
		if n > 1 {
			return nil
		}
	}
	body, _ := json.Marshal(w)
	if l.fault == "says more" {
		body = append(body[:len(body)-1], `,"job":"17"}`...)
	}
	if l.fault != "loses" {
		l.deliveries <- Delivery{Wake: w, Body: body}
	}
	if l.fault == "waits" || l.fault == "ignores context" {
		<-gate
	}
	return nil
}

func TestRun_PassesAGoodTrigger(t *testing.T) {
	Run(t, func(*testing.T) Fixture { return newLocal("").fixture() })
}

const faultEnv = "TRIGGERTEST_FAULT"

// TestFaulty is run by TestRun_FindsFaults in a process of its own.
func TestFaulty(t *testing.T) {
	fault := os.Getenv(faultEnv)
	if fault == "" {
		t.Skip("run by TestRun_FindsFaults")
	}
	patience = 300 * time.Millisecond
	Run(t, func(*testing.T) Fixture { return newLocal(fault).fixture() })
}

func TestRun_FindsFaults(t *testing.T) {
	if os.Getenv(faultEnv) != "" {
		t.Skip("this is the inner process")
	}
	for fault, want := range map[string]string{
		"waits":           "Fire waits for the drain",
		"ignores context": "has not returned after",
		"hides failure":   "the receiver was not there",
		"takes no queue":  "for a wake without a queue",
		"says more":       `"job":"17"`,
		"loses":           "not delivered within",
		"once":            "not delivered within",
	} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(os.Args[0], "-test.run=^TestFaulty$")
			cmd.Env = append(os.Environ(), faultEnv+"="+fault)
			out, err := cmd.CombinedOutput()
			if err == nil {
				t.Fatalf("the suite passed a trigger that %s", fault)
			}
			if !strings.Contains(string(out), want) {
				t.Errorf("want %q in the report:\n%s", want, out)
			}
		})
	}
}
