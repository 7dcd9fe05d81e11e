package main

import (
	"math/rand/v2"
	"slices"
	"time"
)

// retryAfter is how long after its first attempt a job that fails once is tried again.
const retryAfter = 12 * time.Second

// job is one of the trace's, added at a time since its beginning.
type job struct {
	ID     int
	At     time.Duration
	Delay  time.Duration
	Once   bool // its first attempt fails
	Killed bool // a drain claims it and vanishes
}

// trace is a day's, compressed: 200 arrivals in bursts, 40 jobs for later, 20 that fail once, and 3 drains that vanish.
func trace(seed uint64, length time.Duration) []job {
	random := rand.New(rand.NewPCG(seed, 0))
	within := func() time.Duration { return time.Duration(random.Int64N(int64(length - 40*time.Second))) }
	var bursts [12]time.Duration
	for i := range bursts {
		bursts[i] = within()
	}
	var all []job
	for i := range 200 {
		all = append(all, job{At: bursts[i%len(bursts)] + time.Duration(random.Int64N(int64(2*time.Second)))})
	}
	for range 40 {
		all = append(all, job{At: within(), Delay: time.Duration(1+random.IntN(30)) * time.Second})
	}
	for range 20 {
		all = append(all, job{At: within(), Once: true})
	}
	for range 3 {
		all = append(all, job{At: within(), Killed: true})
	}
	slices.SortStableFunc(all, func(a, b job) int { return int(a.At - b.At) })
	for i := range all {
		all[i].ID = i + 1
	}
	return all
}

// every is a schedule: each period, at an offset into it.
type every struct{ period, offset time.Duration }

// Next is the first time after t.
func (e every) Next(t time.Time) time.Time {
	return t.Add(-e.offset).Truncate(e.period).Add(e.period + e.offset)
}

// last is the last time that is not after t.
func (e every) last(t time.Time) time.Time { return t.Add(-e.offset).Truncate(e.period).Add(e.offset) }

// times counts those in [from, to).
func (e every) times(from, to time.Time) (n int) {
	for t := e.Next(from.Add(-1)); t.Before(to); t = e.Next(t) {
		n++
	}
	return n
}
