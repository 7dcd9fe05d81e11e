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

	ctx    context.Context
	cancel context.CancelFunc

	mu     sync.Mutex
	idle   sync.Cond
	active int
	starts int
	most   int
	alarms map[string]*time.Timer
	closed bool
}

// NewInProcess returns a trigger that drains with d. Each drain has the given time and then
// hands over; zero means five minutes. The drainer's own Config.Trigger may be this
// value: see [InProcess.Bind].
func NewInProcess(d *Drainer, limit time.Duration) *InProcess {
	if limit == 0 {
		limit = 5 * time.Minute
	}
	p := &InProcess{d: d, drain: d.Drain, limit: limit, alarms: make(map[string]*time.Timer)}
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

// Fire starts a drain and returns. It returns an error for a name that cannot name a queue, and
// after [InProcess.Close].
func (p *InProcess) Fire(_ context.Context, wake queue.Wake) error {
	if err := queue.CheckQueue(wake.Queue); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return errClosed
	}
	p.active++
	p.starts++
	p.most = max(p.most, p.active)
	go func() {
		ctx, cancel := context.WithTimeout(p.ctx, p.limit)
		defer cancel()
		_, _ = p.drain(ctx, wake) // it logs
		p.mu.Lock()
		defer p.mu.Unlock()
		p.active--
		if p.active == 0 {
			p.idle.Broadcast()
		}
	}()
	return nil
}

// Set fires the wake after in, in place of the alarm that was set for its queue. It returns an
// error as [InProcess.Fire] does.
func (p *InProcess) Set(_ context.Context, wake queue.Wake, in time.Duration) error {
	if err := queue.CheckQueue(wake.Queue); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return errClosed
	}
	if old := p.alarms[wake.Queue]; old != nil {
		old.Stop()
	}
	p.alarms[wake.Queue] = time.AfterFunc(in, func() { _ = p.Fire(p.ctx, wake) })
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
	p.mu.Unlock()
	p.cancel()
	return p.Wait(ctx)
}
