package handler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dozequeue/doze/queue"
)

// Job is a job as its handler sees it.
type Job[T queue.Args] struct {
	queue.Job
	// Args are the decoded payload.
	Args T
}

// Func runs jobs of one kind. A nil error means that the job is done; any other
// is a failed attempt, unless it came from [Snooze] or [Discard]. The context ends
// at the job's time limit, near the drain's deadline, and when the job was taken away.
type Func[T queue.Args] func(ctx context.Context, job *Job[T]) error

// RawFunc runs jobs without decoding their payload.
type RawFunc func(ctx context.Context, job *queue.Job) error

// Middleware wraps every handler of a [Mux].
type Middleware func(next RawFunc) RawFunc

// Mux finds the handler of a kind. Its zero value is not ready; use [NewMux]. Register
// everything before the first drain.
type Mux struct {
	kinds      map[string]*kind
	middleware []Middleware
}

type kind struct {
	run     RawFunc
	timeout time.Duration // 0: the drainer's; negative: none
	backoff queue.Backoff // nil: the drainer's
	usual   atomic.Int64  // how long an attempt takes of late, in nanoseconds; 0: not known
}

// took remembers how long an attempt took, the latest ones most, and returns what is usual now.
func (k *kind) took(d time.Duration) time.Duration {
	usual := int64(d)
	if before := k.usual.Load(); before > 0 {
		usual = (3*before + usual) / 4
	}
	k.usual.Store(usual)
	return time.Duration(usual)
}

// NewMux returns a Mux without handlers.
func NewMux() *Mux { return &Mux{kinds: make(map[string]*kind)} }

// Option sets one thing for one kind.
type Option func(*kind)

// Timeout limits one attempt. Zero means the drainer's limit, a negative one none but the
// drain's deadline.
func Timeout(d time.Duration) Option { return func(k *kind) { k.timeout = d } }

// Retry sets how long failed attempts wait; nil means the drainer's backoff.
func Retry(b queue.Backoff) Option { return func(k *kind) { k.backoff = b } }

// Register registers the handler of T's kind. A payload that does not decode into T is a
// failed attempt: the next deployment may read it. It panics, as http.Handle does, if the
// kind is not a valid name or has a handler.
func Register[T queue.Args](mux *Mux, fn Func[T], opts ...Option) {
	var zero T
	mux.Handle(zero.Kind(), func(ctx context.Context, job *queue.Job) error {
		typed := Job[T]{Job: *job}
		if err := json.Unmarshal(job.Payload, &typed.Args); err != nil {
			return fmt.Errorf("decode payload: %w", withoutData(err))
		}
		return fn(ctx, &typed)
	}, opts...)
}

// withoutData keeps a payload's contents out of what is stored and logged.
func withoutData(err error) error {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		return fmt.Errorf("%s at offset %d does not fit %s", wrong.Field, wrong.Offset, wrong.Type)
	}
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return fmt.Errorf("invalid JSON at offset %d", syntax.Offset)
	}
	return err
}

// Handle registers a handler for a kind, or for all kinds with a prefix: "github.*". The
// longest match wins. It panics if the pattern is not valid or has a handler.
func (m *Mux) Handle(pattern string, run RawFunc, opts ...Option) {
	name := pattern
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		name = prefix + "x"
	}
	if err := queue.CheckKind(name); err != nil {
		panic("handler: " + err.Error())
	}
	if run == nil {
		panic("handler: nil handler for kind " + pattern)
	}
	if _, taken := m.kinds[pattern]; taken {
		panic("handler: kind " + pattern + " has a handler already")
	}
	k := &kind{run: run}
	for _, opt := range opts {
		opt(k)
	}
	m.kinds[pattern] = k
}

// Use adds middleware round every handler, the first outermost.
func (m *Mux) Use(mw ...Middleware) { m.middleware = append(m.middleware, mw...) }

// Kinds returns the patterns that have a handler.
func (m *Mux) Kinds() []string {
	var all []string
	for pattern := range m.kinds {
		all = append(all, pattern)
	}
	return all
}

// find returns the handler of a kind, nil if there is none.
func (m *Mux) find(name string) *kind {
	if k := m.kinds[name]; k != nil {
		return k
	}
	for i := len(name); i >= 0; i-- {
		if k := m.kinds[name[:i]+"*"]; k != nil {
			return k
		}
	}
	return nil
}

// wrap puts the middleware round a handler.
func (m *Mux) wrap(run RawFunc) RawFunc {
	for i := len(m.middleware) - 1; i >= 0; i-- {
		run = m.middleware[i](run)
	}
	return run
}
