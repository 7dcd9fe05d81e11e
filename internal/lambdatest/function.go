package lambdatest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"
)

// Function is one function of the double.
type Function struct {
	// Name of the function, as in AWS: letters, digits, _ and -. Required.
	Name string

	// Bootstrap is the path of the binary to run. Either this or Handler.
	Bootstrap string

	// Handler runs in this process instead of a binary; it is never stopped
	// and, at the deadline, only its context ends.
	Handler func(ctx context.Context, payload []byte) ([]byte, error)

	// Env adds variables, "NAME=value", to the few that Lambda sets. Nothing is
	// inherited from this process but PATH.
	Env []string

	// Timeout of an invocation. Default 3 s, as in Lambda.
	Timeout time.Duration

	// InitTimeout bounds the start of an environment. Default 10 s.
	InitTimeout time.Duration

	// Concurrency is the reserved concurrency. Default 100.
	Concurrency int

	// Retries after a function error of an async event. Default 0, which is
	// what the template sets; Lambda's own default is 2.
	Retries int

	// MaxEventAge is how long an async event is tried. Default 60 s, which is
	// the least that Lambda accepts.
	MaxEventAge time.Duration

	// AllowLoop is RecursiveLoop: Allow. Without it an invocation that is the
	// 17th of a chain is dropped.
	AllowLoop bool

	// KeepRunning leaves an environment running between invocations. Lambda
	// never does; it is for debugging.
	KeepRunning bool

	// Log gets what the binary prints. Default: nowhere.
	Log io.Writer

	// Faults to begin with; see [Server.SetFaults].
	Faults Faults
}

// Faults says what goes wrong with a function. Each func gets the number of the
// event or invocation, from 1; nil means never. They are called one at a time
// and must not call the [Server].
type Faults struct {
	// Reject answers an async invoke with this HTTP status instead of taking
	// the event; zero takes it. The number counts requests.
	Reject func(n int) int
	// Drop loses an async event after it was taken.
	Drop func(n int) bool
	// Duplicate delivers an async event twice.
	Duplicate func(n int) bool
	// Delay holds an async event back.
	Delay func(n int) time.Duration
	// KillAfter kills the environment this long after the invocation began;
	// zero does not. The number counts invocations, sync ones too.
	KillAfter func(n int) time.Duration
}

var functionName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

func (f Function) check() error {
	switch {
	case !functionName.MatchString(f.Name):
		return fmt.Errorf("lambdatest: Name: %q, want 1 to 64 of letters, digits, _ and -", f.Name)
	case (f.Bootstrap == "") == (f.Handler == nil):
		return fmt.Errorf("lambdatest: function %s: want either Bootstrap or Handler", f.Name)
	case f.Timeout < 0 || f.InitTimeout < 0 || f.Concurrency < 0 || f.Retries < 0 || f.MaxEventAge < 0:
		return fmt.Errorf("lambdatest: function %s: a negative setting, want 0 for the default or more", f.Name)
	}
	for _, kv := range f.Env {
		if !strings.Contains(kv, "=") {
			return fmt.Errorf("lambdatest: function %s: Env: %q, want NAME=value", f.Name, kv)
		}
	}
	return nil
}

func (f Function) withDefaults() Function {
	if f.Timeout == 0 {
		f.Timeout = 3 * time.Second
	}
	if f.InitTimeout == 0 {
		f.InitTimeout = 10 * time.Second
	}
	if f.Concurrency == 0 {
		f.Concurrency = 100
	}
	if f.MaxEventAge == 0 {
		f.MaxEventAge = time.Minute
	}
	return f
}

// Counters tell what happened to a function since it was added.
type Counters struct {
	Invocations   int // that reached an environment
	Running       int // now, with environments that start
	MaxConcurrent int // most that ran at once
	ColdStarts    int // environments started
	Environments  int // alive now, idle ones too
	Events        int // async events taken
	Pending       int // async events that wait now
	Throttles     int // times that no environment was free, retries too
	Rejected      int // async requests refused by Faults.Reject
	Dropped       int // async events lost by Faults.Drop
	Duplicated    int // async events doubled by Faults.Duplicate
	Expired       int // async events that grew too old
	Retried       int // async events tried again after a function error
	Looped        int // invocations cut by loop detection
	Errors        int // invocations that failed, for any reason
	TimedOut      int // environments killed at their deadline
	Killed        int // environments killed by Faults.KillAfter or Kill
}

// errFunction is a failed invocation: the payload is what Lambda answers.
type errFunction struct {
	kind    string // Handled or Unhandled, for X-Amz-Function-Error
	payload []byte
}

func (e *errFunction) Error() string { return "function error: " + string(e.payload) }

// What an invoke may be refused for.
var (
	errNoFunction = errors.New("lambdatest: no such function")
	errThrottled  = errors.New("lambdatest: throttled")
	errLooped     = errors.New("lambdatest: cut by loop detection")
	errClosed     = errors.New("lambdatest: server is closed")
)
