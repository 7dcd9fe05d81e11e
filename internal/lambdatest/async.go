package lambdatest

import (
	"math/rand/v2"
	"time"
)

// A throttled event is tried again after firstRetry, then twice that, up to
// lastRetry. Lambda's own are 1 s and 5 min.
const (
	firstRetry = 10 * time.Millisecond
	lastRetry  = 200 * time.Millisecond
)

// event is an async invoke that waits for an environment.
type event struct {
	payload  []byte
	trace    string
	deadline time.Time // after this it is dropped
	backoff  time.Duration
	retries  int // that are left after a function error
}

// accept takes an async invoke, or tells the HTTP status to refuse it with.
func (s *Server) accept(name string, payload []byte, trace string) (refuse int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, err := s.find(name)
	if err != nil {
		return 0, err
	}
	defer s.change()
	f.requests++
	if f.Faults.Reject != nil {
		if status := f.Faults.Reject(f.requests); status != 0 {
			f.counters.Rejected++
			return status, nil
		}
	}
	f.counters.Events++
	n := f.counters.Events
	if f.Faults.Drop != nil && f.Faults.Drop(n) {
		f.counters.Dropped++
		return 0, nil
	}
	copies := 1
	if f.Faults.Duplicate != nil && f.Faults.Duplicate(n) {
		f.counters.Duplicated++
		copies = 2
	}
	var delay time.Duration
	if f.Faults.Delay != nil {
		delay = f.Faults.Delay(n)
	}
	for range copies {
		f.counters.Pending++
		e := &event{
			payload: payload, trace: trace,
			deadline: time.Now().Add(delay + f.MaxEventAge),
			backoff:  firstRetry,
			retries:  f.Retries,
		}
		if delay > 0 {
			s.later(f, e, delay)
		} else {
			s.deliver(f, e)
		}
	}
	return 0, nil
}

func (s *Server) later(f *function, e *event, after time.Duration) {
	time.AfterFunc(after, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.closed {
			s.deliver(f, e)
			s.change()
		}
	})
}

// deliver tries to start an event that is pending. It needs mu.
func (s *Server) deliver(f *function, e *event) {
	if time.Now().After(e.deadline) {
		f.counters.Pending--
		f.counters.Expired++
		return
	}
	inv := newInvocation(e.payload, e.trace)
	if f.looped(inv) {
		f.counters.Pending--
		return
	}
	if !s.place(f, inv) {
		wait := e.backoff/2 + rand.N(e.backoff/2)
		e.backoff = min(2*e.backoff, lastRetry)
		s.later(f, e, wait)
		return
	}
	f.counters.Pending--
	if e.retries == 0 {
		return
	}
	// It is pending again before the environment is idle, as finish puts the
	// result into done first.
	s.running.Add(1)
	f.counters.Pending++
	go func() {
		defer s.running.Done()
		r := <-inv.done
		s.mu.Lock()
		defer s.mu.Unlock()
		if r.err == nil || s.closed {
			f.counters.Pending--
		} else {
			f.counters.Retried++
			e.retries--
			e.backoff = firstRetry
			s.later(f, e, firstRetry)
		}
		s.change()
	}()
}
