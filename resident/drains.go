package resident

import (
	"context"

	"github.com/dozequeue/doze/queue"
)

// busy is a queue that has drains here.
type busy struct {
	drains int
	// waiting are wakes for which there was no room, by the alarm that they name: each alarm is taken down by its
	// id only, and all others are one.
	waiting map[string]queue.Wake
}

// mostWaiting bounds the memory that forged wakes take. The queue has an alarm at a time.
const mostWaiting = 16

// wake starts a drain. If enough run the wake waits for the next of them to end: that one may have looked for the
// last time, so the wake must not be dropped.
func (p *process) wake(w queue.Wake) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		return
	}
	b := p.queues[w.Queue]
	if b == nil {
		b = &busy{waiting: make(map[string]queue.Wake)}
		p.queues[w.Queue] = b
	}
	if b.drains < p.cfg.Drains {
		b.drains++
		p.running.Go(func() { p.drain(w) })
		return
	}
	if _, known := b.waiting[w.Alarm]; known || len(b.waiting) < mostWaiting {
		b.waiting[w.Alarm] = w
	}
}

// drain drains a queue for a wake, and then for those that have waited.
func (p *process) drain(w queue.Wake) {
	for more := true; more; w, more = p.next(w.Queue) {
		ctx, cancel := context.WithTimeout(p.ctx, p.cfg.Limit)
		_, err := p.drainer.Drain(ctx, w) // it logs
		cancel()
		if err != nil && p.ctx.Err() == nil {
			_ = p.local.Fire(p.ctx, w) // which comes again, ever more rarely, until it succeeds
		}
	}
}

// next takes a wake that has waited. False: there is none, and a drain less.
func (p *process) next(name string) (queue.Wake, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.queues[name]
	if p.ctx.Err() == nil {
		for id, w := range b.waiting {
			delete(b.waiting, id)
			return w, true
		}
	}
	if b.drains--; b.drains == 0 {
		delete(p.queues, name)
	}
	return queue.Wake{}, false
}
