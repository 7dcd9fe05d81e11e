package handler

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dozequeue/doze/queue"
)

type attemptKey struct{}

// attempt is one run of one job.
type attempt struct {
	job   *queue.Claimed
	kind  *kind
	store *queue.Store

	ctx    context.Context
	cancel context.CancelCauseFunc

	began      time.Time
	took       time.Duration
	skipped    bool        // its context had ended before its turn came: the handler was not called
	hadItsTurn bool        // had most of the drain's life
	completed  atomic.Bool // by CompleteTx, whose transaction may still be open
	settled    atomic.Bool // its end is reported, or was given up on
	stuck      bool        // it did not return
	err        error
}

// errGoexit is what an attempt that ended its goroutine failed with.
var errGoexit = errors.New("the handler ended its goroutine (runtime.Goexit)")

// PanicError is a handler's panic, as middleware and failure hooks see it.
type PanicError struct {
	// Value that was passed to panic.
	Value any
	// Stack of the goroutine.
	Stack string
}

func (e *PanicError) Error() string {
	stack := e.Stack
	if len(stack) > 4096 {
		stack = stack[:4096]
	}
	return fmt.Sprintf("panic: %v\n\n%s", e.Value, stack)
}

// call runs a handler in its middleware, and makes whatever happens in them an error.
func (c *crew) call(ctx context.Context, run RawFunc, job *queue.Job) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: string(debug.Stack())}
		}
	}()
	return c.wrap(run)(ctx, job)
}

// crew runs attempts, so many at a time, and hands each back on results.
type crew struct {
	// ctx is that of all handlers. It ends when the time is up, whatever the drain's goroutine does:
	// that may wait for a connection that only a handler can give back.
	ctx     context.Context
	size    int
	grace   time.Duration // for a handler whose context has ended
	limit   time.Duration // for a kind without one; 0: none
	wrap    func(RawFunc) RawFunc
	results chan *attempt

	mu      sync.Mutex
	waiting []*attempt
	active  int
	running map[*attempt]struct{}
}

// add gives the crew attempts to run, in order.
func (c *crew) add(attempts []*attempt) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = append(c.waiting, attempts...)
	for i := min(len(c.waiting), c.size-c.active); i > 0; i-- {
		c.active++
		go c.member()
	}
}

// member runs attempts until none is waiting.
func (c *crew) member() {
	defer func() { // also if the handler ends the goroutine
		c.mu.Lock()
		defer c.mu.Unlock()
		c.active--
		if len(c.waiting) > 0 && c.active < c.size {
			c.active++
			go c.member()
		}
	}()
	for {
		c.mu.Lock()
		if len(c.waiting) == 0 {
			c.mu.Unlock()
			return
		}
		a := c.waiting[0]
		c.waiting[0] = nil
		c.waiting = c.waiting[1:]
		a.began = time.Now()
		c.running[a] = struct{}{}
		c.mu.Unlock()
		c.run(a)
	}
}

func (c *crew) run(a *attempt) {
	limit := a.kind.timeout
	if limit == 0 {
		limit = c.limit
	}
	ended := false
	if limit > 0 {
		defer time.AfterFunc(limit, func() { a.cancel(ErrTimeout) }).Stop()
		defer time.AfterFunc(limit+c.grace, func() { c.abandon(a) }).Stop()
	}
	defer func() {
		if !ended {
			a.err = errGoexit
		}
		c.settle(a)
	}()
	if c.ctx.Err() != nil || a.ctx.Err() != nil { // it was taken away, or the time ran out, while it waited
		a.skipped, a.err, ended = true, ErrTimeUp, true
		return
	}
	job := a.job.Job
	err := c.call(context.WithValue(a.ctx, attemptKey{}, a), a.kind.run, &job)
	if err != nil && errors.Is(context.Cause(a.ctx), ErrTimeout) {
		err = fmt.Errorf("%w (%v): %w", ErrTimeout, limit, err)
	}
	a.err, ended = err, true
}

// settle reports an attempt's end, unless it was given up on before.
func (c *crew) settle(a *attempt) {
	if a.settled.CompareAndSwap(false, true) {
		a.took = time.Since(a.began)
		c.report(a)
	}
}

// abandon reports an attempt that ignores the end of its context. Its goroutine lives
// on, and what it returns is not looked at.
func (c *crew) abandon(a *attempt) {
	if a.settled.CompareAndSwap(false, true) {
		a.stuck, a.took = true, time.Since(a.began)
		c.report(a)
	}
}

func (c *crew) report(a *attempt) {
	c.mu.Lock()
	delete(c.running, a)
	c.mu.Unlock()
	c.results <- a
}

// end ends the contexts of all attempts, begun or not. Any goroutine may call it, so it works
// while the drain's own waits for the database.
func (c *crew) end(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for a := range c.running {
		a.cancel(cause)
	}
	for _, a := range c.waiting {
		a.cancel(cause)
	}
}

// withdraw takes back what was not begun.
func (c *crew) withdraw() []*attempt {
	c.mu.Lock()
	defer c.mu.Unlock()
	waiting := c.waiting
	c.waiting = nil
	return waiting
}

// begun are the attempts that run now.
func (c *crew) begun() []*attempt {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]*attempt, 0, len(c.running))
	for a := range c.running {
		all = append(all, a)
	}
	return all
}
