package main

import (
	"slices"
	"testing"
	"time"
)

var zero = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func sec(n float64) time.Time { return zero.Add(time.Duration(n * float64(time.Second))) }

func TestIdealIsTheUnionWithinTheTrace(t *testing.T) {
	l := newLedger(nil, 0, nil)
	l.work = []time.Time{sec(10), sec(-1), sec(11), sec(29), sec(40)}
	if got := l.ideal(3*time.Second, sec(0), sec(30)); got != 7*time.Second { // 0-2, 10-14, 29-30
		t.Errorf("%v, want 7s", got)
	}
}

func TestNothingIsDueBetweenARunsTimeoutAndTheNextDueTime(t *testing.T) {
	l := newLedger([]job{{ID: 1, Delay: 10 * time.Second}, {ID: 2, Once: true}}, 5*time.Second, nil)
	l.adding(1, sec(1))
	l.ran(1, sec(12)) // a second late
	l.adding(2, sec(20))
	l.failed(2, sec(20))
	l.ran(2, sec(24)) // early
	want := []interval{{sec(0), sec(1)}, {sec(4), sec(11)}, {sec(15), sec(20)}, {sec(23), sec(24)}, {sec(27), sec(30)}}
	if got := l.quiet(3*time.Second, sec(0), sec(30)); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if l.early != 1 || l.latest != time.Second {
		t.Errorf("%d early, the latest %v late; want 1 and 1s", l.early, l.latest)
	}
	samples := []sample{{sec(0.5), 1, 0}, {sec(1.5), 5, 1}, {sec(5), 6, 1}, {sec(6), 8, 2}, {sec(10), 8, 3}}
	if got := within(samples, want); !slices.Equal(got, []sample{{sec(6), 2, 1}, {sec(10), 0, 1}}) {
		t.Errorf("%v", got)
	}
}

func TestASchedulesTimes(t *testing.T) {
	e := every{2 * time.Minute, 15 * time.Second}
	if got := e.Next(sec(15)); got != sec(135) {
		t.Errorf("after a tick %v", got)
	}
	if got := e.last(sec(14)); got != sec(-105) {
		t.Errorf("before a tick %v", got)
	}
	if got := e.times(sec(15), sec(135)); got != 1 {
		t.Errorf("%d ticks, want 1", got)
	}
}

func TestTheTraceIsTheSameEachTime(t *testing.T) {
	a, b := trace(1, 5*time.Minute), trace(1, 5*time.Minute)
	if !slices.Equal(a, b) || len(a) != 263 {
		t.Errorf("%d and %d jobs", len(a), len(b))
	}
	for _, j := range a {
		if j.At+j.Delay > 5*time.Minute-8*time.Second {
			t.Errorf("%+v is due after the end", j)
		}
	}
}
