package enqueue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

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
	err := c.ringAndFire(ctx, dueIn(added), queue.ReasonEnqueue)
	c.setAlarms(ctx, added, false) // last, as what is later has time
	return err
}

// fireUnknown wakes for jobs of which it is not known whether they are stored, or will be. There may be a bell
// that was rung for a trigger that only we could fire. A drain that finds nothing costs less than
// one that nobody asks for.
func (c *Client) fireUnknown(ctx context.Context, added []Added) {
	queues := dueIn(added)
	each(names(queues), func(i int, name string) {
		lowering, cancel := c.afterCommit(ctx)
		defer cancel()
		// It may well fail, as the commit did. Then what took its time to commit waits for the sweep.
		_ = c.store.Lower(lowering, c.db, name, queues[i].since)
	})
	_ = c.fire(ctx, names(queues), queue.ReasonEnqueue)
	c.setAlarms(ctx, added, true)
}

// toRing is a queue to ring, and when the first job to ring for is due; zero if that is not known.
type toRing struct {
	queue string
	since time.Time
}

// dueIn are the queues in which something may be due, each once.
func dueIn(added []Added) (queues []toRing) {
	for _, a := range added {
		if a.Queue != "" && a.delay == 0 {
			queues = ringFor(queues, a)
		}
	}
	return queues
}

// ringFor has the job's queue rung for it, too.
func ringFor(queues []toRing, a Added) []toRing {
	i := slices.IndexFunc(queues, func(q toRing) bool { return q.queue == a.Queue })
	if i < 0 {
		return append(queues, toRing{a.Queue, a.runAt})
	}
	if a.runAt.Before(queues[i].since) {
		queues[i].since = a.runAt
	}
	return queues
}

func names(queues []toRing) []string {
	all := make([]string, len(queues))
	for i := range queues {
		all[i] = queues[i].queue
	}
	return all
}

// setAlarms has the queues of jobs that are due later woken then. Those of duplicates too: who added the
// job may not have come to it. Unseen says that the jobs may not be seen yet, and need an alarm all the same.
func (c *Client) setAlarms(ctx context.Context, added []Added, unseen bool) {
	var queues []toRing
	soonest := make(map[string]time.Duration)
	for _, a := range added {
		if a.Queue == "" || a.delay == 0 {
			continue
		}
		queues = ringFor(queues, a)
		if in, known := soonest[a.Queue]; !known || a.delay < in {
			soonest[a.Queue] = a.delay
		}
	}
	if c.alarm == nil {
		each(names(queues), func(i int, name string) {
			setting, cancel := c.afterCommit(ctx)
			defer cancel()
			if err := c.lower(setting, queues[i]); err != nil {
				c.log.Warn("what took long to commit waits for the sweep", "queue", name, "error", err)
			}
		})
		return
	}
	due := make([]bool, len(queues))
	each(names(queues), func(i int, name string) {
		setting, cancel := c.afterCommit(ctx)
		defer cancel()
		next, err := c.lookAhead(setting, queues[i])
		due[i] = next.Due
		if err == nil && unseen {
			_, err = c.store.SetAlarm(setting, c.db, c.alarm, name, soonest[name])
		}
		if err != nil {
			c.log.Warn("alarm not set, the sweep covers it", "queue", name, "error", err)
		}
	})
	// What is due by now needs no alarm but somebody who looks, and who sets the next alarm as they leave.
	var now []toRing
	for i, q := range queues {
		if due[i] {
			now = append(now, q)
		}
	}
	_ = c.ringAndFire(ctx, now, queue.ReasonEnqueue) // logged and counted
}

// skew is how wrong this machine's clock may be.
const skew = time.Minute

// lookAhead sets the alarm for when something is next due in a queue, unless something is.
func (c *Client) lookAhead(ctx context.Context, q toRing) (queue.Next, error) {
	name := q.queue
	if err := c.store.EnsureQueue(ctx, c.db, name); err != nil {
		return queue.Next{}, err
	}
	if err := c.lower(ctx, q); err != nil {
		return queue.Next{}, err
	}
	next, err := c.store.Next(ctx, c.db, name)
	if err == nil && !next.Due && next.In >= 0 {
		_, err = c.store.SetAlarm(ctx, c.db, c.alarm, name, next.In)
	}
	return next, err
}

// lower has looks for what is due in a queue begin early enough for what was added to be due later, but in a transaction
// that may have taken longer.
func (c *Client) lower(ctx context.Context, q toRing) error {
	if q.since.IsZero() || time.Until(q.since) > skew {
		return nil
	}
	return c.store.Lower(ctx, c.db, q.queue, q.since)
}

// ringAndFire wakes queues whose jobs are committed. What is to be done after a
// commit, for all of the caller's transactions, is done here.
func (c *Client) ringAndFire(ctx context.Context, queues []toRing, reason queue.Reason) error {
	if len(queues) == 0 {
		return nil
	}
	ringing, cancel := c.afterCommit(ctx)
	defer cancel()
	var fire []string
	for _, q := range queues {
		rang, err := c.store.Ring(ringing, c.db, q.queue, q.since, c.cfg.Bell)
		if err != nil {
			c.log.Warn("ring failed, firing anyway", "queue", q.queue, "error", err)
		}
		if rang || err != nil {
			fire = append(fire, q.queue)
		}
	}
	return c.fire(ctx, fire, reason)
}

// afterCommit is a context for one step that a committed job still needs, whether or not its caller
// waits. Each step has its own: one that hangs must not use up the time of the next.
func (c *Client) afterCommit(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), c.cfg.FireTimeout)
}

// fire fires the trigger for queues that were rung, and returns when all are done: a process
// that is frozen once it has answered would not get to it later.
func (c *Client) fire(ctx context.Context, queues []string, reason queue.Reason) error {
	errs := make([]error, len(queues))
	each(queues, func(i int, name string) { errs[i] = c.fireOne(ctx, name, reason) })
	return errors.Join(errs...)
}

// each calls do for all of queues, some at once, and returns when all are done.
func each(queues []string, do func(i int, name string)) {
	if len(queues) == 1 {
		do(0, queues[0])
		return
	}
	var all sync.WaitGroup
	free := make(chan struct{}, atOnce)
	for i, name := range queues {
		free <- struct{}{}
		all.Go(func() {
			defer func() { <-free }()
			do(i, name)
		})
	}
	all.Wait()
}

func (c *Client) fireOne(ctx context.Context, name string, reason queue.Reason) error {
	alarm := c.watch(ctx, name) // before the trigger's time begins
	firing, cancel := c.afterCommit(ctx)
	defer cancel()
	err := c.callTrigger(firing, queue.Wake{Version: 1, Queue: name, Reason: reason, Alarm: alarm})
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
	if _, ok := c.cfg.Alarm.(queue.Clearer); !ok {
		return ""
	}
	setting, cancel := c.afterCommit(ctx)
	defer cancel()
	id := uuid.New()
	set, err := c.store.SetAlarmAs(setting, c.db, c.alarm, name, lost, id)
	switch {
	case err != nil:
		// It may be recorded, or even set: then the drain takes it back all the same.
		c.log.Warn("no alarm is set in case the wake is lost", "queue", name, "error", err)
	case !set:
		return ""
	}
	return id.String()
}

// steadyAlarm makes an error of an alarm's panic, as callTrigger does of a trigger's. It has all of
// the alarm that is used through it.
type steadyAlarm struct{ queue.Alarm }

// Set sets the alarm.
func (s steadyAlarm) Set(ctx context.Context, wake queue.Wake, in time.Duration) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("alarm panicked: %v", p)
		}
	}()
	return s.Alarm.Set(ctx, wake, in)
}

// Grain is that of the alarm, if it has one.
func (s steadyAlarm) Grain() time.Duration {
	if g, ok := s.Alarm.(queue.Grained); ok {
		return g.Grain()
	}
	return 0
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
