package queue

import (
	"math"
	"math/rand/v2"
	"time"
)

// Backoff is how long a job waits before it runs again, given how many
// attempts have failed so far (1 or more).
type Backoff func(failures int) time.Duration

// Exponential doubles from first for each failure up to limit. The default
// of a drain is Exponential(20*time.Second, time.Hour). It returns at least 0 and
// at most limit for any number of failures.
func Exponential(first, limit time.Duration) Backoff {
	return func(failures int) time.Duration {
		d := min(first, limit)
		for i := 1; i < failures && d < limit; i++ {
			if d > limit/2 {
				return limit // doubling might overflow
			}
			d *= 2
		}
		return max(d, 0)
	}
}

// Jitter spreads what b returns by up to the given fraction (0 to 1) of it in both
// directions, so that jobs that failed together do not come back together.
func Jitter(b Backoff, fraction float64) Backoff {
	fraction = min(max(fraction, 0), 1)
	return func(failures int) time.Duration {
		d := b(failures)
		spread := float64(d) * fraction * (2*rand.Float64() - 1)
		if spread >= float64(math.MaxInt64-d) {
			return math.MaxInt64
		}
		return d + time.Duration(spread)
	}
}
