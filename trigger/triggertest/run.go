package triggertest

import (
	"context"
	_ "embed"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/dozequeue/doze/queue"
)

// patience is how long the suite waits for a signal before it calls it missing.
// A trigger that passes is not slowed by it.
var patience = 10 * time.Second

// golden is a copy of queue/testdata/wake.json, since a package cannot embed
// the files of another.
//
//go:embed testdata/wake.json
var golden []byte

// Run checks the contract of [queue.Trigger]:
//
//   - Fire delivers the wake, and nothing but the wake;
//   - it does not wait for the drain;
//   - it returns when its context ends;
//   - a wake that cannot be delivered, or names no queue, is an error;
//   - it may be called by several goroutines, and again with the same wake.
//
// A trigger may lose a wake or deliver it twice; the suite asks that one with a
// healthy receiver does not lose it, and never minds a second delivery.
func Run(t *testing.T, setup Setup) {
	t.Helper()
	tests := []struct {
		name string
		run  func(*testing.T, Fixture)
	}{
		{"delivers the wake and nothing else", delivers},
		{"does not wait for the drain", doesNotWait},
		{"returns when its context ends", endsWithContext},
		{"reports a wake that it cannot deliver", reportsFailure},
		{"refuses a wake for no queue", refusesNoQueue},
		{"may be called by several goroutines", concurrent},
		{"may fire the same wake again", again},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := setup(t)
			if f.Trigger == nil {
				t.Fatal("Fixture.Trigger: nil, want the trigger under test")
			}
			if f.Deliveries != nil && f.Block == nil {
				t.Fatal("Fixture.Block: nil, want a func, since Deliveries is set")
			}
			test.run(t, f)
		})
	}
}

// delivers also holds the message against the golden file, so that a drain of
// another version can read it.
func delivers(t *testing.T, f Fixture) {
	var messages []json.RawMessage
	if err := json.Unmarshal(golden, &messages); err != nil {
		t.Fatal(err)
	}
	name := f.queues()[0]
	for _, message := range messages {
		var w queue.Wake
		if err := json.Unmarshal(message, &w); err != nil {
			t.Fatal(err)
		}
		if w.Queue != name {
			w.Queue = name
			message, _ = json.Marshal(w)
		}
		fire(t, f, w)
		if f.Deliveries == nil {
			continue
		}
		d := await(t, f, w)
		if d.Body != nil && string(d.Body) != string(message) {
			t.Errorf("sent %s, want %s", d.Body, message)
		}
	}
}

func doesNotWait(t *testing.T, f Fixture) {
	release := func() {}
	if f.Block != nil {
		release = f.Block()
	}
	defer release()
	w := queue.Wake{Version: 1, Queue: f.queues()[0], Reason: queue.ReasonEnqueue}
	returned := make(chan error, 1)
	go func() { returned <- f.Trigger.Fire(context.Background(), w) }()
	select {
	case err := <-returned:
		if err != nil {
			t.Errorf("Fire failed while the drain ran: %v", err)
		}
	case <-time.After(patience):
		t.Fatalf("Fire waits for the drain: it has not returned after %s", patience)
	}
	if f.Deliveries != nil {
		await(t, f, w)
	}
}

func endsWithContext(t *testing.T, f Fixture) {
	if f.Block != nil {
		defer f.Block()()
	}
	w := queue.Wake{Version: 1, Queue: f.queues()[0]}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	inTime(t, "Fire with a context that had ended", func() { _ = f.Trigger.Fire(ended, w) })

	ending, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	inTime(t, "Fire with a context that ends", func() { _ = f.Trigger.Fire(ending, w) })
}

func reportsFailure(t *testing.T, f Fixture) {
	if f.Break == nil {
		t.Skip("this trigger cannot fail to deliver")
	}
	f.Break()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := f.Trigger.Fire(ctx, queue.Wake{Version: 1, Queue: f.queues()[0]}); err == nil {
		t.Error("Fire gave no error, and the receiver was not there")
	}
}

func refusesNoQueue(t *testing.T, f Fixture) {
	if f.Deliveries == nil {
		t.Skip("this trigger delivers nothing")
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := f.Trigger.Fire(ctx, queue.Wake{Version: 1}); err == nil {
		t.Error("Fire gave no error for a wake without a queue")
	}
}

func concurrent(t *testing.T, f Fixture) {
	var wg sync.WaitGroup
	for _, name := range f.queues() {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			if err := f.Trigger.Fire(ctx, queue.Wake{Version: 1, Queue: name}); err != nil {
				t.Errorf("fire %s: %v", name, err)
			}
		})
	}
	wg.Wait()
	if f.Deliveries == nil {
		return
	}
	missing := map[string]bool{}
	for _, name := range f.queues() {
		missing[name] = true
	}
	deadline := time.After(patience)
	for len(missing) > 0 {
		select {
		case d := <-f.Deliveries:
			delete(missing, d.Wake.Queue)
		case <-deadline:
			t.Fatalf("no wake came for %d of %d queues", len(missing), len(f.queues()))
		}
	}
}

// again fires each time after the wake before was delivered, and perhaps while
// its drain still runs: that drain may have looked for the last time.
func again(t *testing.T, f Fixture) {
	w := queue.Wake{Version: 1, Queue: f.queues()[0], Reason: queue.ReasonEnqueue}
	for range 3 {
		fire(t, f, w)
		if f.Deliveries != nil {
			await(t, f, w)
		}
	}
}

func fire(t *testing.T, f Fixture, w queue.Wake) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := f.Trigger.Fire(ctx, w); err != nil {
		t.Fatalf("fire: %v", err)
	}
}

// await waits for w, over second deliveries of others.
func await(t *testing.T, f Fixture, w queue.Wake) Delivery {
	t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case d := <-f.Deliveries:
			if d.Wake == w {
				return d
			}
			t.Logf("another wake came: %+v", d.Wake)
		case <-deadline:
			t.Fatalf("wake not delivered within %s: %+v", patience, w)
		}
	}
}

func inTime(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatalf("%s has not returned after %s", what, patience)
	}
}
