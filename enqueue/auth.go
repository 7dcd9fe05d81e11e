package enqueue

import (
	"errors"
	"net/http"
	"slices"
	"time"
)

// What an [Auth] may answer besides a [Caller].
var (
	// ErrUnauthorized: the request names nobody, or not well enough. 401.
	ErrUnauthorized = errors.New("no valid credentials")
	// ErrForbidden: it is known who asks, and that they may not. 403.
	ErrForbidden = errors.New("not allowed")
)

// RateError is for an [Auth] that counts: the caller must wait. 429.
type RateError struct {
	// After is how long to wait, told to the caller in whole seconds.
	After time.Duration
}

func (e *RateError) Error() string { return "too many requests; wait before the next" }

// Caller is who sent a request, and what they may do.
type Caller struct {
	// Name for logs. Never a secret.
	Name string
	// Queues and Kinds that the caller may enqueue to and see. None: all.
	Queues, Kinds []string
	// Signed is true if all that vouches for the request is a signature over its body,
	// which can be copied and sent again, to any path and with any other header. Such a caller may
	// only enqueue, and each job needs a key in the body, which is held for ten minutes
	// at least: an Auth must take no copy that is older.
	Signed bool
}

func (c *Caller) mayQueue(name string) bool {
	return len(c.Queues) == 0 || slices.Contains(c.Queues, name)
}

func (c *Caller) mayKind(kind string) bool {
	return len(c.Kinds) == 0 || slices.Contains(c.Kinds, kind)
}

// Auth finds out who sent a request. An error that is not [ErrUnauthorized],
// [ErrForbidden] or a [*RateError], perhaps wrapped, is answered with 500. The text of one that is goes
// to the caller, so it must tell them nothing of use to a stranger.
//
// An Auth that reads the body must put it back. Its length is bounded before. Any
// number of goroutines may call one.
type Auth interface {
	Authenticate(r *http.Request) (Caller, error)
}

// AuthFunc makes a function an [Auth]. Where a platform checks callers before the request
// comes here, such as AWS_IAM on a function URL, it may simply name them.
type AuthFunc func(r *http.Request) (Caller, error)

// Authenticate calls f.
func (f AuthFunc) Authenticate(r *http.Request) (Caller, error) { return f(r) }

// Any asks each of auths in turn and takes the first that knows the caller. If none does the
// answer is that of the first which did more than find no credentials. Without any auths
// nobody is let in.
func Any(auths ...Auth) Auth {
	return AuthFunc(func(r *http.Request) (Caller, error) {
		refusal := ErrUnauthorized
		for _, auth := range auths {
			caller, err := auth.Authenticate(r)
			if err == nil {
				return caller, nil
			}
			if errors.Is(refusal, ErrUnauthorized) {
				refusal = err
			}
		}
		return Caller{}, refusal
	})
}
