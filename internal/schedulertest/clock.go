package schedulertest

import (
	"time"
)

// firstRetry is the wait before the first retry of a failed invocation; it doubles from there.
const firstRetry = 5 * time.Second

// entry is a schedule and what will happen to it. Server.mu guards it.
type entry struct {
	Schedule
	number   int       // of the put that set the time, for Faults
	attempt  int       // that failed so far
	fireAt   time.Time // zero: it does not go off
	deleteAt time.Time // zero: it is not deleted
}

func (e *entry) key() string { return e.GroupName + "/" + e.Name }

func (e *entry) snapshot() Schedule {
	d := e.Schedule
	d.Ending = !e.deleteAt.IsZero()
	return d
}

// Now is the time on the double's clock.
func (s *Server) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.time()
}

// time needs mu.
func (s *Server) time() time.Time {
	if s.options.Scale > 0 {
		return time.Now()
	}
	return s.now
}

// in is the time after d, which Scale shortens. It needs mu.
func (s *Server) in(d time.Duration) time.Time {
	if s.options.Scale > 0 {
		d = time.Duration(float64(d) / s.options.Scale)
	}
	return s.time().Add(d)
}

// Advance moves the clock on by d, and on its way lets go off what is due, in order. It returns when
// the targets have returned. Schedules that these make are part of it. It panics with Scale.
func (s *Server) Advance(d time.Duration) {
	if s.options.Scale > 0 {
		panic("schedulertest: Advance of a clock that runs by itself: leave Scale zero")
	}
	s.advancing.Lock()
	defer s.advancing.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	end := s.now.Add(d)
	for {
		e, at := s.next()
		if e == nil || at.After(end) {
			break
		}
		if at.After(s.now) {
			s.now = at
		}
		if invoke := s.step(e); invoke != nil {
			s.mu.Unlock()
			invoke()
			s.mu.Lock()
		}
	}
	s.now = end
	s.change()
}

// run is the clock with Scale.
func (s *Server) run() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.context.Err() == nil {
		e, at := s.next()
		wait := time.Hour
		if e != nil {
			wait = time.Until(at)
		}
		if wait <= 0 {
			if invoke := s.step(e); invoke != nil {
				s.running.Go(invoke)
			}
			continue
		}
		changed := s.changed
		s.mu.Unlock()
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-changed:
		case <-s.context.Done():
		}
		timer.Stop()
		s.mu.Lock()
	}
}

// next is the schedule to which something happens first, and when. It needs mu.
func (s *Server) next() (first *entry, at time.Time) {
	for _, e := range s.schedules {
		for _, t := range []time.Time{e.fireAt, e.deleteAt} {
			if t.IsZero() || first != nil && (t.After(at) || t.Equal(at) && e.number >= first.number) {
				continue
			}
			first, at = e, t
		}
	}
	return first, at
}

// step does what is first for e, and returns the invocation to make without mu, if there is one.
func (s *Server) step(e *entry) (invoke func()) {
	defer s.change()
	if e.fireAt.IsZero() || !e.deleteAt.IsZero() && e.deleteAt.Before(e.fireAt) {
		s.counters.Completed++
		if !e.fireAt.IsZero() {
			s.counters.Lost++
		}
		delete(s.schedules, e.key())
		return nil
	}
	e.fireAt = time.Time{}
	e.attempt++
	if f := s.faults.Drop; f != nil && f(e.number) {
		s.counters.Dropped++
		s.complete(e, e.ActionAfterCompletion)
		return nil
	}
	copies := 1
	if f := s.faults.Duplicate; f != nil && f(e.number) {
		s.counters.Duplicated++
		copies = 2
	}
	failed := s.faults.Fail != nil && s.faults.Fail(e.number, e.attempt)
	fired := *e // an update may change e while the target runs
	return func() {
		for range copies {
			s.invoke(e, fired, failed)
		}
	}
}

// invoke calls the target for what e was when it went off.
func (s *Server) invoke(e *entry, fired entry, failed bool) {
	if !failed {
		failed = s.target(s.context, Invocation{
			Schedule: fired.Name, Group: fired.GroupName,
			TargetARN: fired.Target.Arn, RoleARN: fired.Target.RoleArn, Input: []byte(fired.Target.Input),
			At: fired.At, Attempt: fired.attempt,
		}) != nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.change()
	if !failed {
		s.counters.Invoked++
		s.complete(e, fired.ActionAfterCompletion)
		return
	}
	s.counters.Failed++
	if e.number != fired.number {
		return
	}
	most, age := fired.retries()
	next := s.in(firstRetry << min(fired.attempt-1, 12))
	if fired.attempt > most || s.options.Scale == 0 && next.After(fired.At.Add(age)) {
		s.counters.Abandoned++
		s.complete(e, fired.ActionAfterCompletion)
		return
	}
	e.fireAt = next
}

// complete arranges the deletion of a schedule that went off. It needs mu.
func (s *Server) complete(e *entry, action string) {
	if action != "DELETE" || s.schedules[e.key()] != e || !e.deleteAt.IsZero() {
		return
	}
	e.deleteAt = s.in(max(s.options.Linger, 0))
}
