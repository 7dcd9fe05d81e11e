package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

var pgmqFile = flag.String("pgmq", "", "SQL `file` of the pgmq extension, to run pgmq too")

// pgmq is a message queue of SQL functions: read hides messages for a time, delete forgets them. It has no retries with
// a backoff, no results and nobody who runs anything.
type pgmq struct {
	pool    *pgxpool.Pool
	payload string
}

const pgmqBatch = 1000

func newPgmq() (contender, error) {
	if *pgmqFile == "" {
		return nil, missing("no -pgmq FILE was given")
	}
	return &pgmq{payload: string(payloadOf(100))}, nil
}

func (*pgmq) Name() string    { return "pgmq" }
func (*pgmq) Version() string { return "the extension's SQL as given" }
func (*pgmq) Settings() string {
	return fmt.Sprintf("read and delete in batches of %d, one round trip", pgmqBatch)
}

func (p *pgmq) Setup(ctx context.Context, url string) (err error) {
	if err := p.Connect(ctx, url); err != nil {
		return err
	}
	text, err := os.ReadFile(*pgmqFile)
	if err != nil {
		return err
	}
	// It is no extension here, so what only extensions may say is left out.
	sql := strings.ReplaceAll(string(text), "@extschema@", "pgmq")
	if _, err := p.pool.Exec(ctx, "CREATE SCHEMA IF NOT EXISTS pgmq"); err != nil {
		return err
	}
	if _, err := p.pool.Exec(ctx, withoutDumps(sql)); err != nil {
		return fmt.Errorf("pgmq's SQL: %w", err)
	}
	_, err = p.pool.Exec(ctx, "SELECT pgmq.create('jobs')")
	return err
}

// withoutDumps drops the calls that mark tables for pg_dump, which fail outside of an extension.
func withoutDumps(sql string) string {
	var kept []string
	for line := range strings.Lines(sql) {
		if !strings.Contains(line, "pg_extension_config_dump('") || strings.Contains(line, "EXECUTE") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}

func (p *pgmq) Connect(ctx context.Context, url string) (err error) {
	p.Close()
	p.pool, err = newPool(ctx, url, 10)
	return err
}

func (p *pgmq) PayloadSize(n int) { p.payload = string(payloadOf(n)) }

func (p *pgmq) Enqueue(ctx context.Context) error {
	_, err := p.pool.Exec(ctx, "SELECT pgmq.send('jobs', $1::jsonb)", p.payload)
	return err
}

func (p *pgmq) Bulk(ctx context.Context, n int) error {
	return pieces(n, 5000, func(n int) error {
		all := make([]string, n)
		for i := range all {
			all[i] = p.payload
		}
		_, err := p.pool.Exec(ctx, "SELECT count(*) FROM pgmq.send_batch('jobs', $1::text[]::jsonb[])", all)
		return err
	})
}

func (p *pgmq) Drain(ctx context.Context, n int) error {
	return p.pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
		var ids []int64
		for done := 0; ; {
			var batch pgx.Batch
			if len(ids) > 0 {
				batch.Queue("SELECT pgmq.delete('jobs', $1::bigint[])", ids).Query(func(rows pgx.Rows) error {
					for rows.Next() {
						done++
					}
					return rows.Err()
				})
			}
			var read []int64
			batch.Queue("SELECT msg_id, read_ct, message FROM pgmq.read('jobs', 60, $1)", pgmqBatch).Query(func(rows pgx.Rows) error {
				for rows.Next() {
					var id int64
					var count int
					var message []byte
					if err := rows.Scan(&id, &count, &message); err != nil {
						return err
					}
					read = append(read, id)
				}
				return rows.Err()
			})
			if err := c.SendBatch(ctx, &batch).Close(); err != nil {
				return err
			}
			if ids = read; len(ids) == 0 {
				if done != n {
					return fmt.Errorf("pgmq: %d of %d deleted", done, n)
				}
				return nil
			}
		}
	})
}

func (p *pgmq) Close() {
	if p.pool != nil {
		p.pool.Close()
	}
}
