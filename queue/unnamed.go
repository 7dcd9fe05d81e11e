package queue

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Unnamed returns db with each statement sent unnamed, whatever db's own mode: behind a
// transaction-mode pooler the next statement may meet another server. What Doze runs by itself, outside
// a caller's transaction, runs so.
func Unnamed(db DB) DB { return unnamed{db} }

// unnamed sends each statement in one message group and prepares nothing by name.
type unnamed struct{ db DB }

func (u unnamed) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return u.db.Exec(ctx, sql, u.with(args)...)
}

func (u unnamed) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return u.db.Query(ctx, sql, u.with(args)...)
}

func (u unnamed) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return u.db.QueryRow(ctx, sql, u.with(args)...)
}

func (unnamed) with(args []any) []any { return append([]any{pgx.QueryExecModeExec}, args...) }
