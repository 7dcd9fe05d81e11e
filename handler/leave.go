package handler

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/dozequeue/doze/queue"
)

// cutOff ends the handlers, near the deadline or because the caller stops, and gives back what
// was not begun.
func (r *drain) cutOff() error {
	r.giveBack()
	r.stopHandlers(ErrTimeUp)
	return r.step(0)
}

// giveBack gives back what was not begun.
func (r *drain) giveBack() {
	for _, a := range r.crew.withdraw() {
		delete(r.unfinished, a.job.ID)
		a.cancel(nil)
		r.note(a.job, release(a.job), resultReleased, nil)
	}
}

// stopHandlers ends the contexts of all handlers, and sets how long they are waited for.
func (r *drain) stopHandlers(cause error) {
	r.cut = true
	r.giveUpAt = time.Now().Add(r.d.cfg.Grace)
	if last := r.endAt.Add(-r.endAt.Sub(r.cutAt) / 2); !r.endAt.IsZero() && last.Before(r.giveUpAt) {
		r.giveUpAt = last
	}
	for _, a := range r.unfinished {
		a.cancel(cause)
	}
}

// giveUp leaves handlers behind that ignore the end of their context.
func (r *drain) giveUp() error {
	r.giveBack()
	for _, a := range r.crew.begun() {
		r.crew.abandon(a)
	}
	for len(r.unfinished) > 0 {
		r.back(<-r.crew.results)
	}
	return nil
}

// close leaves nothing behind. After an error it ends what still runs and waits for it, since a
// process may freeze when its drain returns, with the handlers in it. Then it records what it
// can and gives the slot up: until its lease ended it would promise to look for jobs.
func (r *drain) close(err error) {
	defer r.release()
	if r.leash != nil {
		defer r.leash.Stop()
	}
	if err == nil || r.asked.IsZero() {
		return
	}
	_ = r.land()
	r.giveBack()
	r.stopHandlers(ErrLeaseLost)
	tooLong := time.NewTimer(time.Until(r.giveUpAt))
	defer tooLong.Stop()
	for len(r.unfinished) > 0 {
		select {
		case a := <-r.crew.results:
			r.back(a)
		case <-tooLong.C:
			_ = r.giveUp()
		}
	}
	ctx, cancel := context.WithTimeout(r.db, 2*time.Second)
	defer cancel()
	_ = r.d.conn(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		if len(r.orphans) > 0 { // nobody knows of these, so nobody else would before their lease has ended
			if err := r.d.store.GiveBack(ctx, queue.Unnamed(conn), r.slot.Queue, r.orphans); err != nil {
				return err
			}
		}
		held, next, err := r.d.store.Exit(ctx, conn, r.slot, outcomes(r.finished))
		if err == nil {
			r.settle(held)
			r.report.More = next.Due
		}
		return err
	})
}

// leave gives the slot up and takes the last look. True: something is due, and there is time for it.
func (r *drain) leave() (bool, error) {
	if !r.mayClaim() {
		return false, r.handOver()
	}
	if err := r.land(); err != nil {
		return false, err
	}
	var held []uuid.UUID
	var next queue.Next
	err := r.d.again(r.db, func(ctx context.Context, conn *pgx.Conn, repeat bool) error {
		left, err := r.unrecorded(ctx, conn, repeat)
		if err == nil {
			held, next, err = r.d.store.Exit(ctx, conn, r.slot, left)
		}
		return err
	})
	if err != nil && queue.Classify(err) == queue.Permanent && len(r.finished) > 0 {
		if err = r.finishSingly(); err == nil {
			return r.leave()
		}
	}
	if err != nil {
		return false, err
	}
	r.settle(held)
	r.report.NextMS = -1
	switch {
	case next.Due:
		return true, nil
	case next.In >= 0 && r.mayWait(next.In):
		return r.waitOut(next.In)
	case next.In >= 0:
		r.report.NextMS = next.In.Milliseconds()
		return false, r.arm(next.In)
	}
	return false, nil
}

// mayWait reports whether to wait for what is due after in: it is near, and there will be time for it.
func (r *drain) mayWait(in time.Duration) bool {
	return in <= r.d.cfg.Wait && !r.inVain && r.ctx.Err() == nil && (r.stopAt.IsZero() || time.Now().Add(in+r.usual).Before(r.stopAt))
}

// waitOut waits for what is due after in. It holds no slot meanwhile, so enqueues need not rely on it: they
// fire as ever. An alarm that can be taken back covers the wait, as it covers the drain. False: the caller
// stopped it, and an alarm sees to what is due.
func (r *drain) waitOut(in time.Duration) (bool, error) {
	due := time.Now().Add(in)
	in += 5 * time.Millisecond // what is due at that time is due after it, too
	if _, ok := r.d.cfg.Alarm.(queue.Clearer); ok {
		ctx, cancel := context.WithTimeout(r.db, alarmPatience)
		defer cancel()
		err := r.d.conn(ctx, func(ctx context.Context, conn *pgx.Conn) error {
			set, err := r.d.store.SetAlarmAs(ctx, queue.Unnamed(conn), r.d.cfg.Alarm, r.slot.Queue, in+r.d.cfg.Wait, r.slot.Watch)
			r.watched = r.watched || set
			return err
		})
		if err != nil {
			r.d.cfg.Logger.WarnContext(r.ctx, "no alarm covers the wait; if this drain vanishes the sweep sees to it", "queue", r.slot.Queue, "error", err)
		}
	}
	if sleep(r.ctx, in) != nil {
		r.watched = false // it stays, for what was waited for
		return false, r.arm(max(time.Until(due), 0))
	}
	r.waited = true
	return true, nil
}

// lost is how long after a wake was fired it counts as lost.
const lost = 30 * time.Second

// inCaseItIsLost sets an alarm that brings what a wake fired now is to bring, if it can be taken back: whoever is
// woken does so, by the id in the wake, which is returned; empty if none was set.
func (r *drain) inCaseItIsLost() (id string) {
	if _, ok := r.d.cfg.Alarm.(queue.Clearer); !ok {
		return ""
	}
	ctx, cancel := context.WithTimeout(r.db, alarmPatience)
	defer cancel()
	if err := r.d.conn(ctx, func(ctx context.Context, conn *pgx.Conn) (err error) {
		id, err = r.d.store.SetAlarm(ctx, queue.Unnamed(conn), r.d.cfg.Alarm, r.slot.Queue, lost)
		return err
	}); err != nil {
		r.d.cfg.Logger.WarnContext(r.ctx, "no alarm is set in case the successor's wake is lost", "queue", r.slot.Queue, "error", err)
	}
	return id
}

var errAlarm = errors.New("the alarm service did not take it")

// arm sets the queue's alarm, unless one is set that goes off no later. The sweep covers one
// that could not be set.
func (r *drain) arm(in time.Duration) error {
	if r.d.cfg.Alarm == nil {
		return nil
	}
	if g, ok := r.d.cfg.Alarm.(queue.Grained); ok {
		in = max(in, g.Grain())
	}
	var refused error
	alarm := queue.AlarmFunc(func(ctx context.Context, wake queue.Wake, in time.Duration) error {
		ctx, cancel := context.WithTimeout(ctx, alarmPatience)
		defer cancel()
		if refused = r.d.cfg.Alarm.Set(ctx, wake, in); refused != nil {
			return errAlarm // not the service's own error: only what the database says is worth another try here
		}
		return nil
	})
	err := r.d.again(r.db, func(ctx context.Context, conn *pgx.Conn, _ bool) error {
		_, err := r.d.store.SetAlarm(ctx, queue.Unnamed(conn), alarm, r.slot.Queue, in)
		return err
	})
	if err = cmp.Or(refused, err); err != nil {
		r.d.cfg.Logger.WarnContext(r.ctx, "alarm not set; the sweep covers it", "queue", r.slot.Queue, "in", in, "error", err)
	}
	return nil
}

// noSlot leaves alarms in order where every slot is held. Their holders see to what is due, unless they have
// died: then the next to come is this queue's alarm, and the start has just taken that down.
func (r *drain) noSlot() error {
	if r.d.cfg.Alarm == nil {
		return nil
	}
	var next queue.Next
	var free time.Duration
	err := r.d.again(r.db, func(ctx context.Context, conn *pgx.Conn, _ bool) (err error) {
		// An exit without a slot: it forgets the watch of an earlier one, and looks.
		if _, next, err = r.d.store.Exit(ctx, conn, r.slot, nil); err == nil && next.Due {
			free, err = r.d.store.SlotFreeIn(ctx, queue.Unnamed(conn), r.slot.Queue)
		}
		return err
	})
	switch {
	case err != nil:
		return err
	case next.Due:
		r.report.More = true
		return r.arm(max(free, 0))
	case next.In >= 0:
		r.report.NextMS = next.In.Milliseconds()
		return r.arm(next.In)
	}
	return nil
}

// armNext sets the alarm for what is due later, after an exit without the last look.
func (r *drain) armNext() error {
	if r.d.cfg.Alarm == nil {
		return nil
	}
	var next queue.Next
	err := r.d.again(r.db, func(ctx context.Context, conn *pgx.Conn, _ bool) (err error) {
		next, err = r.d.store.Next(ctx, queue.Unnamed(conn), r.slot.Queue)
		return err
	})
	if err != nil || next.Due || next.In < 0 { // what is due has somebody on the way: the ring said so
		return err
	}
	r.report.NextMS = next.In.Milliseconds()
	return r.arm(next.In)
}

// handOver records what is left, gives the slot up and fires a successor if something is due.
func (r *drain) handOver() error {
	if err := r.land(); err != nil {
		return err
	}
	var held []uuid.UUID
	rang := false
	err := r.d.again(r.db, func(ctx context.Context, conn *pgx.Conn, repeat bool) error {
		left, err := r.unrecorded(ctx, conn, repeat)
		if err == nil {
			held, rang, err = r.d.store.HandOver(ctx, conn, r.slot, left, r.d.cfg.Bell)
		}
		return err
	})
	if err != nil && queue.Classify(err) == queue.Permanent && len(r.finished) > 0 {
		if err = r.finishSingly(); err == nil {
			return r.handOver()
		}
	}
	if err != nil {
		return err
	}
	r.settle(held)
	r.report.More = rang || r.report.Released+r.report.Interrupted > 0
	if !rang {
		return r.armNext()
	}
	hop := r.wake.Hop + 1
	if r.report.Claimed == r.report.Released+r.report.Interrupted+r.report.Unknown {
		hop += r.d.cfg.MaxHops / 10 // nothing got done: not often
	}
	if hop > r.d.cfg.MaxHops {
		r.d.cfg.Logger.WarnContext(r.ctx, "not handing over: too many hops", "queue", r.slot.Queue, "hop", hop)
		if err := r.d.conn(r.db, func(ctx context.Context, conn *pgx.Conn) error {
			return r.d.store.Unring(ctx, queue.Unnamed(conn), r.slot.Queue)
		}); err != nil {
			return err
		}
		return r.arm(time.Minute) // a new chain, after a pause
	}
	r.report.HandedOver = r.d.fire(r.db, queue.Wake{Version: 1, Queue: r.slot.Queue, Reason: queue.ReasonHandoff, Hop: hop, Alarm: r.inCaseItIsLost()})
	if !r.report.HandedOver {
		return r.arm(10 * time.Second)
	}
	return nil
}
