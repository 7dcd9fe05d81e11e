//go:build unix

package lambdatest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

func TestAsync_RunsEachEventOnceWithinTheConcurrency(t *testing.T) {
	const limit, events = 3, 12
	var mu sync.Mutex
	seen := map[string]int{}
	s := start(t, Function{Concurrency: limit, Handler: func(_ context.Context, p []byte) ([]byte, error) {
		mu.Lock()
		defer mu.Unlock()
		seen[string(p)]++
		return nil, nil
	}})
	for i := range events {
		send(t, s, 1, fmt.Sprintf(`{"n":%d}`, i))
	}
	c := idle(t, s)
	if len(seen) != events || c.Invocations != events || c.MaxConcurrent > limit {
		t.Errorf("%d events seen, counters %+v, want %d of each and at most %d at once", len(seen), c, events, limit)
	}
}

func TestAsync_RetriesWhatIsThrottled(t *testing.T) {
	file := filepath.Join(t.TempDir(), "go")
	event := fmt.Sprintf(`{"do":"until file","reach":%q}`, file)
	s := start(t, Function{Concurrency: 2, Timeout: time.Minute})
	send(t, s, 5, event)
	if err := s.WaitFor(patient(t), "fn", func(c Counters) bool { return c.Throttles >= 6 && c.Invocations == 2 }); err != nil {
		t.Fatal(err)
	}
	var throttled bool
	if _, err := s.Invoke(patient(t), "fn", []byte(event)); errors.Is(err, errThrottled) {
		throttled = true
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c := idle(t, s)
	if !throttled || c.Invocations != 5 || c.MaxConcurrent != 2 || c.Errors != 0 {
		t.Errorf("sync call throttled: %v; counters %+v, want 5 invocations, 2 at once", throttled, c)
	}
}

func TestAsync_DropsWhatGrowsTooOld(t *testing.T) {
	s := start(t, Function{Concurrency: 1, Timeout: time.Minute, MaxEventAge: 50 * time.Millisecond})
	send(t, s, 2, `{"do":"hang"}`)
	if err := s.WaitFor(patient(t), "fn", func(c Counters) bool { return c.Expired == 1 }); err != nil {
		t.Fatal(err)
	}
	s.Kill("fn", -1)
	if c := idle(t, s); c.Invocations != 1 {
		t.Errorf("%d invocations, want 1", c.Invocations)
	}
}

func TestAsync_RetriesAFailureAsOftenAsSet(t *testing.T) {
	for _, retries := range []int{0, 2} {
		s := start(t, Function{Retries: retries, Handler: func(context.Context, []byte) ([]byte, error) {
			return nil, errors.New("no")
		}})
		send(t, s, 1, `{}`)
		if c := idle(t, s); c.Invocations != 1+retries || c.Retried != retries || c.Errors != 1+retries {
			t.Errorf("%d retries: counters %+v", retries, c)
		}
	}
}

func TestFaults_LoseDoubleAndDelayEvents(t *testing.T) {
	var order []string
	var mu sync.Mutex
	s := start(t, Function{
		Handler: func(_ context.Context, p []byte) ([]byte, error) {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, string(p))
			return nil, nil
		},
		Faults: Faults{
			Drop:      Nth(1),
			Duplicate: Nth(2),
			Delay:     When(Nth(3), 50*time.Millisecond),
		},
	})
	for i := range 4 {
		send(t, s, 1, fmt.Sprint(i+1))
	}
	c := idle(t, s)
	if c.Dropped != 1 || c.Duplicated != 1 || c.Invocations != 4 {
		t.Errorf("counters %+v, want 1 dropped, 1 doubled, 4 invocations", c)
	}
	count := map[string]int{}
	for _, o := range order {
		count[o]++
	}
	if count["1"] != 0 || count["2"] != 2 || count["3"] != 1 || count["4"] != 1 || order[len(order)-1] != "3" {
		t.Errorf("order %v, want 2 twice, 4, and 3 last", order)
	}
	s.SetFaults("fn", Faults{})
	send(t, s, 1, "5")
	if c := idle(t, s); c.Invocations != 5 {
		t.Errorf("%d invocations after SetFaults, want 5", c.Invocations)
	}
}

func TestFraction_IsAboutRightAndRepeats(t *testing.T) {
	for _, part := range []float64{0, 0.1, 0.5, 1} {
		a, b, n := Fraction(part, 7), Fraction(part, 7), 0
		for i := range 10000 {
			if a(i) != b(i) {
				t.Fatal("the same seed gave another answer")
			}
			if a(i) {
				n++
			}
		}
		if got := float64(n) / 10000; got < part-0.02 || got > part+0.02 {
			t.Errorf("fraction %v gave %v", part, got)
		}
	}
}

func TestLoop_IsCutUnlessAllowed(t *testing.T) {
	for _, c := range []struct {
		allow             bool
		queue             string
		invocations, loop int
	}{{false, "endless", 16, 1}, {true, "bounded", 21, 0}} {
		s := start(t, Function{AllowLoop: c.allow, Timeout: 20 * time.Second})
		send(t, s, 1, fmt.Sprintf(`{"v":1,"queue":%q}`, c.queue))
		got := idle(t, s)
		if got.Invocations != c.invocations || got.Looped != c.loop || got.Errors != 0 {
			t.Errorf("allowed %v: counters %+v, want %d invocations and %d cut", c.allow, got, c.invocations, c.loop)
		}
	}
}

func TestHandler_EndsWithItsContextAtTheDeadline(t *testing.T) {
	ended := make(chan error, 1)
	s := start(t, Function{Timeout: 20 * time.Millisecond, Handler: func(ctx context.Context, _ []byte) ([]byte, error) {
		<-ctx.Done()
		ended <- ctx.Err()
		return nil, ctx.Err()
	}})
	out, err := s.Invoke(patient(t), "fn", []byte(`{}`))
	if err == nil {
		t.Error("no error")
	}
	var f struct{ ErrorType string }
	if _ = json.Unmarshal(out, &f); f.ErrorType == "" {
		t.Errorf("answer %s, want an errorType", out)
	}
	if err := <-ended; err == nil {
		t.Error("the context did not end")
	}
}
