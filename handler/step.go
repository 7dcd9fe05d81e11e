package handler

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/dozequeue/doze/queue"
)

// ended is an attempt that has ended, to be recorded with the next step.
type ended struct {
	outcome queue.Outcome
	sort    result
	// completed by CompleteTx, if that was committed: then the fence refuses the outcome.
	completed bool
	failure   *Failure // nil if it is none
}

func outcomes(of []ended) []queue.Outcome {
	all := make([]queue.Outcome, len(of))
	for i := range of {
		all[i] = of[i].outcome
	}
	return all
}

// step is one round trip that finishes what is finished and claims more. It is under way beside the drain,
// which goes on with what it has in hand meanwhile.
type step struct {
	slot  queue.Slot
	ended []ended
	limit int  // of the claim; 0 for none
	alone bool // may claim a job that must run alone
	mark  queue.SlotState
	head  bool // from the head of the queue, not from the cursor
	sent  time.Time

	taken queue.Taken
	held  []uuid.UUID
	err   error
}

// make makes the round trip.
func (s *step) make(ctx context.Context, d *Drainer) error {
	all := outcomes(s.ended)
	return d.again(ctx, func(ctx context.Context, conn *pgx.Conn, repeat bool) (err error) {
		if repeat {
			tokens := s.taken.Tokens
			s.taken = queue.Taken{Tokens: tokens}
			if len(tokens) > 0 {
				if err := d.store.GiveBack(ctx, queue.Unnamed(conn), s.slot.Queue, tokens); err != nil {
					return err
				}
			}
			s.held, err = d.finishAgain(ctx, conn, all)
			return err
		}
		s.sent = time.Now()
		s.taken, err = d.store.Step(ctx, conn, s.slot, all, s.limit, s.alone, s.mark)
		s.held = s.taken.Held
		return err
	})
}

// launch begins a step that finishes what is finished and claims up to limit jobs. None may be under way.
func (r *drain) launch(limit int) {
	r.relet()
	s := &step{slot: r.slot, ended: r.finished, limit: limit, sent: time.Now()}
	r.finished = nil
	if limit > 0 && r.state == queue.Busy {
		s.mark = queue.Open // there is room again
	}
	if len(r.unfinished) == 0 && limit > 0 {
		s.alone = !r.wasLone // in turns: many that must run alone would keep all others waiting
		r.dryAt = time.Now().Add(seldom * r.drying())
	}
	switch {
	case !s.sent.Before(r.headAt):
		s.head = true
	case !s.sent.Before(r.backAt):
		s.slot.From = r.cursor.Back(behind)
		r.backAt = s.sent.Add(heads)
	default:
		s.slot.From = r.cursor
	}
	r.underWay = s
	go func() {
		s.err = s.make(r.db, r.d)
		r.landed <- s
	}()
}

// land waits for the step that is under way, if one is, and goes by what it brought. Whatever else is done
// to the database comes after it.
func (r *drain) land() error {
	if r.underWay == nil {
		return nil
	}
	return r.accept(<-r.landed)
}

// accept goes by what a step brought.
func (r *drain) accept(s *step) error {
	r.underWay = nil
	r.stepTook = time.Since(s.sent)
	if s.err != nil {
		r.orphans = append(r.orphans, s.taken.Tokens...)
		r.finished = append(s.ended, r.finished...)
		if queue.Classify(s.err) == queue.Permanent && len(s.ended) > 0 {
			return r.finishSingly()
		}
		return s.err
	}
	r.recorded(s.ended, s.held)
	if s.mark != "" {
		r.state = s.mark
	}
	if s.limit > 0 {
		if s.head {
			r.headAt = time.Now().Add(min(max(heads, 100*r.stepTook), rarest))
			r.backAt = time.Now().Add(heads)
		}
		r.asked = s.sent
		r.took(&s.taken, s.limit)
		if r.full > 0 && r.full%streak == 0 && time.Since(r.lastRing) > time.Second {
			return r.saturated()
		}
	}
	return nil
}

// step finishes what is finished and claims up to limit jobs, and waits for it.
func (r *drain) step(limit int) error {
	if err := r.land(); err != nil {
		return err
	}
	r.launch(limit)
	return r.land()
}

// record records what is finished, and uses the round trip to claim for idle capacity.
func (r *drain) record() error {
	if err := r.land(); err != nil {
		return err
	}
	return r.step(r.idle())
}

// refill claims for what runs out.
func (r *drain) refill() error {
	// What waits for its turn begins when others have ended.
	late := len(r.unfinished) >= r.d.cfg.Concurrency && !r.stopAt.IsZero() && time.Now().Add(2*r.usual).After(r.stopAt)
	if r.underWay == nil && r.full > 0 && r.low() && r.mayRefill() && !late {
		r.launch(r.limit)
	}
	return nil
}

// low reports whether to claim more: nothing waits for its turn, or not for longer than a step takes.
func (r *drain) low() bool { return len(r.unfinished) <= r.d.cfg.Concurrency || r.soon() }

// soon reports whether what is in hand will have run out by the time that more could be here.
func (r *drain) soon() bool {
	n := len(r.unfinished)
	return r.pace > 0 && n <= r.d.cfg.BatchSize && time.Duration(n)*r.pace <= r.stepTook*time.Duration(r.d.cfg.Concurrency)
}

// unrecorded are the outcomes that are left to record in a call that may be a repeat.
func (r *drain) unrecorded(ctx context.Context, conn *pgx.Conn, repeat bool) ([]queue.Outcome, error) {
	if repeat && len(r.finished) > 0 {
		held, err := r.d.finishAgain(ctx, conn, outcomes(r.finished))
		if err != nil {
			return nil, err
		}
		r.settle(held)
	}
	return outcomes(r.finished), nil
}

// finishAgain finishes outcomes whose first try may have been carried out. Those that are no longer
// held were recorded by it, or belong to somebody else by now.
func (d *Drainer) finishAgain(ctx context.Context, conn *pgx.Conn, all []queue.Outcome) ([]uuid.UUID, error) {
	if len(all) == 0 {
		return nil, nil
	}
	held, err := d.store.Finish(ctx, queue.Unnamed(conn), all)
	if err != nil {
		return nil, err
	}
	missing := make(map[uuid.UUID]bool)
	for _, o := range all {
		missing[o.ID] = true
	}
	for _, id := range held {
		delete(missing, id)
	}
	for _, o := range all {
		if !missing[o.ID] {
			continue
		}
		job, err := d.store.Get(ctx, queue.Unnamed(conn), o.ID)
		switch {
		case err != nil && !errors.Is(err, queue.ErrNotFound):
			return nil, err
		case err == nil && (job.State != o.State || job.Attempts != o.Attempts):
			continue // somebody else's
		}
		held = append(held, o.ID)
	}
	return held, nil
}

// finishSingly records outcomes one by one after the database refused the batch, so that
// whatever is wrong with one of them stays with that one.
func (r *drain) finishSingly() error {
	var held []uuid.UUID
	for _, o := range outcomes(r.finished) {
		err := r.d.conn(r.db, func(ctx context.Context, conn *pgx.Conn) error {
			ids, err := r.d.store.Finish(ctx, queue.Unnamed(conn), []queue.Outcome{o})
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
	r.settle(held)
	return nil
}

// settle counts what is finished by the ids that the database took.
func (r *drain) settle(held []uuid.UUID) {
	all := r.finished
	r.finished = nil
	r.recorded(all, held)
}

// recorded counts the outcomes that the database took, and the others as lost.
func (r *drain) recorded(all []ended, held []uuid.UUID) {
	var ok map[uuid.UUID]bool // nil for all
	if len(held) != len(all) {
		ok = make(map[uuid.UUID]bool, len(held))
		for _, id := range held {
			ok[id] = true
		}
	}
	for _, e := range all {
		taken := ok == nil || ok[e.outcome.ID]
		switch {
		case taken:
		case e.completed:
			e.sort = resultDone
		default:
			e.sort = resultLost
		}
		r.count(e.sort)
		if taken && e.failure != nil && r.d.cfg.OnFailure != nil {
			r.onFailure(*e.failure)
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
