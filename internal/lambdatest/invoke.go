package lambdatest

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// maxChain is where loop detection cuts: "approximately 16" invocations, see
// https://docs.aws.amazon.com/lambda/latest/dg/invocation-recursion.html.
const maxChain = 16

// invocation is one call of a function.
type invocation struct {
	id       string
	payload  []byte
	chain    int         // invocations before this one in its chain
	done     chan result // holds one
	deadline time.Time
	answer   *result // that the runtime gave; told when it asks for the next
}

type result struct {
	payload []byte
	err     *errFunction
}

func newInvocation(payload []byte, trace string) *invocation {
	return &invocation{id: newID(), payload: payload, chain: lineage(trace), done: make(chan result, 1)}
}

// trace is what the environment sees in _X_AMZN_TRACE_ID. An SDK hands it on,
// and that is how a chain is known. Lambda's own Lineage has more parts.
func (v *invocation) trace() string {
	return fmt.Sprintf("Root=1-00000000-%s;Parent=0000000000000000;Sampled=0;Lineage=%d:doze:0",
		strings.ReplaceAll(v.id, "-", "")[:24], v.chain+1)
}

// lineage reads the length of the chain out of a trace header.
func lineage(trace string) int {
	_, rest, ok := strings.Cut(trace, "Lineage=")
	if !ok {
		return 0
	}
	n, _, _ := strings.Cut(rest, ":")
	i, _ := strconv.Atoi(n)
	return max(i, 0)
}

// Invoke calls a function and waits for its answer. A failure of the function
// is an error that holds what it answered.
func (s *Server) Invoke(ctx context.Context, name string, payload []byte) ([]byte, error) {
	return s.invoke(ctx, name, payload, "")
}

// FireAndForget is an async invoke that needs no client. It returns without an error if the function was not
// added or the event is refused: its sender would not know.
func (s *Server) FireAndForget(name string, payload []byte) { _, _ = s.accept(name, payload, "") }

func (s *Server) invoke(ctx context.Context, name string, payload []byte, trace string) ([]byte, error) {
	inv := newInvocation(payload, trace)
	s.mu.Lock()
	f, err := s.find(name)
	if err == nil && f.looped(inv) {
		err = errLooped
	}
	if err == nil && !s.place(f, inv) {
		err = errThrottled
	}
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	select {
	case r := <-inv.done:
		if r.err != nil {
			return r.err.payload, r.err
		}
		return r.payload, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// find needs mu.
func (s *Server) find(name string) (*function, error) {
	if s.closed {
		return nil, errClosed
	}
	f := s.functions[name]
	if f == nil {
		return nil, fmt.Errorf("%w: %q", errNoFunction, name)
	}
	return f, nil
}

func (f *function) looped(inv *invocation) bool {
	if f.AllowLoop || inv.chain < maxChain {
		return false
	}
	f.counters.Looped++
	return true
}

// place gives inv to an idle environment or a new one, or tells that the
// function is throttled. It needs mu.
func (s *Server) place(f *function, inv *invocation) bool {
	var free *environment
	for _, e := range f.envs {
		if e.ready && e.inv == nil {
			free = e
			break
		}
	}
	if free == nil && f.counters.Running >= f.Concurrency {
		f.counters.Throttles++
		s.change()
		return false
	}
	f.counters.Running++
	f.counters.MaxConcurrent = max(f.counters.MaxConcurrent, f.counters.Running)
	if free == nil {
		free = s.start(f)
	}
	free.inv = inv
	if free.ready {
		s.begin(free)
	} else if free.failed != nil {
		s.end(free, free.failed)
	}
	s.change()
	return true
}

// settle ends the invocation of an environment that is free again or dead: the
// caller gets what the runtime answered, or else otherwise. Telling it earlier
// would let a second call find the environment busy. It needs mu.
func (s *Server) settle(e *environment, otherwise result) {
	inv := e.inv
	if inv == nil {
		return
	}
	if inv.answer == nil {
		inv.answer = &otherwise
	}
	if inv.answer.err != nil {
		e.f.counters.Errors++
	}
	e.inv = nil
	e.f.counters.Running--
	inv.done <- *inv.answer
}

func exited(how string) *errFunction {
	return &errFunction{kind: "Unhandled", payload: failure("Runtime.ExitError", "Runtime exited with error: "+how)}
}

func failure(kind, message string) []byte {
	b, _ := json.Marshal(map[string]string{"errorType": kind, "errorMessage": message})
	return b
}

func newID() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b)
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
