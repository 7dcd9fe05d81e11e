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
	linger = 20 * time.Millisecond
	// streak is how many full claims in a row say that there is work for one more drain.
	streak = 8
	// quiet is how many claims in a row leave jobs that must run alone waiting.
	quiet = 200
)

// drain is one run of [Drainer.Drain]. All of its fields belong to one goroutine, which
// alone talks to the database; the crew's goroutines only run handlers.
type drain struct {
	d    *Drainer
	wake queue.Wake
	slot queue.Slot

	ctx context.Context // ends with the caller's patience
	db  context.Context // for the database: outlives ctx, to record what was done
	// release ends the contexts made here.
	release func()

	began                time.Time
	stopAt, cutAt, endAt time.Time // stop claiming, end the handlers, be gone; zero without a deadline
	renewEvery           time.Duration
	asked                time.Time   // when the last call that sets leases was sent
	renewed              time.Time   // when the oldest lease in hand was set, or before
	leash                *time.Timer // ends the handlers before that lease does
	unrenewed            bool        // the leases are given up
	maxReaps             int
	limit                int // of the next claim
	full                 int // full claims in a row
	lively               bool
	lastClaim, lastRing  time.Time
	state                queue.SlotState
	crew                 *crew
	unfinished           map[uuid.UUID]*attempt // handed to the crew and not back
	alone                bool                   // what is in hand must have no other beside it
	cut                  bool
	giveUpAt             time.Time // once cut
	finished             []queue.Outcome
	failures             []Failure
	ends                 map[uuid.UUID]end // of what is finished and not recorded
	firstFinished        time.Time
	report               Drained
}

// end is what an attempt came to.
type end struct {
	sort      result
	completed bool // by CompleteTx, if that was committed: then the fence refuses the outcome
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
	r := &drain{
		d: d, wake: wake, ctx: ctx, began: now,
		slot:       queue.Slot{Queue: wake.Queue, Token: uuid.New()},
		limit:      min(d.cfg.Concurrency, d.cfg.BatchSize),
		state:      queue.Open,
		unfinished: make(map[uuid.UUID]*attempt),
		ends:       make(map[uuid.UUID]end),
		report:     Drained{Queue: wake.Queue, NextMS: -1},
	}
	r.crew = &crew{
		size: d.cfg.Concurrency, grace: d.cfg.Grace, limit: d.cfg.Timeout, wrap: d.mux.wrap,
		results: make(chan *attempt, 2*d.cfg.BatchSize+d.cfg.Concurrency),
		running: make(map[*attempt]struct{}),
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
	// Recording what was done must not fail because the caller's context has just been
	// cancelled. Its deadline holds: there this process may freeze or end.
	r.db, r.release = context.WithoutCancel(ctx), func() {}
	r.crew.ctx = r.db
	if !r.endAt.IsZero() {
		var endCrew, endDB context.CancelFunc
		r.crew.ctx, endCrew = context.WithDeadlineCause(r.crew.ctx, r.cutAt, ErrTimeUp)
		r.db, endDB = context.WithDeadline(r.db, r.endAt)
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
	if err := r.start(); err != nil || r.report.NoSlot {
		return err
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
		if locked == 3 {
			r.report.More = true
			return r.arm(10 * time.Second)
		}
		if locked > 0 {
			_ = sleep(r.ctx, time.Duration(locked)*50*time.Millisecond)
		}
		if !r.mayClaim() {
			return r.handOver()
		}
		before := r.report.Claimed + r.report.Reaped
		if ok, err := r.retake(); err != nil || !ok {
			return err
		}
		if r.report.Claimed+r.report.Reaped > before {
			locked, r.lively = 0, true
		} else { // seen, and not to be claimed: somebody holds its row's lock; do not spin
			locked++
		}
	}
}

func (r *drain) start() error {
	// Nothing is in hand yet, so a caller that stops need not wait for a database that is asleep.
	err := r.d.again(r.ctx, func(_ context.Context, conn *pgx.Conn, repeat bool) error {
		ctx, cancel := context.WithTimeout(r.db, patience)
		defer cancel()
		if repeat {
			if err := r.d.store.Abandon(ctx, conn, r.slot); err != nil {
				return err
			}
		}
		r.asked = time.Now()
		t, err := r.d.store.Start(ctx, conn, r.slot, r.wake.Alarm, r.limit)
		if err != nil {
			r.undo(ctx, conn, t.Claimed)
			return err
		}
		r.maxReaps = t.MaxReaps
		r.report.NoSlot = !t.Slot
		r.took(&t, r.limit)
		r.tick(ctx, conn, &t)
		return nil
	})
	return err
}

// undo gives back what a start claimed after an earlier part of it had failed, as far as that is
// possible. It is tried again from the top then, and the first part must come first.
func (r *drain) undo(ctx context.Context, conn *pgx.Conn, claimed []queue.Claimed) {
	outcomes := make([]queue.Outcome, 0, len(claimed))
	for i := range claimed {
		outcomes = append(outcomes, release(&claimed[i]))
	}
	if len(outcomes) > 0 && !conn.IsClosed() {
		_, _ = r.d.store.Finish(ctx, unnamed{conn}, outcomes)
	}
}

func (r *drain) retake() (bool, error) {
	r.slot.Token = uuid.New()
	r.relet()
	held := false
	err := r.d.again(r.db, func(ctx context.Context, conn *pgx.Conn, repeat bool) error {
		if repeat {
			if err := r.d.store.Abandon(ctx, conn, r.slot); err != nil {
				return err
			}
		}
		r.asked = time.Now()
		t, err := r.d.store.Retake(ctx, conn, r.slot, r.limit)
		if err != nil {
			return err
		}
		held = t.Slot
		r.state = queue.Open
		r.took(&t, r.limit)
		r.tick(ctx, conn, &t)
		return nil
	})
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
	made, err := schedule.Tick(ctx, conn, r.d.store, t.Schedules, t.Now)
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
			r.limit = min(4*limit, r.d.cfg.BatchSize)
		case since > time.Second:
			r.limit = max(limit/2, min(r.d.cfg.Concurrency, r.d.cfg.BatchSize))
		}
	} else {
		r.full = 0
	}
	r.lastClaim = now
	r.alone = t.Alone()
	if len(r.unfinished) == 0 { // every lease in hand was set by this claim
		r.leased()
	}

	var attempts []*attempt
	for i := range t.Claimed {
		job := &t.Claimed[i]
		kind := r.d.mux.find(job.Kind)
		switch {
		case job.Reaps >= max(r.maxReaps, 1):
			r.note(job, vanished(job), end{sort: resultFailed}, errors.New("its drains vanished"))
			continue
		case kind == nil:
			r.d.cfg.Logger.WarnContext(r.ctx, "no handler for this kind; given back", "job_id", job.ID, "kind", job.Kind, "queue", job.Queue)
			r.note(job, unknown(job), end{sort: resultUnknown}, nil)
			continue
		}
		a := &attempt{job: job, kind: kind, store: r.d.store}
		a.ctx, a.cancel = context.WithCancelCause(r.crew.ctx)
		r.unfinished[job.ID] = a
		attempts = append(attempts, a)
	}
	r.crew.add(attempts)
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
func (r *drain) note(job *queue.Claimed, o queue.Outcome, e end, err error) {
	if len(r.finished) == 0 {
		r.firstFinished = time.Now()
	}
	r.finished = append(r.finished, o)
	r.ends[job.ID] = e
	if o.Failed || o.State == queue.Failed {
		r.failures = append(r.failures, Failure{Job: job.Job, Err: err, Final: o.State == queue.Failed})
	}
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
	if !r.cutAt.IsZero() && !a.began.IsZero() {
		a.hadItsTurn = time.Since(a.began) >= r.cutAt.Sub(r.began)/2
	}
	o, sort := a.decide(r.d)
	if a.cancel != nil {
		a.cancel(nil)
	}
	r.note(a.job, o, end{sort: sort, completed: a.completed.Load()}, a.err)
}

// mayClaim reports whether there is time for more.
func (r *drain) mayClaim() bool {
	return r.ctx.Err() == nil && !r.cut && !r.d.tainted.Load() && (r.stopAt.IsZero() || time.Now().Before(r.stopAt))
}

// mayRefill reports whether to claim while jobs are in hand.
func (r *drain) mayRefill() bool {
	// Now and then run dry, for a job that must run alone; but not for longer than a moment.
	dry := r.full > 0 && r.full%quiet == 0 && time.Since(r.lastClaim) < time.Second
	return !r.alone && !dry && r.mayClaim()
}

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
		case len(r.unfinished) > 0 && (r.full == 0 || r.idle() == 0):
			err = r.wait()
		case len(r.unfinished) > 0: // a batch is smaller than the crew
			err = r.step(r.limit)
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
		if r.full > 0 && len(r.unfinished) <= r.d.cfg.Concurrency && r.mayRefill() {
			return r.step(r.limit) // refill before it runs dry
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
	if len(r.finished) > 0 {
		sooner(r.firstFinished.Add(flush), r.record)
	}
	if r.state == queue.Open && r.mayClaim() {
		sooner(r.lastClaim.Add(settle), r.saturated)
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

// record records what is finished, and uses the round trip to claim for idle capacity.
func (r *drain) record() error {
	return r.step(r.idle())
}

// step finishes what is finished and claims up to limit jobs, in one round trip.
func (r *drain) step(limit int) error {
	r.relet()
	outcomes := r.finished
	mark := queue.SlotState("")
	if limit > 0 && r.state == queue.Busy {
		mark = queue.Open // there is room again
	}
	var t queue.Taken
	err := r.d.again(r.db, func(ctx context.Context, conn *pgx.Conn, repeat bool) (err error) {
		if repeat {
			t = queue.Taken{}
			return r.finishAgain(ctx, conn, outcomes)
		}
		r.asked = time.Now()
		t, err = r.d.store.Step(ctx, conn, r.slot, outcomes, limit, len(r.unfinished) == 0, mark)
		return err
	})
	if err != nil && queue.Classify(err) == queue.Permanent && len(outcomes) > 0 {
		err = r.finishSingly(outcomes)
	}
	if err != nil {
		return err
	}
	r.recorded(t.Held)
	if mark != "" {
		r.state = mark
	}
	if limit > 0 {
		r.took(&t, limit)
		if r.full > 0 && r.full%streak == 0 && time.Since(r.lastRing) > time.Second {
			return r.saturated()
		}
	}
	return nil
}

// finishAgain finishes outcomes whose first try may have been carried out. Those that are no longer
// held were recorded by it, or belong to somebody else by now.
func (r *drain) finishAgain(ctx context.Context, conn *pgx.Conn, outcomes []queue.Outcome) error {
	held, err := r.d.store.Finish(ctx, unnamed{conn}, outcomes)
	if err != nil {
		return err
	}
	missing := make(map[uuid.UUID]bool)
	for _, o := range outcomes {
		missing[o.ID] = true
	}
	for _, id := range held {
		delete(missing, id)
	}
	for _, o := range outcomes {
		if !missing[o.ID] {
			continue
		}
		job, err := r.d.store.Get(ctx, unnamed{conn}, o.ID)
		if err == nil && (job.State != o.State || job.Attempts != o.Attempts) || err != nil && !errors.Is(err, queue.ErrNotFound) {
			continue // somebody else's
		}
		held = append(held, o.ID)
	}
	r.recorded(held)
	return nil
}

// finishSingly records outcomes one by one after the database refused the batch, so that
// whatever is wrong with one of them stays with that one.
func (r *drain) finishSingly(outcomes []queue.Outcome) error {
	var held []uuid.UUID
	for _, o := range outcomes {
		err := r.d.conn(r.db, func(ctx context.Context, conn *pgx.Conn) error {
			ids, err := r.d.store.Finish(ctx, unnamed{conn}, []queue.Outcome{o})
			held = append(held, ids...)
			return err
		})
		if err != nil {
			if queue.Classify(err) != queue.Permanent {
				return err
			}
			r.d.cfg.Logger.ErrorContext(r.ctx, "an outcome could not be recorded; the job runs again when its lease ends", "job_id", o.ID, "error", err)
		}
	}
	r.recorded(held)
	return nil
}

// recorded counts the outcomes that the database took, and the others as lost.
func (r *drain) recorded(held []uuid.UUID) {
	if len(r.finished) == 0 {
		return
	}
	ok := make(map[uuid.UUID]bool, len(held))
	for _, id := range held {
		ok[id] = true
	}
	for _, o := range r.finished {
		e := r.ends[o.ID]
		delete(r.ends, o.ID)
		switch {
		case ok[o.ID]:
		case e.completed:
			e.sort = resultDone
		default:
			e.sort = resultLost
		}
		r.count(e.sort)
	}
	r.finished = nil
	failures := r.failures
	r.failures = nil
	for _, f := range failures {
		if ok[f.Job.ID] && r.d.cfg.OnFailure != nil {
			r.onFailure(f)
		}
	}
}

func (r *drain) onFailure(f Failure) {
	defer func() {
		if v := recover(); v != nil {
			r.d.cfg.Logger.ErrorContext(r.ctx, "OnFailure panicked", "job_id", f.Job.ID, "panic", v)
		}
	}()
	r.d.cfg.OnFailure(r.ctx, f)
}

func (r *drain) count(sort result) {
	switch sort {
	case resultDone:
		r.report.Done++
	case resultRetried:
		r.report.Retried++
	case resultFailed:
		r.report.Failed++
	case resultSnoozed:
		r.report.Snoozed++
	case resultInterrupted:
		r.report.Interrupted++
	case resultReleased:
		r.report.Released++
	case resultUnknown:
		r.report.Unknown++
	case resultLost:
		r.report.Lost++
	}
}

// saturated says that this drain will not look again soon, and asks for one more if
// there is more to do.
func (r *drain) saturated() error {
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
		r.note(a.job, release(a.job), end{sort: resultReleased}, nil)
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
		held, next, err := r.d.store.Exit(ctx, conn, r.slot, r.finished)
		if err == nil {
			r.recorded(held)
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
	outcomes := r.finished
	var held []uuid.UUID
	var next queue.Next
	err := r.d.again(r.db, func(ctx context.Context, conn *pgx.Conn, repeat bool) (err error) {
		if repeat && len(r.finished) > 0 {
			if err := r.finishAgain(ctx, conn, outcomes); err != nil {
				return err
			}
		}
		if len(r.finished) == 0 {
			outcomes = nil
		}
		held, next, err = r.d.store.Exit(ctx, conn, r.slot, outcomes)
		return err
	})
	if err != nil && queue.Classify(err) == queue.Permanent && len(r.finished) > 0 {
		if err = r.finishSingly(outcomes); err == nil {
			return r.leave()
		}
	}
	if err != nil {
		return false, err
	}
	r.recorded(held)
	r.report.NextMS = -1
	switch {
	case next.Due:
		return true, nil
	case next.In >= 0:
		r.report.NextMS = next.In.Milliseconds()
		return false, r.arm(next.In)
	}
	return false, nil
}

var errAlarm = errors.New("the alarm service did not take it")

// arm sets the queue's alarm, unless one is set that goes off no later. The sweep covers one
// that could not be set.
func (r *drain) arm(in time.Duration) error {
	if r.d.cfg.Alarm == nil {
		return nil
	}
	var refused error
	alarm := queue.AlarmFunc(func(ctx context.Context, wake queue.Wake, in time.Duration) error {
		if refused = r.d.cfg.Alarm.Set(ctx, wake, in); refused != nil {
			return errAlarm // not the service's own error: only what the database says is worth another try here
		}
		return nil
	})
	err := r.d.again(r.db, func(ctx context.Context, conn *pgx.Conn, _ bool) error {
		_, err := r.d.store.SetAlarm(ctx, unnamed{conn}, alarm, r.slot.Queue, in)
		return err
	})
	if err = cmp.Or(refused, err); err != nil {
		r.d.cfg.Logger.WarnContext(r.ctx, "alarm not set; the sweep covers it", "queue", r.slot.Queue, "in", in, "error", err)
	}
	return nil
}

// handOver records what is left, gives the slot up and fires a successor if something is due.
func (r *drain) handOver() error {
	outcomes := r.finished
	var held []uuid.UUID
	rang := false
	err := r.d.again(r.db, func(ctx context.Context, conn *pgx.Conn, repeat bool) (err error) {
		if repeat && len(r.finished) > 0 {
			if err := r.finishAgain(ctx, conn, outcomes); err != nil {
				return err
			}
		}
		if len(r.finished) == 0 {
			outcomes = nil
		}
		held, rang, err = r.d.store.HandOver(ctx, conn, r.slot, outcomes, r.d.cfg.Bell)
		return err
	})
	if err != nil && queue.Classify(err) == queue.Permanent && len(r.finished) > 0 {
		if err = r.finishSingly(outcomes); err == nil {
			return r.handOver()
		}
	}
	if err != nil {
		return err
	}
	r.recorded(held)
	r.report.More = rang || r.report.Released+r.report.Interrupted > 0
	if !rang {
		return nil
	}
	hop := r.wake.Hop + 1
	if r.report.Claimed == r.report.Released+r.report.Interrupted+r.report.Unknown {
		hop += r.d.cfg.MaxHops / 10 // nothing got done: not often
	}
	if hop > r.d.cfg.MaxHops {
		r.d.cfg.Logger.WarnContext(r.ctx, "not handing over: too many hops", "queue", r.slot.Queue, "hop", hop)
		if err := r.d.conn(r.db, func(ctx context.Context, conn *pgx.Conn) error {
			return r.d.store.Unring(ctx, unnamed{conn}, r.slot.Queue)
		}); err != nil {
			return err
		}
		return r.arm(time.Minute) // a new chain, after a pause
	}
	r.report.HandedOver = r.d.fire(r.db, queue.Wake{Version: 1, Queue: r.slot.Queue, Reason: queue.ReasonHandoff, Hop: hop})
	if !r.report.HandedOver {
		return r.arm(10 * time.Second)
	}
	return nil
}
