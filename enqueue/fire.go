package enqueue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dozequeue/doze/queue"
)

// atOnce is how many triggers one call fires at the same time.
const atOnce = 8

// Fire wakes the queues of jobs that were added in a transaction of yours, each once. Call
// it after the commit: before it, or inside the transaction, the wake could be over
// before the jobs can be seen, and nobody would come for them.
//
// An error says that some queue could not be woken. The jobs are stored and will run when
// somebody else enqueues there, an alarm goes off or the sweep comes by; it has been
// logged and counted.
func (c *Client) Fire(ctx context.Context, added ...Added) error {
	c.setAlarms(ctx, added)
	return c.ringAndFire(ctx, queuesOf(added), queue.ReasonEnqueue)
}

// setAlarms has the queues of jobs that are due later woken then.
func (c *Client) setAlarms(ctx context.Context, added []Added) {
	if c.cfg.Alarm == nil {
		return
	}
	var queues []string
	for _, a := range added {
		if a.later && !a.Duplicate && !slices.Contains(queues, a.Queue) {
			queues = append(queues, a.Queue)
		}
	}
	for _, name := range queues {
		setting, cancel := c.afterCommit(ctx)
		if err := c.store.EnsureQueue(setting, c.db, name); err != nil {
			c.log.Warn("alarm not set, the sweep covers it", "queue", name, "error", err)
		} else if _, err := c.store.SetNextAlarm(setting, c.db, c.cfg.Alarm, name); err != nil {
			c.log.Warn("alarm not set, the sweep covers it", "queue", name, "error", err)
		}
		cancel()
	}
}

// queuesOf are the queues in which something may be due, each once.
func queuesOf(added []Added) []string {
	var queues []string
	for _, a := range added {
		if a.Queue != "" && !a.later && !slices.Contains(queues, a.Queue) {
			queues = append(queues, a.Queue)
		}
	}
	return queues
}

func (b *batch) queues() []string {
	var queues []string
	for i := range b.jobs {
		if n := &b.jobs[i]; n.Delay == 0 && !slices.Contains(queues, n.Queue) {
			queues = append(queues, n.Queue)
		}
	}
	return queues
}

// ringAndFire wakes queues whose jobs are committed. What is to be done after a
// commit, for all of the caller's transactions, is done here.
func (c *Client) ringAndFire(ctx context.Context, queues []string, reason queue.Reason) error {
	if len(queues) == 0 {
		return nil
	}
	ringing, cancel := c.afterCommit(ctx)
	defer cancel()
	var fire []string
	for _, name := range queues {
		rang, err := c.store.Ring(ringing, c.db, name, c.cfg.Bell)
		if err != nil {
			c.log.Warn("ring failed, firing anyway", "queue", name, "error", err)
		}
		if rang || err != nil {
			fire = append(fire, name)
		}
	}
	return c.fire(ctx, fire, reason)
}

// afterCommit is a context for what a committed job still needs, whether or not its caller waits.
func (c *Client) afterCommit(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), c.cfg.FireTimeout)
}

// fire fires the trigger for queues that were rung, and returns when all are done: a process
// that is frozen once it has answered would not get to it later.
func (c *Client) fire(ctx context.Context, queues []string, reason queue.Reason) error {
	if len(queues) == 1 {
		return c.fireOne(ctx, queues[0], reason)
	}
	var (
		all  sync.WaitGroup
		free = make(chan struct{}, atOnce)
		errs = make([]error, len(queues))
	)
	for i, name := range queues {
		free <- struct{}{}
		all.Go(func() {
			defer func() { <-free }()
			errs[i] = c.fireOne(ctx, name, reason)
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

func (c *Client) fireOne(ctx context.Context, name string, reason queue.Reason) error {
	firing, cancel := c.afterCommit(ctx)
	defer cancel()
	err := c.callTrigger(firing, queue.Wake{Version: 1, Queue: name, Reason: reason, Alarm: c.watch(firing, name)})
	if err == nil {
		c.count.fired.Add(1)
		return nil
	}
	c.count.fireErrors.Add(1)
	c.log.Warn("fire failed, jobs wait for the next enqueue, alarm or sweep", "queue", name, "error", err)
	// Nobody was asked to come after all. With the bell left set, whoever enqueues next would
	// rely on it; firing may have used up its time, so this has its own.
	unringing, cancel := c.afterCommit(ctx)
	defer cancel()
	if unringErr := c.store.Unring(unringing, c.db, name); unringErr != nil {
		c.log.Warn("bell left set, enqueues do not ring until it has expired", "queue", name, "error", unringErr)
	}
	return fmt.Errorf("fire trigger for queue %q: %w", name, err)
}

// lost is how long after a wake was fired it counts as lost.
const lost = 30 * time.Second

// watch sets an alarm in case the wake is lost, if it can be taken back: the drain that the wake
// brings does so, by the id in it. It returns the id, empty if none was set.
func (c *Client) watch(ctx context.Context, name string) string {
	alarm, ok := c.cfg.Alarm.(queue.Clearer)
	if !ok {
		return ""
	}
	id, err := c.store.SetAlarm(ctx, c.db, alarm, name, lost)
	if err != nil {
		c.log.Warn("no alarm is set in case the wake is lost", "queue", name, "error", err)
	}
	return id
}

// callTrigger makes an error of a trigger's panic: the job is committed, and an Add that
// panics would say otherwise.
func (c *Client) callTrigger(ctx context.Context, wake queue.Wake) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("trigger panicked: %v", p)
		}
	}()
	return c.trigger.Fire(ctx, wake)
}
