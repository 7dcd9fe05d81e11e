package trigger

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

// maxTries bounds how often one wake is sent to a receiver that says it is busy.
const maxTries = 3

// maxPause bounds one wait between tries: the enqueuer that fires is waiting
// too, and a sweep covers a wake that is given up.
const maxPause = 5 * time.Second

// refusal is an answer other than 2xx.
type refusal struct {
	status int
	after  time.Duration // from Retry-After, or zero
}

func (r *refusal) Error() string {
	switch r.status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Sprintf("answer %d, want 2xx: check that both sides have the same secret and the right time", r.status)
	case http.StatusNotFound:
		return fmt.Sprintf("answer %d, want 2xx: check the path of the URL", r.status)
	}
	return fmt.Sprintf("answer %d, want 2xx", r.status)
}

// again tells whether the receiver asked for a later try.
func (r *refusal) again() bool {
	return r.status == http.StatusTooManyRequests || r.status == http.StatusServiceUnavailable
}

// verdict reads an answer. Redirects are refused too.
func verdict(resp *http.Response) error {
	if resp.StatusCode/100 == 2 {
		return nil
	}
	r := &refusal{status: resp.StatusCode}
	if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && s > 0 {
		r.after = time.Duration(min(s, 3600)) * time.Second
	}
	return r
}

// pause waits before the next try and tells whether there is one. It does not
// start a wait that ctx would cut off. The jitter keeps a burst of enqueuers
// that were refused together from coming back together.
func pause(ctx context.Context, try int, atLeast time.Duration) bool {
	base := 100 * time.Millisecond << (try - 1)
	d := max(base/2+rand.N(base), atLeast)
	if d > maxPause {
		return false
	}
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= d {
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
