package lambdatest

import (
	"hash/fnv"
	"slices"
	"strconv"
	"time"
)

// Nth is true for these numbers.
func Nth(numbers ...int) func(int) bool {
	return func(n int) bool { return slices.Contains(numbers, n) }
}

// Fraction is true for about this part of the numbers, 0 to 1. It depends on
// the seed and the number only, so a run can be repeated.
func Fraction(part float64, seed uint64) func(int) bool {
	return func(n int) bool {
		h := fnv.New64a()
		_, _ = h.Write([]byte(strconv.FormatUint(seed, 10) + "/" + strconv.Itoa(n)))
		x := h.Sum64()
		// FNV's high bits hardly move for short texts; mix before use.
		x ^= x >> 33
		x *= 0xff51afd7ed558ccd
		x ^= x >> 33
		return float64(x>>11)/(1<<53) < part
	}
}

// When gives d for the numbers that ok is true for, and zero for others.
func When(ok func(int) bool, d time.Duration) func(int) time.Duration {
	return func(n int) time.Duration {
		if ok(n) {
			return d
		}
		return 0
	}
}
