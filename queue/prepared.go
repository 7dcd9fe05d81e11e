package queue

import (
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// prepared are the statements that a connection has prepared by name, which saves the server parsing and planning
// them each time: half of what a single enqueue takes. Only where that is safe: behind a pooler that gives each
// transaction to another server, a name means nothing. Whether there is one is told by the id of
// the server's process, which a pooler does not know when a client connects. It is asked for with
// the first round trip, so a fresh connection, as in a function that has just started, loses nothing.
type prepared struct {
	asked, direct bool
	names         map[string]string // by SQL
	own           string            // begins this connection's names, so that no other client's are like them
	made          int               // names, so that none is used twice
}

const preparedKey = "github.com/dozequeue/doze/queue"

// preparedBy is what this connection has prepared.
func preparedBy(conn *pgx.Conn) *prepared {
	data := conn.PgConn().CustomData()
	p, _ := data[preparedKey].(*prepared)
	if p == nil {
		p = &prepared{names: make(map[string]string), own: uuid.NewString()[:8]}
		data[preparedKey] = p
	}
	return p
}

// ask is a call that tells whether the connection is direct; nothing once it is known.
func (p *prepared) ask(conn *pgx.Conn) []call {
	if p.asked {
		return nil
	}
	return []call{{op: "ask for the server's process", sql: "SELECT pg_backend_pid()", read: func(rows pgx.Rows) error {
		var pid uint32
		if err := rows.Scan(&pid); err != nil {
			return err
		}
		p.asked, p.direct = true, pid == conn.PgConn().PID()
		return nil
	}}}
}

// name is what the statement is prepared as; fresh if it is yet to be.
func (p *prepared) name(sql string, added map[string]string) (name string, fresh bool) {
	if name, ok := p.names[sql]; ok {
		return name, false
	}
	if name, ok := added[sql]; ok {
		return name, false
	}
	p.made++
	name = fmt.Sprintf("doze_%s_%d", p.own, p.made)
	added[sql] = name
	return name, true
}

// after keeps what was added, unless it is not known whether it was. Somebody may have dropped the names,
// or the tables may have changed under them.
func (p *prepared) after(added map[string]string, err error) {
	var pg *pgconn.PgError
	switch {
	case err == nil:
		for sql, name := range added {
			p.names[sql] = name
		}
	case errors.As(err, &pg) && (pg.Code == noSuchStatement || pg.Code == "0A000"):
		p.names = make(map[string]string)
		p.direct = false // at least not for us alone, or somebody drops what we prepare
	}
}

// noSuchStatement is the error for a name that somebody has dropped, with DISCARD ALL say.
const noSuchStatement = "26000"
