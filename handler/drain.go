package handler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/dozequeue/doze/queue"
	"github.com/dozequeue/doze/schedule"
)

const (
	// settle is how long a drain with jobs in hand still promises to look again soon. After that
	// it says that it is busy, so that enqueues ask for another drain.
	settle = 50 * time.Millisecond
	// flush is how long a finished job waits for others to be recorded with it.
	flush = 10 * time.Millisecond
	// linger is how long a drain waits for more before it leaves, if jobs came while it left before:
	// then they come about as fast as they run, and each time that it leaves one starts another drain.
	linger = 10 * time.Millisecond
	// streak is how many full claims in a row say that there is work for one more drain.
	streak = 8
	// ahead is how long what one claim takes should keep the crew busy. More would only wait in memory,
	// and count as reaped if this process is killed.
	ahead = 500 * time.Millisecond
	// heads is how often to claim from the head of the queue, for what became due behind the cursor. If that takes
	// long it is done less often, for a hundredth of the time but each rarest at least, since it may have been a hiccup; and
	// in between from a little behind the cursor.
	heads  = time.Second
	rarest = 10 * time.Second
	behind = 10 * time.Second
	// firstDry is how long a drain first waits to run dry, and it works for as many times that as seldom
	// before it waits: see drain.holding.
	firstDry = 100 * time.Millisecond
	seldom   = 8
)

// drain is one run of [Drainer.Drain]. All of its fields belong to one goroutine, which
// alone talks to the database; the crew's goroutines only run handlers.
type drain struct {
	d    *Drainer
	wake queue.Wake
	slot queue.Slot

	ctx     context.Context // ends with the caller's patience
	db      context.Context // for the database: outlives ctx, to record what was done
	release func()          // ends the contexts made here

	began                time.Time
	stopAt, cutAt, endAt time.Time     // stop claiming, end the handlers, be gone; zero without a deadline
	usual                time.Duration // of the slowest kind that this drain has run
	renewEvery           time.Duration
	asked                time.Time   // when the last call that sets leases was sent
	renewed              time.Time   // when the oldest lease in hand was set, or before
	leash                *time.Timer // ends the handlers before that lease does
	unrenewed            bool        // the leases are given up
	cursor               queue.Cursor
	headAt, backAt       time.Time // when to claim from the head again, or from behind the cursor
	maxReaps             int
	watched              bool // the watch is set in the alarm service
	limit                int  // of the next claim
	full                 int  // full claims in a row
	inVain               bool // it waited for nothing
	waited               bool // for what it comes back to claim
	wasLone              bool // the last claim took one that must run alone
	dryAt                time.Time
	dryFor               time.Duration // see holding
	pace                 time.Duration // of an attempt, on average
	lively               bool          // jobs came while it left: see linger
	lastClaim, lastRing  time.Time
	state                queue.SlotState
	crew                 *crew
	unfinished           map[uuid.UUID]*attempt // handed to the crew and not back
	alone                bool                   // what is in hand must have no other beside it
	cut                  bool
	giveUpAt             time.Time   // once cut
	finished             []ended     // and not recorded
	firstFinished        time.Time   // of those
	orphans              []uuid.UUID // tokens of claims whose answer was lost
	underWay             *step
	landed               chan *step    // what was under way comes back here
	stepTook             time.Duration // the last one
	report               Drained
}

// Drain claims, runs and finishes the wake's queue until nothing is due, no slot is to be had
// or the context's deadline is near, and says what it did. It is safe to call at any time, any number
// of times, for any queue: the database decides whether there is anything to do.
//
// It returns an error if the database could not be reached, is not set up, or failed in
// the middle; then the jobs in hand come back when their lease ends. A handler's failure is
// not an error. A context that has ended, or whose deadline is too near, is one, and so is
// [ErrTainted]: whoever fired the wake is to fire it again.
func (d *Drainer) Drain(ctx context.Context, wake queue.Wake) (Drained, error) {
	if queue.CheckQueue(wake.Queue) != nil {
		return Drained{NextMS: -1}, errNoQueue
	}
	r := d.begin(ctx, wake)
	started := time.Now()
	err := r.run()
	if err == nil {
		r.unwatch()
	}
	r.close(err)
	level := d.cfg.Logger.InfoContext
	if err != nil {
		level = d.cfg.Logger.ErrorContext
	}
	level(ctx, "drained", "queue", wake.Queue, "reason", wake.Reason, "hop", wake.Hop, "no_slot", r.report.NoSlot,
		"claimed", r.report.Claimed, "done", r.report.Done, "retried", r.report.Retried, "failed", r.report.Failed,
		"lost", r.report.Lost, "unknown", r.report.Unknown, "stuck", r.report.Stuck, "more", r.report.More,
		"took", time.Since(started), "error", err)
	return r.report, err
}

func (d *Drainer) begin(ctx context.Context, wake queue.Wake) *drain {
	now := time.Now()
	wake.Hop = min(max(wake.Hop, 0), d.cfg.MaxHops) // untrusted: it must not make a chain longer
	r := &drain{
		d: d, wake: wake, ctx: ctx, began: now,
		slot:       queue.Slot{Queue: wake.Queue, Token: uuid.New()},
		limit:      min(d.cfg.Concurrency, d.cfg.BatchSize),
		state:      queue.Open,
		unfinished: make(map[uuid.UUID]*attempt),
		landed:     make(chan *step, 1),
		dryAt:      now.Add(seldom * firstDry),
		dryFor:     firstDry,
		report:     Drained{Queue: wake.Queue, NextMS: -1},
	}
	r.crew = &crew{
		size: d.cfg.Concurrency, grace: d.cfg.Grace, limit: d.cfg.Timeout, wrap: d.mux.wrap,
		results: make(chan *attempt, 2*d.cfg.BatchSize+d.cfg.Concurrency),
		running: make(map[*attempt]struct{}),
	}
	if _, ok := d.cfg.Alarm.(queue.Clearer); ok {
		r.slot.Watch = uuid.New()
	}
	lease := d.cfg.Lease
	if deadline, ok := ctx.Deadline(); ok {
		left := deadline.Sub(now)
		margin := d.cfg.Margin
		if margin == 0 {
			margin = min(5*time.Second, left/5)
		}
		r.endAt, r.stopAt, r.cutAt = deadline, deadline.Add(-margin), deadline.Add(-margin/2)
		if lease == 0 {
			r.slot.Lease = left + d.cfg.Slack
		}
	} else if lease == 0 {
		lease = time.Minute
	}
	if lease > 0 {
		r.slot.Lease, r.renewEvery = lease, lease/3
		r.leash = time.AfterFunc(lease, func() { r.crew.end(ErrLeaseLost) })
		r.leash.Stop()
	}
	// Recording what was done must not fail because the caller's context has just ended. What
	// bounds it is the end of the leases.
	r.db, r.release = context.WithoutCancel(ctx), func() {}
	r.crew.ctx = r.db
	if !r.endAt.IsZero() {
		var endCrew, endDB context.CancelFunc
		r.crew.ctx, endCrew = context.WithDeadlineCause(r.crew.ctx, r.cutAt, ErrTimeUp)
		r.db, endDB = context.WithDeadline(r.db, r.endAt.Add(d.cfg.Slack))
		r.release = func() { endCrew(); endDB() }
	}
	return r
}

func (r *drain) run() error {
	switch {
	case r.d.tainted.Load():
		return ErrTainted
	case !r.mayClaim(): // a claim now would only burn attempts
		return fmt.Errorf("drain: no time left: %w", cmp.Or(context.Cause(r.ctx), context.DeadlineExceeded))
	}
	// Whatever the drain's goroutine waits for just then, a caller that stops the drain stops its handlers.
	defer context.AfterFunc(r.ctx, func() { r.crew.end(ErrTimeUp) })()
	if err := r.start(); err != nil {
		return err
	}
	if r.report.NoSlot {
		return r.noSlot()
	}
	for locked := 0; ; {
		if err := r.work(); err != nil {
			return err
		}
		again, err := r.leave()
		if err != nil || !again {
			return err
		}
		// Something is due, and no slot is held now.
		waited := r.waited
		if waited {
			locked, r.waited = 0, false
		}
		if locked == 3 {
			r.report.More = true
			if r.d.cfg.Alarm == nil {
				return r.handOver()
			}
			return r.arm(10 * time.Second)
		}
		if locked > 0 {
			_ = sleep(r.ctx, time.Duration(locked)*50*time.Millisecond)
		}
		if !r.mayClaim() {
			return r.handOver()
		}
		before := r.report.Claimed + r.report.Reaped
		if ok, err := r.retake(); err != nil {
			return err
		} else if !ok {
			return r.noSlot()
		}
		if r.report.Claimed+r.report.Reaped > before {
			locked, r.lively = 0, true
		} else if waited { // for another drain's lease, which was renewed: not again
			r.inVain = true
		} else { // seen, and not to be claimed: somebody holds its row's lock; do not spin
			locked++
		}
	}
}

func (r *drain) start() error {
	watching := false
	var tokens []uuid.UUID
	// Nothing is in hand yet, so a caller that stops need not wait for a database that is asleep.
	err := r.d.again(r.ctx, func(_ context.Context, conn *pgx.Conn, repeat bool) error {
		ctx, cancel := context.WithTimeout(r.db, patience)
		defer cancel()
		if repeat {
			if err := r.d.store.Abandon(ctx, conn, r.slot, tokens...); err != nil {
				return err
			}
		}
		r.asked = time.Now()
		t, err := r.d.store.Start(ctx, conn, r.slot, r.wake.Alarm, r.limit)
		tokens = append(tokens, t.Tokens...)
		if err != nil {
			r.undo(ctx, conn, t.Claimed)
			return err
		}
		r.headAt = time.Now().Add(heads)
		r.maxReaps = t.MaxReaps
		r.report.NoSlot = !t.Slot
		r.took(&t, r.limit)
		r.tick(ctx, conn, &t)
		watching = t.Watching
		return nil
	})
	if err != nil {
		r.orphans = append(r.orphans, tokens...)
	} else if watching && !r.watched && len(r.unfinished) > 0 {
		r.watch()
	}
	return err
}

// watch sets the alarm that was recorded for the case that this drain vanishes. The handlers run
// meanwhile.
func (r *drain) watch() {
	wake := queue.Wake{Version: 1, Queue: r.slot.Queue, Reason: queue.ReasonAlarm, Alarm: r.slot.Watch.String()}
	ctx, cancel := context.WithTimeout(r.db, alarmPatience)
	defer cancel()
	if err := r.d.cfg.Alarm.Set(ctx, wake, r.slot.WatchIn()); err != nil {
		r.d.cfg.Logger.WarnContext(r.ctx, "watch not set; if this drain vanishes the sweep takes its jobs back", "queue", r.slot.Queue, "error", err)
		return
	}
	r.watched = true
}

// unwatch takes back from the service what was taken back in the database: the watch of this drain, and the
// one that its enqueuer set in case the wake was lost. It fails harmlessly: the alarm then wakes a
// queue with nothing to do.
func (r *drain) unwatch() {
	clearer, ok := r.d.cfg.Alarm.(queue.Clearer)
	if !ok {
		return
	}
	var ids []string
	if r.watched {
		ids = append(ids, r.slot.Watch.String())
	}
	if r.wake.Alarm != "" && r.wake.Reason != queue.ReasonAlarm {
		ids = append(ids, r.wake.Alarm)
	}
	ctx, cancel := context.WithTimeout(r.db, alarmPatience)
	defer cancel()
	for _, id := range ids {
		if err := clearer.Clear(ctx, r.slot.Queue, id); err != nil {
			r.d.cfg.Logger.WarnContext(r.ctx, "watch not taken back; it goes off for nothing", "queue", r.slot.Queue, "error", err)
		}
	}
}

// alarmPatience is how long the alarm service may take for a drain's watch.
const alarmPatience = 3 * time.Second

// undo gives back what a start claimed after an earlier part of it had failed, as far as that is
// possible. It is tried again from the top then, and the first part must come first.
func (r *drain) undo(ctx context.Context, conn *pgx.Conn, claimed []queue.Claimed) {
	outcomes := make([]queue.Outcome, 0, len(claimed))
	for i := range claimed {
		outcomes = append(outcomes, release(&claimed[i]))
	}
	if len(outcomes) > 0 && !conn.IsClosed() {
		_, _ = r.d.store.Finish(ctx, queue.Unnamed(conn), outcomes)
	}
}

func (r *drain) retake() (bool, error) {
	r.slot.Token = uuid.New()
	r.relet()
	held, watching := false, false
	var tokens []uuid.UUID
	err := r.d.again(r.db, func(ctx context.Context, conn *pgx.Conn, repeat bool) error {
		if repeat {
			if err := r.d.store.Abandon(ctx, conn, r.slot, tokens...); err != nil {
				return err
			}
		}
		r.asked = time.Now()
		t, err := r.d.store.Retake(ctx, conn, r.slot, r.limit)
		tokens = append(tokens, t.Tokens...)
		if err != nil {
			return err
		}
		r.headAt = time.Now().Add(heads)
		held = t.Slot
		r.state = queue.Open
		r.took(&t, r.limit)
		r.tick(ctx, conn, &t)
		watching = t.Watching
		return nil
	})
	if err != nil {
		r.orphans = append(r.orphans, tokens...)
	} else if watching && !r.watched && len(r.unfinished) > 0 {
		r.watch()
	}
	return held, err
}

// relet makes the next lease end where the deadline says.
func (r *drain) relet() {
	if r.renewEvery == 0 && !r.endAt.IsZero() {
		r.slot.Lease = max(time.Until(r.endAt), 0) + r.d.cfg.Slack
	}
}

// tick makes the jobs of schedules that are due, and has the next step claim them.
func (r *drain) tick(ctx context.Context, conn *pgx.Conn, t *queue.Taken) {
	if !t.Slot || len(t.Schedules) == 0 {
		return
	}
	made, err := schedule.Tick(ctx, queue.Unnamed(conn), r.d.store, t.Schedules, t.Now)
	if err != nil {
		r.d.cfg.Logger.ErrorContext(r.ctx, "a schedule could not be evaluated", "queue", r.slot.Queue, "error", err)
	}
	r.report.Ticked += len(made)
	if len(made) > 0 {
		r.full = max(r.full, 1)
	}
}

// took hands what was claimed to the crew.
func (r *drain) took(t *queue.Taken, limit int) {
	now := time.Now()
	r.report.Claims++
	r.report.Claimed += len(t.Claimed)
	r.report.Reaped += t.Reaped
	if t.Full(limit) {
		r.full++
		switch since := now.Sub(r.lastClaim); {
		case since < 100*time.Millisecond:
			r.limit = 4 * limit
		case since > time.Second:
			r.limit = max(limit/2, min(r.d.cfg.Concurrency, r.d.cfg.BatchSize))
		}
		r.limit = r.bounded(r.limit, t.Claimed)
	} else {
		r.full = 0
		if r.wasLone { // which had its turn; look at the others that must run alone before leaving
			r.full = 1
		}
	}
	r.lastClaim = now
	r.alone = t.Alone()
	r.wasLone = r.alone
	r.cursor.Advance(t.Claimed)
	if len(r.unfinished) == 0 { // every lease in hand was set by this claim
		r.leased()
	}

	var attempts []*attempt
	for i := range t.Claimed {
		job := &t.Claimed[i]
		kind := r.d.mux.find(job.Kind)
		switch {
		case r.cut || r.d.tainted.Load(): // a place in the crew may stay taken for ever
			r.note(job, release(job), resultReleased, nil)
			continue
		case job.Reaps >= max(r.maxReaps, 1):
			r.note(job, vanished(job), resultFailed, errors.New("its drains vanished"))
			continue
		case kind == nil:
			r.d.cfg.Logger.WarnContext(r.ctx, "no handler for this kind; given back", "job_id", job.ID, "kind", job.Kind, "queue", job.Queue)
			r.note(job, unknown(job), resultUnknown, nil)
			continue
		}
		a := &attempt{job: job, kind: kind, store: r.d.store}
		a.ctx, a.cancel = context.WithCancelCause(r.crew.ctx)
		r.unfinished[job.ID] = a
		attempts = append(attempts, a)
	}
	r.crew.add(attempts)
}

// bounded is a limit for the next claim that keeps what it takes within [Config.BatchSize], within
// [Config.BatchBytes] if its payloads are like those of the last one, and within what the crew can run soon.
func (r *drain) bounded(limit int, last []queue.Claimed) int {
	limit = min(limit, r.d.cfg.BatchSize)
	if r.pace > 0 {
		limit = min(limit, max(r.d.cfg.Concurrency, int(time.Duration(r.d.cfg.Concurrency)*ahead/r.pace)))
	}
	size := 0
	for i := range last {
		size += len(last[i].Payload)
	}
	if size > 0 {
		limit = min(limit, max(1, r.d.cfg.BatchBytes*len(last)/size))
	}
	return limit
}

// leased notes that the oldest lease in hand was set by the call just made. Were it not renewed,
// the handlers end while the lease still keeps others off their jobs.
func (r *drain) leased() {
	if r.renewed = r.asked; r.leash != nil {
		r.leash.Reset(time.Until(r.leashEnd()))
	}
}

// leashEnd leaves a handler a fifth of the lease to return in.
func (r *drain) leashEnd() time.Time { return r.renewed.Add(r.slot.Lease * 4 / 5) }

// note notes what becomes of a job, to be recorded with the next step.
func (r *drain) note(job *queue.Claimed, o queue.Outcome, sort result, err error) {
	if len(r.finished) == 0 {
		r.firstFinished = time.Now()
	}
	e := ended{outcome: o, sort: sort}
	if o.Failed || o.State == queue.Failed {
		e.failure = &Failure{Job: job.Job, Err: err, Final: o.State == queue.Failed}
	}
	r.finished = append(r.finished, e)
}

// back takes an attempt back from the crew.
func (r *drain) back(a *attempt) {
	delete(r.unfinished, a.job.ID)
	if a.stuck {
		r.report.Stuck++
		r.d.tainted.Store(true)
		r.d.cfg.Logger.ErrorContext(r.ctx, "a handler ignores the end of its context; end this process", "job_id", a.job.ID, "kind", a.job.Kind)
		gone := &attempt{job: a.job, kind: a.kind, ctx: context.Background(), err: errors.New("the handler did not return after its context had ended")}
		gone.completed.Store(a.completed.Load())
		a = gone
		r.giveBack() // its place in the crew stays taken
	}
	if !a.began.IsZero() {
		if r.pace == 0 {
			r.pace = max(a.took, 1)
		}
		r.pace += (a.took - r.pace) / 8
	}
	if !r.cutAt.IsZero() && !a.began.IsZero() {
		a.hadItsTurn = a.took >= r.cutAt.Sub(r.began)/2
		if a.err == nil && !a.stuck {
			r.usual = max(r.usual, a.kind.took(a.took))
		}
	}
	o, sort := a.decide(r.d)
	if a.cancel != nil {
		a.cancel(nil)
	}
	r.note(a.job, o, sort, a.err)
	r.finished[len(r.finished)-1].completed = a.completed.Load()
}
