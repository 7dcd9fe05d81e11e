package handler

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/dozequeue/doze/queue"
)

// mayClaim reports whether there is time for more: enough for what jobs like those of this drain
// usually take. A drain's first claim does not ask, or jobs that take longer would never run.
func (r *drain) mayClaim() bool {
	return r.ctx.Err() == nil && !r.cut && !r.d.tainted.Load() && (r.stopAt.IsZero() || time.Now().Add(r.usual).Before(r.stopAt))
}

// mayRefill reports whether to claim while jobs are in hand.
func (r *drain) mayRefill() bool { return !r.alone && !r.holding() && r.mayClaim() }

// holding reports whether to let the jobs in hand run out, for one that must run alone. A backlog would
// keep it waiting for ever, and long jobs keep others from running: so a drain waits from time to time, for
// an eighth of its time at most, and the next time for twice as long if that was not enough.
func (r *drain) holding() bool {
	now := time.Now()
	if !now.Before(r.dryAt.Add(r.drying())) {
		r.dryFor *= 2
		r.dryAt = now.Add(seldom * r.drying())
	}
	return !now.Before(r.dryAt)
}

// drying is how long to wait for the jobs in hand to run out.
func (r *drain) drying() time.Duration { return max(r.dryFor, 2*r.pace) }

// idle is how many jobs to claim for capacity that has nothing to do.
func (r *drain) idle() int {
	free := min(r.d.cfg.Concurrency-len(r.unfinished), r.d.cfg.BatchSize)
	if free <= 0 || !r.mayRefill() {
		return 0
	}
	return free
}

// work runs what is in hand and claims more while claims come back full. It returns when
// nothing is in hand and the last claim left nothing behind, or the time is up.
func (r *drain) work() error {
	for {
		var err error
		switch {
		case r.underWay != nil || len(r.unfinished) > 0 && (r.full == 0 || r.idle() == 0):
			err = r.wait()
		case len(r.unfinished) > 0: // a batch is smaller than the crew
			r.launch(r.limit)
		case !r.mayClaim() || r.full == 0 && !r.lively:
			return nil
		case r.full > 0:
			err = r.step(r.limit)
		default:
			err = r.lingers()
		}
		if err != nil {
			return err
		}
	}
}

// lingers looks for jobs once more, after a moment in which the open slot keeps enqueues from asking
// for another drain.
func (r *drain) lingers() error {
	claimed, open := r.report.Claimed, r.state == queue.Open
	if open {
		_ = sleep(r.ctx, linger)
	}
	err := r.step(r.limit)
	r.lively = r.report.Claimed > claimed || !open
	return err
}

// wait waits for the next thing to happen and does what it calls for.
func (r *drain) wait() error {
	timer, what := r.nextTimer()
	select {
	case a := <-r.crew.results:
		r.back(a)
		for more := true; more; { // what else is back already
			select {
			case a := <-r.crew.results:
				r.back(a)
			default:
				more = false
			}
		}
		stopTimer(timer)
		return r.refill() // before it runs dry
	case s := <-r.landed:
		stopTimer(timer)
		if err := r.accept(s); err != nil {
			return err
		}
		if r.soon() {
			return r.refill()
		}
		return nil
	case <-r.stopped():
		stopTimer(timer)
		return r.cutOff()
	case <-timerC(timer):
		return what()
	}
}

// stopped is closed when the caller wants the drain to end; nil once that is under way.
func (r *drain) stopped() <-chan struct{} {
	if r.cut {
		return nil
	}
	return r.ctx.Done()
}

// nextTimer is the earliest thing that this drain does by the clock.
func (r *drain) nextTimer() (*time.Timer, func() error) {
	var at time.Time
	var what func() error
	sooner := func(t time.Time, do func() error) {
		if at.IsZero() || t.Before(at) {
			at, what = t, do
		}
	}
	idle := r.underWay == nil // else the step that is under way records and claims, and says so
	if idle && len(r.finished) > 0 {
		sooner(r.firstFinished.Add(flush), r.record)
	}
	if idle && r.state == queue.Open && !r.cut { // also near the deadline, when it claims no more: enqueues would rely on it
		sooner(r.lastClaim.Add(settle), r.saturated)
	}
	if idle && r.full > 0 && r.low() && !r.alone && r.mayClaim() && r.holding() {
		sooner(r.dryAt.Add(r.drying()), r.refill)
	}
	if r.renewEvery > 0 && !r.unrenewed {
		sooner(r.renewed.Add(r.renewEvery), r.renew)
	}
	switch {
	case r.cut:
		sooner(r.giveUpAt, r.giveUp)
	case !r.cutAt.IsZero():
		sooner(r.cutAt, r.cutOff)
	}
	if at.IsZero() {
		return nil, nil
	}
	return time.NewTimer(time.Until(at)), what
}

func timerC(t *time.Timer) <-chan time.Time {
	if t == nil {
		return nil
	}
	return t.C
}

func stopTimer(t *time.Timer) {
	if t != nil {
		t.Stop()
	}
}

// saturated says that this drain will not look again soon, and asks for one more if
// there is more to do.
func (r *drain) saturated() error {
	if err := r.land(); err != nil {
		return err
	}
	r.relet()
	if r.d.cfg.Trigger == nil { // do not ring for a drain that nobody can ask to come
		if err := r.d.again(r.db, func(ctx context.Context, conn *pgx.Conn, _ bool) error {
			_, err := r.d.store.Step(ctx, conn, r.slot, nil, 0, false, queue.Busy)
			return err
		}); err != nil {
			return err
		}
		r.state, r.lastRing = queue.Busy, time.Now()
		return nil
	}
	rang := false
	err := r.d.again(r.db, func(ctx context.Context, conn *pgx.Conn, repeat bool) (err error) {
		rang, err = r.d.store.Saturated(ctx, conn, r.slot, r.d.cfg.Bell)
		rang = rang || repeat // its bell may be ours
		return err
	})
	if err != nil {
		return err
	}
	r.state, r.lastRing = queue.Busy, time.Now()
	if rang {
		r.d.fire(r.db, queue.Wake{Version: 1, Queue: r.slot.Queue, Reason: queue.ReasonScale})
	}
	return nil
}

// renew renews the slot and every lease in hand, and ends the handlers of jobs that are
// no longer held.
func (r *drain) renew() error {
	if err := r.land(); err != nil {
		return err
	}
	jobs := make([]queue.Claimed, 0, len(r.unfinished))
	still := make(map[uuid.UUID]bool, len(r.unfinished))
	for id, a := range r.unfinished {
		if still[id] = a.completed.Load(); !still[id] { // else the handler's transaction has its row, until it ends
			jobs = append(jobs, *a.job)
		}
	}
	var held []uuid.UUID
	untilLost, cancel := context.WithDeadline(r.db, r.leashEnd())
	defer cancel()
	err := r.d.again(untilLost, func(ctx context.Context, conn *pgx.Conn, _ bool) (err error) {
		r.asked = time.Now()
		held, err = r.d.store.Renew(ctx, conn, r.slot, r.state, jobs)
		return err
	})
	if err != nil {
		r.d.cfg.Logger.ErrorContext(r.ctx, "leases could not be renewed; stopping", "queue", r.slot.Queue, "error", err)
		r.unrenewed = true
		r.giveBack()
		r.stopHandlers(ErrLeaseLost)
		return nil
	}
	r.leased()
	for _, id := range held {
		still[id] = true
	}
	for id, a := range r.unfinished {
		if !still[id] && !a.completed.Load() {
			a.cancel(ErrLeaseLost)
		}
	}
	// The database is awake: look for work for idle capacity.
	if free := r.idle(); free > 0 {
		return r.step(free)
	}
	return nil
}
