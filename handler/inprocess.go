package handler

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dozequeue/doze/queue"
)

// InProcess drains in goroutines of this process: a [queue.Trigger] and a [queue.Alarm] for
// development, tests and servers that stay up. Do not use it where the process freezes or ends
// after a request.
type InProcess struct {
	d     *Drainer
	drain func(context.Context, queue.Wake) (Drained, error) // d.Drain
	limit time.Duration

	firstRetry time.Duration

	ctx    context.Context
	cancel context.CancelFunc

	mu      sync.Mutex
	idle    sync.Cond
	active  int
	starts  int
	most    int
	alarms  map[string]*time.Timer // by id
	retries map[string]*retry      // by queue
	closed  bool
}

// retry is how a queue whose drain failed is looked after: nobody else may come.
type retry struct {
	wait  time.Duration
	timer *time.Timer // nil while none is set
}

// NewInProcess returns a trigger that drains with d. Each drain has the given time and then
// hands over; zero means five minutes. The drainer's own Config.Trigger may be this
// value: see [InProcess.Bind].
func NewInProcess(d *Drainer, limit time.Duration) *InProcess {
	if limit == 0 {
		limit = 5 * time.Minute
	}
	p := &InProcess{d: d, drain: d.Drain, limit: limit, firstRetry: time.Second, alarms: make(map[string]*time.Timer), retries: make(map[string]*retry)}
	p.idle.L = &p.mu
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// Bind makes p the trigger and alarm of its own drainer, so that drains here start further
// ones here. Call it before the first drain.
func (p *InProcess) Bind() *InProcess {
	p.d.cfg.Trigger, p.d.cfg.Alarm = p, p
	return p
}

var errClosed = errors.New("handler: this process ends")

// Fire starts a drain and returns. A drain that fails, as when the database cannot be reached, is
// started again later: after a second, then ever more rarely, at least once a minute. Fire returns an
// error for a name that cannot name a queue, after [InProcess.Close], and [ErrTainted] if
// a handler of this process did not return.
func (p *InProcess) Fire(_ context.Context, wake queue.Wake) error {
	if err := queue.CheckQueue(wake.Queue); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.ready(); err != nil {
		return err
	}
	p.start(wake)
	return nil
}

// ready says why no drain can be started.
func (p *InProcess) ready() error {
	switch {
	case p.closed:
		return errClosed
	case p.d.Tainted():
		return ErrTainted
	}
	return nil
}

func (p *InProcess) start(wake queue.Wake) {
	p.active++
	p.starts++
	p.most = max(p.most, p.active)
	go func() {
		ctx, cancel := context.WithTimeout(p.ctx, p.limit)
		defer cancel()
		_, err := p.drain(ctx, wake) // it logs
		p.mu.Lock()
		defer p.mu.Unlock()
		p.ended(wake, err)
		p.active--
		if p.active == 0 {
			p.idle.Broadcast()
		}
	}()
}

// ended sees to it that a queue whose drain failed is drained later.
func (p *InProcess) ended(wake queue.Wake, err error) {
	r := p.retries[wake.Queue]
	switch {
	case err == nil:
		if r != nil && r.timer == nil {
			delete(p.retries, wake.Queue)
		}
		return
	case p.ready() != nil:
		return
	case r == nil:
		r = &retry{wait: p.firstRetry}
		p.retries[wake.Queue] = r
	case r.timer != nil: // one is on its way
		return
	}
	r.timer = time.AfterFunc(r.wait, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		r.timer = nil
		if p.ready() == nil {
			p.start(wake)
		}
	})
	r.wait = min(2*r.wait, lastRetry)
}

// lastRetry is the longest that a queue whose drain failed waits for the next one.
const lastRetry = time.Minute

// Set fires the wake after in. Alarms that were set before for its queue stay: the database says which of
// them matters, and one that goes off for nothing finds nothing. It returns an
// error as [InProcess.Fire] does.
func (p *InProcess) Set(_ context.Context, wake queue.Wake, in time.Duration) error {
	if err := queue.CheckQueue(wake.Queue); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.ready(); err != nil {
		return err
	}
	id := wake.Queue + "/" + wake.Alarm
	if old := p.alarms[id]; old != nil {
		old.Stop()
	}
	var timer *time.Timer
	timer = time.AfterFunc(in, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.alarms[id] == timer {
			delete(p.alarms, id)
		}
		if p.ready() == nil {
			p.start(wake)
		}
	})
	p.alarms[id] = timer
	return nil
}

// Wait returns when no drain runs, or with the context's error. Alarms that are set do not count.
func (p *InProcess) Wait(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.idle.Broadcast()
	})
	defer stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.active > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		p.idle.Wait()
	}
	return nil
}

// Starts returns how many drains were started, and the most that ran at once.
func (p *InProcess) Starts() (total, most int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.starts, p.most
}

// Close stops the alarms, ends the drains and waits for them as [InProcess.Wait] does. Jobs
// that were cut off are queued again.
func (p *InProcess) Close(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	for _, t := range p.alarms {
		t.Stop()
	}
	for _, r := range p.retries {
		if r.timer != nil {
			r.timer.Stop()
		}
	}
	p.mu.Unlock()
	p.cancel()
	return p.Wait(ctx)
}
