package queue

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// copyFrom is how many jobs are worth a COPY: it takes three times as many a second as the insert does, and a round
// trip more.
const copyFrom = 100

// copied reports whether jobs can go in by COPY: it computes no times and meets no keys.
func copied(jobs []NewJob, repeat bool) bool {
	if len(jobs) < copyFrom || repeat {
		return false
	}
	for i := range jobs {
		if n := &jobs[i]; n.Key != "" || n.Delay != 0 || !n.RunAt.IsZero() {
			return false
		}
	}
	return true
}

// connOf is the connection of a transaction, or nil.
func connOf(db DB) *pgx.Conn {
	switch db := db.(type) {
	case unnamed:
		return connOf(db.db)
	case *pgx.Conn:
		return db
	case interface{ Conn() *pgx.Conn }:
		return db.Conn()
	}
	return nil
}

// copy takes jobs in, all or none.
func (s *Store) copy(ctx context.Context, conn *pgx.Conn, jobs []NewJob) ([]Inserted, error) {
	tag, err := conn.PgConn().CopyFrom(ctx, &copyReader{jobs: jobs}, s.sql["copy"])
	if err != nil {
		return nil, fmt.Errorf("insert: %w", err)
	}
	if n := tag.RowsAffected(); n != int64(len(jobs)) {
		return nil, fmt.Errorf("insert: %d of %d jobs were taken in", n, len(jobs))
	}
	inserted := make([]Inserted, len(jobs))
	for i := range jobs {
		inserted[i].ID = jobs[i].ID
	}
	return inserted, nil
}

// isThere reports whether a row was refused since its id is taken.
func isThere(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "23505"
}

// copyReader is jobs in the binary format of COPY, made as it is read: a batch's payloads may be large.
// https://www.postgresql.org/docs/current/sql-copy.html#id-1.9.3.55.9.4
type copyReader struct {
	jobs  []NewJob
	begun bool
	ended bool
	left  []byte
}

// copyChunk is about how much is made at once.
const copyChunk = 64 << 10

func (r *copyReader) Read(p []byte) (int, error) {
	if len(r.left) == 0 {
		r.fill()
	}
	if len(r.left) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.left)
	r.left = r.left[n:]
	return n, nil
}

func (r *copyReader) fill() {
	b := r.left[:0]
	if !r.begun {
		r.begun = true
		b = append(b, "PGCOPY\n\xff\r\n\x00\x00\x00\x00\x00\x00\x00\x00\x00"...)
	}
	for ; len(r.jobs) > 0 && len(b) < copyChunk; r.jobs = r.jobs[1:] {
		n := &r.jobs[0]
		b = binary.BigEndian.AppendUint16(b, 6)
		b = appendField(b, n.ID[:])
		b = appendField(b, n.Queue)
		b = appendField(b, n.Kind)
		b = appendField(b, binary.BigEndian.AppendUint16(nil, uint16(int16(n.Priority))))
		b = appendField(b, binary.BigEndian.AppendUint32(nil, uint32(int32(n.MaxAttempts))))
		b = appendField(b, n.Payload)
	}
	if len(r.jobs) == 0 && !r.ended {
		r.ended = true
		b = append(b, 0xff, 0xff)
	}
	r.left = b
}

func appendField[T ~[]byte | ~string](b []byte, field T) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(field)))
	return append(b, field...)
}
