package queue

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
)

// ErrNotFound is returned for a job or queue that does not exist, or no longer does.
var ErrNotFound = errors.New("queue: not found")

// ErrMisconfigured is returned where tables or grants are missing, so that no retry helps.
var ErrMisconfigured = errors.New("queue: not set up")

// StateError is returned where a job's state does not allow what was asked.
type StateError struct {
	ID uuid.UUID
	// State the job is in.
	State State
	// Op that was refused: "cancel" or "retry".
	Op string
}

func (e *StateError) Error() string {
	hint := ""
	switch {
	case e.Op == "retry" && e.State == Running:
		hint = "; wait until it has finished, or cancel it first"
	case e.Op == "retry":
		hint = "; enqueue a new one"
	}
	return fmt.Sprintf("cannot %s job %s: it is %s%s", e.Op, e.ID, e.State, hint)
}

// Class sorts an error of the database by what can be done about it.
type Class int

// The classes of errors. What is not known is [Permanent]: it is better seen
// than repeated.
const (
	// Permanent: the same call will fail again.
	Permanent Class = iota
	// Unavailable: the database could not be reached or is starting, stopping or
	// full; nothing was applied if the connection was never made.
	Unavailable
	// Conflict: the statement was rolled back and can be repeated at once.
	Conflict
	// Misconfigured: a grant or a table is missing. Nothing will work until a
	// person has seen to it.
	Misconfigured
)

// Classify returns an error's class.
func Classify(err error) Class {
	if err == nil {
		return Permanent
	}
	if errors.Is(err, ErrMisconfigured) {
		return Misconfigured
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		switch pg.Code {
		case "40001", "40P01", "55P03", "57014", noSuchStatement: // serialization, deadlock, lock timeout, statement timeout
			return Conflict
		case "57P01", "57P02", "57P03", "53300", "25006", "53100", "53200", "25P03", "57P05":
			// shutting down, crashed, starting, no connection left, read-only (a failover), disk full, memory, idle timeouts
			return Unavailable
		case "42501", "42P01", "42703", "42883", "3F000", "28P01", "28000", "3D000":
			// no right, no table, no column, no function, no schema, password, role, database
			return Misconfigured
		}
		if strings.HasPrefix(pg.Code, "08") {
			return Unavailable
		}
		if pg.Code == "0A000" && strings.Contains(pg.Message, "cached plan") { // the tables were made again
			return Conflict
		}
		return Permanent
	}
	if errors.Is(err, context.Canceled) {
		return Permanent
	}
	var connecting *pgconn.ConnectError
	var network net.Error
	if errors.As(err, &connecting) || errors.As(err, &network) || pgconn.Timeout(err) || isClosed(err) {
		return Unavailable
	}
	return Permanent
}

// isClosed reports whether the connection broke under a call. pgx has no type for it:
// what it returns wraps the network's error, or only says so.
func isClosed(err error) bool {
	text := err.Error()
	for _, sign := range []string{"conn closed", "closed pool", "unexpected EOF", "connection reset", "broken pipe", "use of closed network connection"} {
		if strings.Contains(text, sign) {
			return true
		}
	}
	return false
}
