package queue

import (
	"context"
	"embed"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

//go:embed sql/*.sql
var files embed.FS

// DB runs statements: a *pgxpool.Pool, a *pgx.Conn or a pgx.Tx. Any of pgx's query
// exec modes will do, and so will a transaction-mode pooler.
type DB interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Store is the SQL of one schema: a method for each statement of a job's life. It holds no
// connection and no state, and any number of goroutines may use it.
//
// These are the building blocks of packages enqueue, handler and sweeper. Most
// programs call those, and from here only Get, List, Count, Cancel and Retry.
type Store struct {
	schema string
	sql    map[string]string // by file name
}

// Schema returns the schema's name.
func (s *Store) Schema() string { return s.schema }

// call is one statement with its arguments, and what reads its rows.
type call struct {
	op   string // for errors
	sql  string
	args []any
	read func(pgx.Rows) error
	// setting is true if it only sets something for the rest of its transaction.
	setting bool
}

func (s *Store) call(op, file string, read func(pgx.Rows) error, args ...any) call {
	sql, ok := s.sql[file]
	if !ok {
		panic("queue: no statement " + file) // a slip in this package, met by any test of the method
	}
	return call{op: op, sql: sql, args: args, read: read}
}

// run makes one call through pgx.
func run(ctx context.Context, db DB, c call) error {
	rows, err := db.Query(ctx, c.sql, c.args...)
	if err == nil {
		err = consume(rows, c.read)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", c.op, err)
	}
	return nil
}

func consume(rows pgx.Rows, read func(pgx.Rows) error) error {
	defer rows.Close()
	for rows.Next() {
		if read == nil {
			continue
		}
		if err := read(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// pipeline makes calls in one round trip. Each group is a transaction of its own: where one
// must see what another committed, or must not be undone with it, they are
// separate groups. Later groups still run if an earlier one fails, so they must be
// harmless then; the first error is returned, as a [groupError] that says in which group.
//
// The statements' parameter types are given, so a fresh connection needs no round trip to prepare them. They
// are unnamed at first, and behind a pooler: see [prepared].
func pipeline(ctx context.Context, conn *pgx.Conn, groups ...[]call) error {
	p := preparedBy(conn)
	if ask := p.ask(conn); ask != nil {
		groups = append(groups, ask)
	}
	added := make(map[string]string)
	at, err := pipelined(ctx, conn, groups, p, added)
	p.after(added, err)
	if err != nil {
		return &groupError{group: at, err: err}
	}
	return nil
}

// groupError is the first error of a pipeline. The groups before its own are committed; what
// became of its own and of those after it is told by the error alone.
type groupError struct {
	group int
	err   error
}

func (e *groupError) Error() string { return e.err.Error() }
func (e *groupError) Unwrap() error { return e.err }

func pipelined(ctx context.Context, conn *pgx.Conn, groups [][]call, names *prepared, added map[string]string) (at int, err error) {
	types := conn.TypeMap()
	p := conn.PgConn().StartPipeline(ctx)
	for _, group := range groups {
		for _, c := range group {
			values, oids, formats, err := encode(conn, c.args)
			if err != nil {
				_ = p.Close()
				return 0, fmt.Errorf("%s: %w", c.op, err)
			}
			if !names.direct {
				p.SendQueryParams(c.sql, values, oids, formats, []int16{pgx.BinaryFormatCode})
				continue
			}
			name, fresh := names.name(c.sql, added)
			if fresh {
				p.SendPrepare(name, c.sql, oids)
			}
			p.SendQueryPrepared(name, values, formats, []int16{pgx.BinaryFormatCode})
		}
		p.SendPipelineSync()
	}
	if err := p.Flush(); err != nil {
		_ = p.Close()
		return 0, fmt.Errorf("%s: %w", groups[0][0].op, err)
	}

	var first error
	fail := func(group int, op string, err error) {
		if first == nil {
			at, first = group, fmt.Errorf("%s: %w", op, err)
		}
	}
	for n, group := range groups {
		failed := false
		for i := 0; i <= len(group); {
			results, err := p.GetResults()
			if err != nil {
				fail(n, group[min(i, len(group)-1)].op, err)
				if conn.IsClosed() {
					_ = p.Close()
					return at, first
				}
				failed = true // the server skips to this group's sync
				continue
			}
			switch r := results.(type) {
			case *pgconn.ResultReader:
				c := group[i]
				if err := consume(pgx.RowsFromResultReader(types, r), c.read); err != nil {
					fail(n, c.op, err)
				}
				i++
			case *pgconn.StatementDescription: // prepared; its result is next
			case *pgconn.PipelineSync:
				i = len(group) + 1
			case nil:
				_ = p.Close()
				fail(n, group[min(i, len(group)-1)].op, errors.New("the server sent no result"))
				return at, first
			default:
				if !failed {
					i++
				}
			}
		}
	}
	if err := p.Close(); err != nil {
		fail(len(groups), "close pipeline", err)
	}
	return at, first
}

// encode puts arguments on the wire with the types that pgx gives their Go types. Every
// statement casts its parameters from these.
func encode(conn *pgx.Conn, args []any) (values [][]byte, oids []uint32, formats []int16, err error) {
	types := conn.TypeMap()
	for i, arg := range args {
		t, ok := types.TypeForValue(arg)
		if !ok {
			return nil, nil, nil, fmt.Errorf("parameter %d: no PostgreSQL type for %T", i+1, arg)
		}
		value, err := types.Encode(t.OID, pgx.BinaryFormatCode, arg, []byte{})
		if err != nil {
			return nil, nil, nil, fmt.Errorf("parameter %d: %w", i+1, err)
		}
		values = append(values, value)
		oids = append(oids, t.OID)
		formats = append(formats, pgx.BinaryFormatCode)
	}
	return values, oids, formats, nil
}
