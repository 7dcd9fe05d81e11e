package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// limit is what hand-written SQL can do: the claim is a HOT update under SKIP LOCKED, the finish a DELETE by id and
// token, both in one round trip. It has the fence and nothing else: no retries, priorities, alarms, slots.
type limit struct {
	pool    *pgxpool.Pool
	payload []byte
	history bool
}

const limitBatch = 1000 // as many as Doze claims at once

func newLimit() (contender, error) { return &limit{payload: payloadOf(100)}, nil }

func (*limit) Name() string    { return "limit" }
func (*limit) Version() string { return "hand-written, pgx" }
func (*limit) Settings() string {
	return fmt.Sprintf("batch %d, finish and claim in one round trip, fillfactor 45", limitBatch)
}

func (l *limit) Setup(ctx context.Context, url string) (err error) {
	if err := l.Connect(ctx, url); err != nil {
		return err
	}
	_, err = l.pool.Exec(ctx, `
		CREATE TABLE jobs (id uuid PRIMARY KEY, queue text NOT NULL, kind text NOT NULL, run_at timestamptz NOT NULL DEFAULT now(),
			locked_until timestamptz NOT NULL DEFAULT '-infinity', token uuid, attempts integer NOT NULL DEFAULT 0, payload json NOT NULL)
			WITH (fillfactor = 45, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);
		CREATE INDEX ON jobs (queue, run_at, id);
		CREATE TABLE history (id uuid NOT NULL, queue text NOT NULL, kind text NOT NULL, attempts integer NOT NULL, finished_at timestamptz NOT NULL,
			payload json NOT NULL, PRIMARY KEY (id, finished_at))`)
	return err
}

func (l *limit) KeepHistory(_ context.Context, keep bool) error {
	l.history = keep
	return nil
}

func (l *limit) Connect(ctx context.Context, url string) (err error) {
	l.Close()
	l.pool, err = newPool(ctx, url, 10)
	return err
}

func (l *limit) PayloadSize(n int) { l.payload = payloadOf(n) }

func (l *limit) Enqueue(ctx context.Context) error {
	_, err := l.pool.Exec(ctx, "INSERT INTO jobs (id, queue, kind, payload) VALUES ($1, 'default', 'nothing', $2)", newID(), l.payload)
	return err
}

func newID() [16]byte { return uuid.Must(uuid.NewV7()) }

// Bulk is the faster of COPY and unnest by what was measured here, which is COPY.
func (l *limit) Bulk(ctx context.Context, n int) error { return l.copy(ctx, n) }

func (l *limit) copy(ctx context.Context, n int) error {
	return pieces(n, 5000, func(n int) error {
		_, err := l.pool.CopyFrom(ctx, pgx.Identifier{"jobs"}, []string{"id", "queue", "kind", "payload"},
			pgx.CopyFromSlice(n, func(int) ([]any, error) { return []any{newID(), "default", "nothing", l.payload}, nil }))
		return err
	})
}

// unnest is the other way, which can say what became of each row.
func (l *limit) unnest(ctx context.Context, n int) error {
	return pieces(n, 5000, func(n int) error {
		ids, payloads := make([][16]byte, n), make([]string, n)
		for i := range ids {
			ids[i], payloads[i] = newID(), string(l.payload)
		}
		_, err := l.pool.Exec(ctx, "INSERT INTO jobs (id, queue, kind, payload) SELECT i, 'default', 'nothing', p::json FROM unnest($1::uuid[], $2::text[]) AS u(i, p)", ids, payloads)
		return err
	})
}

const (
	// The array keeps the planner from joining the whole table once it knows how large that is.
	limitClaim = `UPDATE jobs SET token = $1, attempts = attempts + 1, locked_until = now() + interval '1 minute'
		WHERE id = ANY(ARRAY(SELECT id FROM jobs WHERE queue = 'default' AND run_at <= now() AND locked_until <= now() ORDER BY run_at, id LIMIT $2 FOR UPDATE SKIP LOCKED))
		RETURNING id, kind, attempts, payload`
	limitForget = `DELETE FROM jobs WHERE id = ANY($1) AND token = $2 RETURNING id`
	limitKeep   = `WITH gone AS (DELETE FROM jobs WHERE id = ANY($1) AND token = $2 RETURNING id, queue, kind, attempts, payload)
		INSERT INTO history SELECT id, queue, kind, attempts, now(), payload FROM gone RETURNING id`
)

func (l *limit) Drain(ctx context.Context, n int) error { return l.DrainBy(ctx, n, 1) }

// DrainBy has so many loops run at once, each on a connection of its own.
func (l *limit) DrainBy(ctx context.Context, n, loops int) error {
	return together(n, loops, func() (done int, err error) {
		err = l.pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
			done, err = l.loop(ctx, c)
			return err
		})
		return done, err
	})
}

// loop finishes one batch and claims the next, until there is none.
func (l *limit) loop(ctx context.Context, c *pgxpool.Conn) (done int, err error) {
	finish := limitForget
	if l.history {
		finish = limitKeep
	}
	var ids [][16]byte
	var token [16]byte
	for {
		next := [16]byte(uuid.New())
		var batch pgx.Batch
		if len(ids) > 0 {
			batch.Queue(finish, ids, token).Query(func(rows pgx.Rows) error {
				for rows.Next() {
					done++
				}
				return rows.Err()
			})
		}
		var claimed [][16]byte
		batch.Queue(limitClaim, next, limitBatch).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				var id [16]byte
				var kind string
				var attempts int
				var payload []byte
				if err := rows.Scan(&id, &kind, &attempts, &payload); err != nil {
					return err
				}
				claimed = append(claimed, id)
			}
			return rows.Err()
		})
		if err := c.SendBatch(ctx, &batch).Close(); err != nil {
			return done, err
		}
		if ids, token = claimed, next; len(ids) == 0 {
			return done, nil
		}
	}
}

// Watch is a bare LISTEN loop: it is told of each job, and claims what there is.
func (l *limit) Watch(ctx context.Context, started func(time.Time)) (func(), error) {
	conn, err := pgx.ConnectConfig(ctx, l.pool.Config().ConnConfig)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, "LISTEN jobs"); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			if _, err := conn.WaitForNotification(ctx); err != nil {
				return
			}
			rows, err := l.pool.Query(ctx, limitClaim, [16]byte(uuid.New()), 10)
			if err != nil {
				return
			}
			var id [16]byte
			var kind, text string
			var attempts int
			var ids [][16]byte
			_, _ = pgx.ForEachRow(rows, []any{&id, &kind, &attempts, &text}, func() error {
				var at time.Time
				if err := at.UnmarshalJSON([]byte(text)); err != nil {
					return err
				}
				started(at)
				ids = append(ids, id)
				return nil
			})
			_, _ = l.pool.Exec(ctx, "DELETE FROM jobs WHERE id = ANY($1)", ids)
		}
	}()
	return func() {
		cancel()
		<-done
		_ = conn.Close(context.WithoutCancel(ctx))
	}, nil
}

func (l *limit) Stamp(ctx context.Context, at time.Time) error {
	text, err := at.MarshalJSON()
	if err != nil {
		return err
	}
	var batch pgx.Batch
	batch.Queue("INSERT INTO jobs (id, queue, kind, payload) VALUES ($1, 'default', 'stamp', $2)", newID(), text)
	batch.Queue("NOTIFY jobs")
	err = l.pool.SendBatch(ctx, &batch).Close()
	return errors.Join(err)
}

func (*limit) ClaimMark() string { return "SKIP LOCKED" }

func (l *limit) Close() {
	if l.pool != nil {
		l.pool.Close()
	}
}
