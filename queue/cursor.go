package queue

import (
	"bytes"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
)

// Cursor is how far a drain has come in its queue, for each priority. A claim that goes on from there does not
// walk over what was claimed and finished before, which matters where vacuum cannot remove it: beside a
// transaction that stays open a claim from the head takes longer and longer.
//
// It is a hint. Jobs can become due behind it (a slow enqueuer's commit, a job that was given back, a clock that
// was set back), so a drain claims from the head now and then, and what it takes its last look at begins
// there. The zero value is the head.
type Cursor struct {
	lanes [lanes]place
}

// place is a job's in the order of claims, within its priority.
type place struct {
	runAt time.Time
	id    uuid.UUID
}

// lanes are the priorities -10 to 10.
const lanes = 21

// Advance moves the cursor past these jobs. It never goes back.
func (c *Cursor) Advance(claimed []Claimed) {
	for i := range claimed {
		job := &claimed[i]
		lane := &c.lanes[job.Priority+lanes/2]
		if job.Reaps > 0 { // claimed alone, by another index
			continue
		}
		if order := job.RunAt.Compare(lane.runAt); order > 0 || order == 0 && bytes.Compare(job.ID[:], lane.id[:]) > 0 {
			*lane = place{job.RunAt, job.ID}
		}
	}
}

// Back is the cursor set back by a time, for what became due behind it a moment ago: the commit of a transaction that
// took a while.
func (c Cursor) Back(by time.Duration) Cursor {
	for i := range c.lanes {
		if lane := &c.lanes[i]; !lane.runAt.IsZero() {
			*lane = place{runAt: lane.runAt.Add(-by)}
		}
	}
	return c
}

func (c *Cursor) at() []time.Time {
	all := make([]time.Time, lanes)
	for i := range all {
		all[i] = c.lanes[i].runAt // the zero time is before any job's
	}
	return all
}

func (c *Cursor) id() []pgtype.UUID {
	all := make([]pgtype.UUID, lanes)
	for i := range all {
		all[i] = pgtype.UUID{Bytes: c.lanes[i].id, Valid: true}
	}
	return all
}
