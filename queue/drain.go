package queue

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// The steps of a drain. Each is one round trip of several transactions whose order is
// the wake protocol: see docs/wake.md for why none may be moved or merged.

// Slot is a drain's right to run, and what its claims are made with.
type Slot struct {
	Queue string
	// Token that the drain chose for itself, fresh for each slot.
	Token uuid.UUID
	// Lease is how long a slot and a claim are held before they must be renewed.
	Lease time.Duration
	// Watch is the id of an alarm for the end of the lease, should the drain vanish; zero for none. Start
	// and Retake record it, Exit and HandOver take it back before their last look.
	Watch uuid.UUID
	// From is where claims go on. Zero: from the head of the queue. Start and Retake always begin there.
	From Cursor
}

// WatchIn is how long from its start a slot's watch goes off: just after its lease has ended, and within
// what arm.sql takes for the same time, so that others do not set an alarm for that end too.
func (s Slot) WatchIn() time.Duration { return s.Lease + 50*time.Millisecond }

// Taken is what a drain got by [Store.Start] or [Store.Retake], and by each [Store.Step].
type Taken struct {
	// Slot is true if the drain holds its slot. Without it nothing is claimed. Not
	// set by Step.
	Slot bool
	// Watching is true if the slot's watch was recorded, and is to be set outside.
	Watching bool
	// MaxReaps is the queue's limit, set by Start only. 0 if the queue has no row.
	MaxReaps int
	// Claimed jobs, in the order in which to run them.
	Claimed []Claimed
	// Reaped is how many expired leases the claim met and took back.
	Reaped int
	// Schedules of the queue that are due, and the database's time; set by Start and Retake.
	Schedules []Schedule
	Now       time.Time
	// Tokens that the claims were made with, even if it is not known what they took: see [Store.GiveBack].
	Tokens []uuid.UUID
	// Held are the ids whose outcome was accepted, set by Step and Exit.
	Held []uuid.UUID
}

// Full reports whether the claim found as much as it asked for, so that there may be more.
func (t *Taken) Full(limit int) bool { return len(t.Claimed)+t.Reaped >= limit || t.Alone() }

// Alone reports whether what was claimed is one job that must run with no other beside it.
func (t *Taken) Alone() bool { return len(t.Claimed) == 1 && t.Claimed[0].Reaps > 0 }

// Start begins a drain: it answers the queue's bell, takes a slot and claims up to limit
// jobs. Alarm is the id of the alarm that brought the wake, if one did.
func (s *Store) Start(ctx context.Context, conn *pgx.Conn, slot Slot, alarm string, limit int) (Taken, error) {
	var t Taken
	if _, err := uuid.Parse(alarm); err != nil {
		alarm = "" // untrusted, and of no use
	}
	version, granted := SchemaVersion, true
	answer := s.call("answer bell", "answer_bell", func(rows pgx.Rows) error { return rows.Scan(&t.MaxReaps, &version, &granted, nil) }, slot.Queue, alarm)
	err := pipeline(ctx, conn, append([][]call{{answer}}, s.take(slot, limit, &t)...)...)
	switch {
	case err != nil:
	case version < SchemaVersion:
		err = fmt.Errorf("start: schema %q is at version %d, this build needs %d: %w; run doze migrate", s.schema, version, SchemaVersion, ErrMisconfigured)
	case !granted:
		err = fmt.Errorf("start: this role may not delete from jobs and insert into history in schema %q: %w; grant it the drain role", s.schema, ErrMisconfigured)
	}
	t.sort()
	return t, err
}

// raiseOnceIn is after about how many jobs an exit raises the floor.
const raiseOnceIn = 64

// Abandon gives up whatever slot holds this token, and gives back what the claims with these tokens
// took: before a Start or Retake is made again whose answer was lost.
func (s *Store) Abandon(ctx context.Context, conn *pgx.Conn, slot Slot, tokens ...uuid.UUID) error {
	groups := [][]call{{s.freeSlot(slot)}}
	if len(tokens) > 0 {
		groups = append(groups, []call{s.giveBack(slot.Queue, tokens)})
	}
	return pipeline(ctx, conn, groups...)
}

// GiveBack gives back what claims with these tokens took, after a Step whose answer was lost: nobody
// knows of it, so nobody would run it before its lease has ended.
func (s *Store) GiveBack(ctx context.Context, db DB, queueName string, tokens []uuid.UUID) error {
	return run(ctx, db, s.giveBack(queueName, tokens))
}

func (s *Store) giveBack(queueName string, tokens []uuid.UUID) call {
	texts := make([]string, len(tokens))
	for i, t := range tokens {
		texts[i] = t.String()
	}
	return s.call("give back", "give_back", nil, queueName, texts)
}

// Retake takes a slot again and claims, after a last look that found a due job.
func (s *Store) Retake(ctx context.Context, conn *pgx.Conn, slot Slot, limit int) (Taken, error) {
	var t Taken
	err := pipeline(ctx, conn, s.take(slot, limit, &t)...)
	t.sort()
	return t, err
}

// Step finishes outcomes and claims up to limit more jobs, as one transaction; a claim from the head
// raises the queue's floor after it. With
// alone it may claim a job that must run alone, so nothing else may be running. State
// is [Open] or [Busy] to change the slot's mark, empty to leave it.
func (s *Store) Step(ctx context.Context, conn *pgx.Conn, slot Slot, outcomes []Outcome, limit int, alone bool, state SlotState) (Taken, error) {
	var t Taken
	var group []call
	if len(outcomes) > 0 {
		group = append(group, s.finishing(slot.Queue, outcomes, &t.Held)...)
	}
	if state != "" {
		group = append(group, s.markSlot(slot, state))
	}
	if limit > 0 {
		group = append(group, s.claim("in_order", slot, limit, alone, &t)...)
	}
	if len(group) == 0 {
		return t, nil
	}
	groups := [][]call{group}
	if limit > 0 && slot.From == (Cursor{}) {
		groups = append(groups, s.raise(slot.Queue))
	}
	err := pipeline(ctx, conn, groups...)
	if failed := (*groupError)(nil); errors.As(err, &failed) && failed.group > 0 {
		err = nil // by then it was committed, and read
	}
	if err != nil {
		return Taken{Tokens: t.Tokens}, err
	}
	t.sort()
	return t, nil
}

// SlotState is what the holder of a slot promises.
type SlotState string

// The marks of a slot in use.
const (
	Open SlotState = "open" // it will look for jobs again soon
	Busy SlotState = "busy" // it will not
)

// Saturated marks a slot busy, and then rings if a job is due. True: the caller must fire
// the trigger for one more drain.
func (s *Store) Saturated(ctx context.Context, conn *pgx.Conn, slot Slot, bell time.Duration) (bool, error) {
	rang := false
	err := pipeline(ctx, conn, []call{s.markSlot(slot, Busy)}, s.ringIfDue(slot.Queue, bell, &rang))
	return rang, err
}

// Renew renews a slot and the leases of the jobs in hand, and returns the ids still held.
func (s *Store) Renew(ctx context.Context, conn *pgx.Conn, slot Slot, state SlotState, jobs []Claimed) ([]uuid.UUID, error) {
	var held []uuid.UUID
	group := []call{s.markSlot(slot, state)}
	if len(jobs) > 0 {
		group = append(group, s.call("extend", "by_index", nil), s.extend(jobs, slot.Lease, &held))
	}
	err := pipeline(ctx, conn, group)
	return held, err
}

// Exit finishes outcomes, gives the slot up, and then takes the last look. If a job is
// due the drain must go on with [Store.Retake], or fire a successor.
func (s *Store) Exit(ctx context.Context, conn *pgx.Conn, slot Slot, outcomes []Outcome) (held []uuid.UUID, next Next, err error) {
	free := []call{s.freeSlot(slot)}
	if len(outcomes) > 0 {
		free = append(s.finishing(slot.Queue, outcomes, &held), free...)
	}
	groups := append([][]call{free}, s.unwatch(slot)...)
	groups = append(groups, []call{s.inOrder("last look"), s.next(slot.Queue, &next)})
	looked := len(groups)
	// For many drains that each find a few jobs, and none of which stays for long.
	if rand.N(raiseOnceIn) < max(len(outcomes), 1) {
		groups = append(groups, s.raise(slot.Queue))
	}
	err = pipeline(ctx, conn, groups...)
	if failed := (*groupError)(nil); errors.As(err, &failed) && failed.group >= looked {
		err = nil
	}
	return held, next, err
}

// HandOver finishes outcomes, gives the slot up and rings if a job is due. True: the caller
// must fire its successor.
func (s *Store) HandOver(ctx context.Context, conn *pgx.Conn, slot Slot, outcomes []Outcome, bell time.Duration) (held []uuid.UUID, rang bool, err error) {
	free := []call{s.freeSlot(slot)}
	if len(outcomes) > 0 {
		free = append(s.finishing(slot.Queue, outcomes, &held), free...)
	}
	groups := append([][]call{free}, s.unwatch(slot)...)
	err = pipeline(ctx, conn, append(groups, s.ringIfDue(slot.Queue, bell, &rang))...)
	return held, rang, err
}

// take is what Start and Retake have in common.
func (s *Store) take(slot Slot, limit int, t *Taken) [][]call {
	slot.From = Cursor{}
	groups := [][]call{{s.takeSlot(slot, t)}, s.claim("in_order_unsynced", slot, limit, true, t), s.ticking(slot, t)}
	if slot.Watch != uuid.Nil {
		groups = append(groups, []call{s.call("watch", "watch", func(pgx.Rows) error { t.Watching = true; return nil },
			slot.Queue, slot.Token.String(), ms(slot.WatchIn()), slot.Watch.String(), ms(alarmGrace))})
	}
	return groups
}

// unwatch is the group that takes a slot's watch back, if it has one.
func (s *Store) unwatch(slot Slot) [][]call {
	if slot.Watch == uuid.Nil {
		return nil
	}
	return [][]call{{s.call("unwatch", "unarm", nil, slot.Queue, slot.Watch.String())}}
}

func (s *Store) takeSlot(slot Slot, t *Taken) call {
	return s.call("take slot", "take_slot", func(pgx.Rows) error { t.Slot = true; return nil },
		slot.Queue, slot.Token.String(), ms(slot.Lease), int32(SchemaVersion))
}

// ticking reads the queue's schedules that are due. After the slot was taken, so that whoever sees
// one due has a drain to see to it.
func (s *Store) ticking(slot Slot, t *Taken) []call {
	return []call{s.dueSchedules(slot.Queue, &t.Schedules, &t.Now)}
}

func (s *Store) freeSlot(slot Slot) call {
	return s.call("free slot", "free_slot", nil, slot.Queue, slot.Token.String())
}

func (s *Store) markSlot(slot Slot, state SlotState) call {
	return s.call("mark slot", "mark_slot", nil, slot.Queue, slot.Token.String(), string(state), ms(slot.Lease))
}

func (s *Store) ringIfDue(queueName string, bell time.Duration, rang *bool) []call {
	return []call{s.inOrder("ring"), s.call("ring", "ring_if_due", func(pgx.Rows) error { *rang = true; return nil }, queueName, ms(bell))}
}

// inOrder has what follows in its transaction read jobs by index, whatever the planner thinks of their number.
func (s *Store) inOrder(op string) call {
	c := s.call(op, "in_order", nil)
	c.setting = true
	return c
}

// raise is the group that raises a queue's floor. It does no harm if it fails, nor if it is left out but to those who look
// for jobs beside a snapshot that stays open.
func (s *Store) raise(queueName string) []call {
	return []call{s.inOrder("raise floor"), s.call("raise floor", "lock_floor", nil, queueName), s.call("raise floor", "raise_floor", nil, queueName)}
}

// claim is two claims of one transaction: with alone one job that must run alone, and else a batch. Hint is how
// the transaction begins.
func (s *Store) claim(hint string, slot Slot, limit int, alone bool, t *Taken) []call {
	token, lone := uuid.New(), uuid.New()
	t.Tokens = append(t.Tokens, token, lone)
	calls := []call{s.call("claim", hint, nil)}
	if alone {
		calls = append(calls, s.call("claim", "claim_alone", readClaimed(t, slot.Queue, lone), slot.Queue, slot.Token.String(), lone.String(), ms(slot.Lease)))
	}
	return append(calls, s.call("claim", "claim", readClaimed(t, slot.Queue, token),
		slot.Queue, slot.Token.String(), token.String(), ms(slot.Lease), int32(limit), lone.String(), slot.From.at(), slot.From.id()))
}

func readClaimed(t *Taken, queueName string, token uuid.UUID) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		c := Claimed{Token: token}
		c.State, c.Queue = Running, queueName
		var claimed bool
		if err := rows.Scan(&claimed, (*[16]byte)(&c.ID), &c.Kind, &c.Priority, &c.RunAt, &c.Attempts, &c.Failures, &c.MaxAttempts,
			&c.Reaps, &c.CreatedAt, &c.Key, &c.LastError, (*[]byte)(&c.Payload)); err != nil {
			return err
		}
		if claimed {
			t.Claimed = append(t.Claimed, c)
		} else {
			t.Reaped++
		}
		return nil
	}
}

// sort puts claimed jobs in the order in which they are to run, which RETURNING does not keep.
func (t *Taken) sort() {
	slices.SortFunc(t.Claimed, func(a, b Claimed) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), a.RunAt.Compare(b.RunAt), bytes.Compare(a.ID[:], b.ID[:]))
	})
}
