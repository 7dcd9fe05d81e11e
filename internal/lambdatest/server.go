package lambdatest

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// Region and Account of every function.
const (
	Region  = "eu-central-1"
	Account = "123456789012"
)

// Server is the double. Make one with [New] and end it with [Server.Close].
type Server struct {
	listener net.Listener
	http     *http.Server
	fronts   []*http.Server

	mu        sync.Mutex
	functions map[string]*function
	envs      map[string]*environment
	changed   chan struct{} // closed and replaced at each change
	closed    bool
	running   sync.WaitGroup // processes and handlers
}

// function is the state of one Function. Server.mu guards it.
type function struct {
	Function
	envs     []*environment
	counters Counters
	requests int // async, for Faults.Reject
}

// New starts a double without functions on a free port of 127.0.0.1.
func New() (*Server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("lambdatest: listen: %w", err)
	}
	s := &Server{
		listener:  l,
		functions: map[string]*function{},
		envs:      map[string]*environment{},
		changed:   make(chan struct{}),
	}
	s.http = &http.Server{Handler: s.routes(), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = s.http.Serve(l) }()
	return s, nil
}

// URL is the endpoint of the Lambda API, for AWS_ENDPOINT_URL_LAMBDA.
func (s *Server) URL() string { return "http://" + s.listener.Addr().String() }

// Env gives the variables that let an SDK reach the double, as "NAME=value".
// Functions have them already.
func (s *Server) Env() []string {
	return []string{
		"AWS_REGION=" + Region,
		"AWS_DEFAULT_REGION=" + Region,
		"AWS_ACCESS_KEY_ID=AKIDLAMBDATEST",
		"AWS_SECRET_ACCESS_KEY=not-a-secret",
		"AWS_SESSION_TOKEN=not-a-token",
		"AWS_ENDPOINT_URL_LAMBDA=" + s.URL(),
	}
}

// Add makes a function known. A name can be used once.
func (s *Server) Add(f Function) error {
	if err := f.check(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.functions[f.Name] != nil {
		return fmt.Errorf("lambdatest: function %s: added before, want another name", f.Name)
	}
	if f.Log != nil {
		f.Log = &lockedWriter{w: f.Log}
	}
	s.functions[f.Name] = &function{Function: f.withDefaults()}
	return nil
}

// SetFaults replaces the faults of a function that was added. Their numbers
// count from the function's start, not from this call.
func (s *Server) SetFaults(name string, faults Faults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.functions[name]; f != nil {
		f.Faults = faults
	}
}

// Counters of a function; zero for one that was not added.
func (s *Server) Counters(name string) Counters {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.functions[name]
	if f == nil {
		return Counters{}
	}
	return f.snapshot()
}

func (f *function) snapshot() Counters {
	c := f.counters
	c.Environments = len(f.envs)
	return c
}

// WaitIdle returns when no invocation runs and no async event waits, or with
// the error of ctx. An event that was dropped does not wait.
func (s *Server) WaitIdle(ctx context.Context) error {
	return s.wait(ctx, "idle", func() bool {
		for _, f := range s.functions {
			if f.counters.Running > 0 || f.counters.Pending > 0 {
				return false
			}
		}
		return true
	})
}

// WaitFor returns when the counters of a function satisfy ok, or with the error
// of ctx. It looks at each change; ok must not call the server.
func (s *Server) WaitFor(ctx context.Context, name string, ok func(Counters) bool) error {
	return s.wait(ctx, "counters of "+name, func() bool {
		f := s.functions[name]
		return f != nil && ok(f.snapshot())
	})
}

func (s *Server) wait(ctx context.Context, what string, ok func() bool) error {
	for {
		s.mu.Lock()
		done, changed := ok(), s.changed
		s.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("lambdatest: wait for %s: %w", what, ctx.Err())
		}
	}
}

// change tells those who wait. Call it with mu held.
func (s *Server) change() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Kill ends environments of a function with SIGKILL, those that run first, and
// tells how many: at most n, or all for a negative n. Their invocations fail.
func (s *Server) Kill(name string, n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.functions[name]
	if f == nil {
		return 0
	}
	var victims []*environment
	for _, busy := range []bool{true, false} {
		for _, e := range f.envs {
			if (e.inv != nil) == busy {
				victims = append(victims, e)
			}
		}
	}
	if n >= 0 && n < len(victims) {
		victims = victims[:n]
	}
	for _, e := range victims {
		f.counters.Killed++
		s.end(e, exited("signal: killed"))
	}
	return len(victims)
}

// Retire ends the idle environments of a function, as Lambda does after some
// quiet minutes, and tells how many: the next invocation is a cold start.
func (s *Server) Retire(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.functions[name]
	if f == nil {
		return 0
	}
	n := 0
	for _, e := range append([]*environment(nil), f.envs...) {
		if e.inv == nil && e.ready {
			s.end(e, nil)
			n++
		}
	}
	return n
}

// Close kills every environment, forgets the events that wait, and returns when
// all processes are gone. Handlers in this process have their context ended and
// are waited for.
func (s *Server) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	for _, e := range s.envs {
		s.end(e, exited("signal: killed"))
	}
	fronts := s.fronts
	s.change()
	s.mu.Unlock()
	for _, h := range fronts {
		_ = h.Close()
	}
	s.running.Wait()
	return s.http.Close()
}

// lockedWriter lets several environments write to one log.
type lockedWriter struct {
	mu sync.Mutex
	w  interface{ Write([]byte) (int, error) }
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}
