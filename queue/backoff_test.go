package queue_test

import (
	"math"
	"testing"
	"time"

	"github.com/dozequeue/doze/queue"
)

func TestExponential(t *testing.T) {
	usual := queue.Exponential(20*time.Second, time.Hour)
	for failures, want := range map[int]time.Duration{
		math.MinInt: 20 * time.Second, -1: 20 * time.Second, 0: 20 * time.Second,
		1: 20 * time.Second, 2: 40 * time.Second, 3: 80 * time.Second, 8: 2560 * time.Second,
		9: time.Hour, 31: time.Hour, 63: time.Hour, 64: time.Hour, 310: time.Hour, 157177: time.Hour, math.MaxInt: time.Hour,
	} {
		if got := usual(failures); got != want {
			t.Errorf("after %d failures: %v, want %v", failures, got, want)
		}
	}
	for _, c := range []struct {
		first, limit time.Duration
		failures     int
		want         time.Duration
	}{
		{time.Second, math.MaxInt64, 310, math.MaxInt64}, // no overflow on the way to the limit
		{1, math.MaxInt64, 63, 1 << 62},
		{1, math.MaxInt64, 64, math.MaxInt64},
		{math.MaxInt64, math.MaxInt64, 5, math.MaxInt64},
		{time.Hour, time.Minute, 1, time.Minute}, // never above its limit
		{0, time.Hour, 1000, 0},
		{-time.Hour, time.Hour, 3, 0}, // never below none
		{time.Second, -time.Hour, 3, 0},
	} {
		if got := queue.Exponential(c.first, c.limit)(c.failures); got != c.want {
			t.Errorf("Exponential(%v, %v)(%d) is %v, want %v", c.first, c.limit, c.failures, got, c.want)
		}
	}
}

// Jitter stays within its fraction on both sides, uses both, and never goes below none.
func TestJitter(t *testing.T) {
	for _, fraction := range []float64{-1, 0, 0.25, 1, 7} {
		b := queue.Jitter(func(int) time.Duration { return time.Hour }, fraction)
		bound := min(max(fraction, 0), 1)
		low, high := time.Hour, time.Hour
		for range 2000 {
			d := b(1)
			low, high = min(low, d), max(high, d)
		}
		if low < time.Duration(float64(time.Hour)*(1-bound)) || high > time.Duration(float64(time.Hour)*(1+bound)) || low < 0 {
			t.Errorf("fraction %v: from %v to %v", fraction, low, high)
		}
		if bound > 0 && (low > time.Duration(float64(time.Hour)*(1-bound*0.9)) || high < time.Duration(float64(time.Hour)*(1+bound*0.9))) {
			t.Errorf("fraction %v: from %v to %v, want nearly the whole range", fraction, low, high)
		}
	}
	longest := queue.Jitter(func(int) time.Duration { return math.MaxInt64 }, 1)
	for range 1000 {
		if d := longest(1); d < 0 {
			t.Fatalf("overflowed to %v", d)
		}
	}
}
