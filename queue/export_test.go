package queue

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Places are the cursor's, as claim.sql is given them.
func (c *Cursor) Places() ([]time.Time, []pgtype.UUID) { return c.at(), c.id() }

// Steps of a drain that the store makes in one round trip with others. Here each is made by itself, for a test
// that puts them in another order: a transaction of its own, or a part of the one that is open on conn.

// AnswerBell answers a queue's bell.
func (s *Store) AnswerBell(ctx context.Context, conn *pgx.Conn, queueName string) error {
	return pipeline(ctx, conn, []call{s.call("answer bell", "answer_bell", nil, queueName, "")})
}

// TakeSlot takes a slot, if one is to be had.
func (s *Store) TakeSlot(ctx context.Context, conn *pgx.Conn, slot Slot) (bool, error) {
	var t Taken
	err := pipeline(ctx, conn, []call{s.takeSlot(slot, &t)})
	return t.Slot, err
}

// RingIfDue rings if a job is due.
func (s *Store) RingIfDue(ctx context.Context, conn *pgx.Conn, queueName string, bell time.Duration) (bool, error) {
	rang := false
	err := pipeline(ctx, conn, s.ringIfDue(queueName, bell, &rang))
	return rang, err
}

// FreeSlotIf gives a slot up if a condition holds, all in one statement.
func (s *Store) FreeSlotIf(ctx context.Context, conn *pgx.Conn, slot Slot, condition string) (bool, error) {
	freed := false
	c := s.freeSlot(slot)
	c.sql += " AND " + Qualify(condition, s.schema) + " RETURNING s.slot"
	c.read = func(pgx.Rows) error { freed = true; return nil }
	err := pipeline(ctx, conn, []call{c})
	return freed, err
}
