//go:build unix

package lambdatest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestEnvironment_IsWarmForTheNextCall(t *testing.T) {
	s := start(t, Function{})
	first := call(t, s, `{}`)
	second := call(t, s, `{}`)
	if first.PID != second.PID || first.Calls != 1 || second.Calls != 2 {
		t.Errorf("got %+v then %+v, want the same process with 1 and 2 calls", first, second)
	}
	s.Retire("fn")
	if third := call(t, s, `{}`); third.PID == first.PID || third.Calls != 1 {
		t.Errorf("after Retire got %+v, want another process", third)
	}
	if c := s.Counters("fn"); c.ColdStarts != 2 || c.Invocations != 3 || c.MaxConcurrent != 1 {
		t.Errorf("counters %+v, want 2 cold starts, 3 invocations, 1 at once", c)
	}
}

func TestEnvironment_TellsTheFunctionWhereItRuns(t *testing.T) {
	s := start(t, Function{Timeout: 20 * time.Second, Env: []string{"DOZE_X=1"}})
	r := call(t, s, `{}`)
	if r.Name != "fn" || r.ARN != "arn:aws:lambda:eu-central-1:123456789012:function:fn" {
		t.Errorf("name %q, ARN %q", r.Name, r.ARN)
	}
	if r.Left <= 10*time.Second || r.Left > 20*time.Second {
		t.Errorf("%s left, want up to the timeout of 20s", r.Left)
	}
	if !strings.Contains(r.Trace, "Lineage=1:") || r.Endpoint != s.URL() {
		t.Errorf("trace %q, endpoint %q", r.Trace, r.Endpoint)
	}
}

// processState is the letter in /proc: T for stopped.
func processState(t *testing.T, pid int) string {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if os.IsNotExist(err) {
		return "gone"
	}
	if err != nil {
		t.Skipf("no /proc here: %v", err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return rest[:1]
}

func TestEnvironment_IsStoppedBetweenInvocations(t *testing.T) {
	s := start(t, Function{})
	first := call(t, s, `{}`)
	// A signal takes effect a moment after it was sent, and nothing tells of it.
	for ctx := patient(t); processState(t, first.PID) != "T"; {
		select {
		case <-ctx.Done():
			t.Fatalf("state %s long after the answer, want T (stopped)", processState(t, first.PID))
		case <-time.After(time.Millisecond):
		}
	}
	// Its ticker ran each millisecond before; time that passes now is not seen.
	<-time.After(300 * time.Millisecond)
	if second := call(t, s, `{}`); second.Ticks-first.Ticks > 100 {
		t.Errorf("ticked %d times while stopped", second.Ticks-first.Ticks)
	}
}

func TestEnvironment_RunsOnWhereAsked(t *testing.T) {
	s := start(t, Function{KeepRunning: true})
	if r := call(t, s, `{}`); processState(t, r.PID) == "T" {
		t.Error("stopped, and KeepRunning is set")
	}
}

func TestEnvironment_IsKilledAtTheDeadline(t *testing.T) {
	s := start(t, Function{Timeout: 100 * time.Millisecond})
	out, err := s.Invoke(patient(t), "fn", []byte(`{"do":"hang"}`))
	if err == nil || !strings.Contains(string(out), "timed out after 0.10 seconds") {
		t.Fatalf("got %s, %v", out, err)
	}
	if c := idle(t, s); c.TimedOut != 1 || c.Errors != 1 || c.Environments != 0 {
		t.Errorf("counters %+v, want one timeout and no environment", c)
	}
	if r := call(t, s, `{}`); r.Calls != 1 {
		t.Errorf("%d calls, want a new process", r.Calls)
	}
}

func TestEnvironment_ReportsHowAFunctionFails(t *testing.T) {
	s := start(t, Function{})
	for event, want := range map[string]struct {
		message string
		dies    bool
	}{
		`{"do":"fail"}`:  {"it failed", false},
		`{"do":"panic"}`: {"it panicked", true},
		`{"do":"exit"}`:  {"exit status 3", true},
	} {
		before := call(t, s, `{}`)
		out, err := s.Invoke(patient(t), "fn", []byte(event))
		var failed *errFunction
		if !errors.As(err, &failed) || !strings.Contains(string(out), want.message) {
			t.Errorf("%s: got %s, %v, want %q", event, out, err, want.message)
		}
		if after := call(t, s, `{}`); (after.PID != before.PID) != want.dies {
			t.Errorf("%s: process %d before, %d after", event, before.PID, after.PID)
		}
	}
	if c := s.Counters("fn"); c.Errors != 3 {
		t.Errorf("%d errors, want 3", c.Errors)
	}
}

func TestEnvironment_ReportsAFailedStart(t *testing.T) {
	for name, c := range map[string]struct {
		f    Function
		want string
	}{
		"exits":     {Function{Env: []string{"FN_INIT=exit"}}, "exit status 7"},
		"hangs":     {Function{Env: []string{"FN_INIT=hang"}, InitTimeout: 50 * time.Millisecond}, "Init did not end"},
		"no binary": {Function{Bootstrap: "/no/such/bootstrap"}, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, c.f)
			out, err := s.Invoke(patient(t), "fn", []byte(`{}`))
			if err == nil || !strings.Contains(string(out), c.want) {
				t.Errorf("got %s, %v, want %q", out, err, c.want)
			}
			if n := idle(t, s).Environments; n != 0 {
				t.Errorf("%d environments left", n)
			}
		})
	}
}

func TestKill_EndsARunningInvocation(t *testing.T) {
	s := start(t, Function{Timeout: time.Minute})
	failed := make(chan error, 1)
	ctx := patient(t)
	go func() { _, err := s.Invoke(ctx, "fn", []byte(`{"do":"hang"}`)); failed <- err }()
	if err := s.WaitFor(ctx, "fn", func(c Counters) bool { return c.Invocations == 1 }); err != nil {
		t.Fatal(err)
	}
	if n := s.Kill("fn", -1); n != 1 {
		t.Errorf("killed %d, want 1", n)
	}
	if err := <-failed; err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("got %v", err)
	}
}

func TestFaults_KillAfterEndsTheNthInvocation(t *testing.T) {
	s := start(t, Function{Timeout: time.Minute, Faults: Faults{KillAfter: When(Nth(2), time.Millisecond)}})
	call(t, s, `{}`)
	if _, err := s.Invoke(patient(t), "fn", []byte(`{"do":"hang"}`)); err == nil {
		t.Error("the second invocation was not killed")
	}
	call(t, s, `{}`)
	if c := s.Counters("fn"); c.Killed != 1 {
		t.Errorf("%d killed, want 1", c.Killed)
	}
}

func TestClose_LeavesNoProcess(t *testing.T) {
	s := start(t, Function{Timeout: time.Minute})
	stopped := call(t, s, `{}`)
	// A second one runs while the server is closed.
	file := filepath.Join(t.TempDir(), "never")
	ctx := patient(t)
	failed := make(chan error, 1)
	go func() {
		_, err := s.Invoke(ctx, "fn", fmt.Appendf(nil, `{"do":"until file","reach":%q}`, file))
		failed <- err
	}()
	if err := s.WaitFor(ctx, "fn", func(c Counters) bool { return c.Invocations == 2 }); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; err == nil {
		t.Error("the invocation that ran was not failed")
	}
	if err := syscall.Kill(stopped.PID, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("process %d: %v, want that it is gone", stopped.PID, err)
	}
	if _, err := s.Invoke(ctx, "fn", nil); !errors.Is(err, errClosed) {
		t.Errorf("after Close: %v", err)
	}
}
