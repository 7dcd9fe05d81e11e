package main

import (
	"fmt"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/dozequeue/doze/internal/sleepy"
)

// ledger notes what happened, as the program that uses the queue sees it.
type ledger struct {
	retry time.Duration // after a failure

	mu      sync.Mutex
	work    []time.Time // what any queue must touch the database for
	busy    []interval  // from when something was due until it had run
	due     map[int]time.Time
	delay   map[int]time.Duration
	killed  map[int]bool
	done    map[string]bool
	ticks   map[string]every
	began   time.Time // ticks that are due before or after do not count
	end     time.Time
	again   int // runs of what had run
	early   int
	latest  time.Duration
	trouble map[string]int // what the queue complains of
}

type interval struct{ from, to time.Time }

func newLedger(jobs []job, retry time.Duration, ticks map[string]every) *ledger {
	l := &ledger{
		retry: retry, ticks: ticks, due: map[int]time.Time{}, delay: map[int]time.Duration{}, killed: map[int]bool{}, done: map[string]bool{}, trouble: map[string]int{},
	}
	for _, j := range jobs {
		l.delay[j.ID], l.killed[j.ID] = j.Delay, j.Killed
	}
	return l
}

// adding notes that the program is about to add a job.
func (l *ledger) adding(id int, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.work = append(l.work, at)
	l.busy = append(l.busy, interval{at, at})
	l.due[id] = at.Add(l.delay[id])
}

// failed notes that the first attempt of a job ended.
func (l *ledger) failed(id int, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.saw(l.due[id], at)
	l.due[id] = at.Add(l.retry)
}

// ran notes that a job's handler ran.
func (l *ledger) ran(id int, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.once(fmt.Sprint(id), l.due[id], at, l.killed[id])
}

// ticked notes that the job of a schedule ran.
func (l *ledger) ticked(name string, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if due := l.ticks[name].last(at); !due.Before(l.began) && due.Before(l.end) {
		l.once(fmt.Sprint(name, due.Unix()), due, at, false)
	}
}

var millis = regexp.MustCompile(`\d+ ?ms`)

// complain notes what the queue reports of the database.
func (l *ledger) complain(text string) {
	text = millis.ReplaceAllString(text, "… ms") // they are jittered, and the reports are counted
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trouble[text]++
}

func (l *ledger) once(key string, due, at time.Time, killed bool) {
	if l.done[key] {
		l.again++
	}
	l.done[key] = true
	if killed { // it was due when the lease of the drain that vanished ended
		l.work = append(l.work, at)
		l.busy = append(l.busy, interval{due, at})
		return
	}
	l.saw(due, at)
}

func (l *ledger) saw(due, at time.Time) {
	l.work = append(l.work, at)
	if at.Before(due) {
		l.early++
		l.busy = append(l.busy, interval{at, at})
		return
	}
	l.busy = append(l.busy, interval{due, at})
	l.latest = max(l.latest, at.Sub(due))
}

func (l *ledger) doneSoFar() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.done)
}

// union merges intervals, with what follows each added, within [from, to].
func union(all []interval, after time.Duration, from, to time.Time) (merged []interval) {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b interval) int { return a.from.Compare(b.from) })
	for _, i := range all {
		i.to = i.to.Add(after)
		if i.from.Before(from) {
			i.from = from
		}
		if i.to.After(to) {
			i.to = to
		}
		if !i.from.Before(i.to) {
			continue
		}
		if n := len(merged); n > 0 && !i.from.After(merged[n-1].to) {
			if i.to.After(merged[n-1].to) {
				merged[n-1].to = i.to
			}
			continue
		}
		merged = append(merged, i)
	}
	return merged
}

func length(all []interval) (sum time.Duration) {
	for _, i := range all {
		sum += i.to.Sub(i.from)
	}
	return sum
}

// ideal is the union of [work, work+timeout] within the trace.
func (l *ledger) ideal(timeout time.Duration, from, to time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []interval
	for _, t := range l.work {
		all = append(all, interval{t, t})
	}
	return length(union(all, timeout, from, to))
}

// quiet are the stretches of the trace in which nothing is due, and nothing has run for the timeout.
func (l *ledger) quiet(timeout time.Duration, from, to time.Time) (stretches []interval) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := from
	for _, i := range union(l.busy, timeout, from, to) {
		if last.Before(i.from) {
			stretches = append(stretches, interval{last, i.from})
		}
		last = i.to
	}
	if last.Before(to) {
		stretches = append(stretches, interval{last, to})
	}
	return stretches
}

// sample is what the proxy had counted at a time.
type sample struct {
	at              time.Time
	messages, wakes int
}

// sampler looks at the proxy, which does not wake it, until it is stopped.
func sampler(p *sleepy.Proxy) (stop func() []sample) {
	var all []sample
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			before := time.Now()
			s := p.Status()
			all = append(all, sample{before, s.Messages, s.Wakes})
			select {
			case <-end:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	return func() []sample {
		close(end)
		<-ended
		return all
	}
}

// within are the samples that lie in one of the stretches with the one before, and counts what happened meanwhile.
func within(all []sample, stretches []interval) (happened []sample) {
	for i := 1; i < len(all); i++ {
		a, b := all[i-1], all[i]
		if a.messages == b.messages && a.wakes == b.wakes {
			continue
		}
		for _, s := range stretches {
			if !a.at.Before(s.from) && !b.at.After(s.to) {
				happened = append(happened, sample{b.at, b.messages - a.messages, b.wakes - a.wakes})
			}
		}
	}
	return happened
}
