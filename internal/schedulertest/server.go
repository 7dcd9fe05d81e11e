package schedulertest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Region and Account of every schedule, those of internal/lambdatest.
const (
	Region  = "eu-central-1"
	Account = "123456789012"
)

// Options of a double. The zero value has a clock that only Advance moves.
type Options struct {
	// Groups of schedules that exist besides "default".
	Groups []string

	// Scale lets the real time run and divides every wait by it: with 60, an alarm that is set for in
	// a minute goes off in a second. Zero: time moves by [Server.Advance] only.
	Scale float64

	// Start is where the clock that Advance moves begins. Default: now.
	Start time.Time

	// Linger is the time between the end of a schedule and its automatic deletion, in which an update
	// is lost. Default 10 s; negative deletes at once. The real one is not documented.
	Linger time.Duration
}

// Invocation is one call of a schedule's target.
type Invocation struct {
	// Schedule and Group name the schedule.
	Schedule, Group string
	// TargetARN and RoleARN are what the schedule says.
	TargetARN, RoleARN string
	// Input is the payload.
	Input []byte
	// At is the time that the schedule was set for.
	At time.Time
	// Attempt counts the tries for this time, from 1.
	Attempt int
}

// Target is what schedules invoke. It returns when it has taken the event, as an asynchronous call of
// Lambda does, and an error when it has not: the event is then tried again as the schedule's retry
// policy says. It may call the [Server], but not Advance.
type Target func(ctx context.Context, i Invocation) error

// Server is the double. Make one with [New] and end it with [Server.Close].
type Server struct {
	options  Options
	target   Target
	listener net.Listener
	http     *http.Server
	context  context.Context
	cancel   context.CancelFunc

	advancing sync.Mutex // one Advance at a time

	mu        sync.Mutex
	groups    map[string]bool
	schedules map[string]*entry // by group/name
	now       time.Time         // without Scale
	puts      int               // that were accepted
	faults    Faults
	hold      chan struct{} // not nil: requests wait until it is closed
	counters  Counters
	changed   chan struct{} // closed and replaced at each change
	running   sync.WaitGroup
}

// New starts a double without schedules on a free port of 127.0.0.1.
func New(target Target, options Options) (*Server, error) {
	if target == nil {
		return nil, errors.New("schedulertest: target: nil, want the func that schedules invoke")
	}
	if options.Scale < 0 {
		return nil, fmt.Errorf("schedulertest: Scale: %v, want 0 for a clock that is moved by hand, or more", options.Scale)
	}
	if options.Linger == 0 {
		options.Linger = 10 * time.Second
	}
	if options.Start.IsZero() {
		options.Start = time.Now()
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("schedulertest: listen: %w", err)
	}
	s := &Server{
		options:   options,
		target:    target,
		listener:  l,
		groups:    map[string]bool{"default": true},
		schedules: map[string]*entry{},
		now:       options.Start,
		changed:   make(chan struct{}),
	}
	for _, g := range options.Groups {
		s.groups[g] = true
	}
	s.context, s.cancel = context.WithCancel(context.Background())
	s.http = &http.Server{Handler: s.routes(), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = s.http.Serve(l) }()
	if options.Scale > 0 {
		s.running.Go(s.run)
	}
	return s, nil
}

// URL is the endpoint of the API, for AWS_ENDPOINT_URL_SCHEDULER.
func (s *Server) URL() string { return "http://" + s.listener.Addr().String() }

// Env gives the variables that let an SDK reach the double, as "NAME=value".
func (s *Server) Env() []string {
	return []string{
		"AWS_REGION=" + Region,
		"AWS_DEFAULT_REGION=" + Region,
		"AWS_ACCESS_KEY_ID=AKIDSCHEDULERTEST",
		"AWS_SECRET_ACCESS_KEY=not-a-secret",
		"AWS_SESSION_TOKEN=not-a-token",
		"AWS_ENDPOINT_URL_SCHEDULER=" + s.URL(),
	}
}

// SetFaults replaces the faults. Their numbers count from the start, not from this call.
func (s *Server) SetFaults(f Faults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = f
}

// Hold makes every request wait, before it has any effect, until release is called. One whose caller
// gave up meanwhile may have its effect then, as with any service.
func (s *Server) Hold() (release func()) {
	held := make(chan struct{})
	s.mu.Lock()
	s.hold = held
	s.mu.Unlock()
	return sync.OnceFunc(func() {
		s.mu.Lock()
		if s.hold == held {
			s.hold = nil
		}
		s.mu.Unlock()
		close(held)
	})
}

// Counters of what happened so far.
func (s *Server) Counters() Counters {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counters
}

// Schedules that there are, by group and name, those that wait for their deletion too.
func (s *Server) Schedules() []Schedule {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]Schedule, 0, len(s.schedules))
	for _, e := range slices.SortedFunc(maps.Values(s.schedules), func(a, b *entry) int { return strings.Compare(a.key(), b.key()) }) {
		all = append(all, e.snapshot())
	}
	return all
}

// WaitFor returns when the counters satisfy ok, or with the error of ctx. It looks at each change; ok
// must not call the server.
func (s *Server) WaitFor(ctx context.Context, ok func(Counters) bool) error {
	for {
		s.mu.Lock()
		done, changed := ok(s.counters), s.changed
		s.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("schedulertest: wait for counters: %w", ctx.Err())
		}
	}
}

// change tells those who wait. Call it with mu held.
func (s *Server) change() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Close ends the double: the contexts of targets that run end, and it waits for them.
func (s *Server) Close() error {
	s.cancel()
	err := s.http.Close()
	s.running.Wait()
	return err
}
