// Command limit is a bare program that connects, claims a job, runs it and deletes it.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/jackc/pgx/v5"
)

func main() {
	ctx := context.Background()
	cfg, err := pgx.ParseConfig(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	cfg.DefaultQueryExecMode = pgx.QueryExecModeExec // one round trip a query on a fresh connection
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		log.Fatal(err)
	}
	var id, payload string
	if err := conn.QueryRow(ctx, `UPDATE jobs j SET token = gen_random_uuid(), attempts = attempts + 1, locked_until = now() + interval '1 minute'
		FROM (SELECT id FROM jobs WHERE queue = 'default' AND run_at <= now() AND locked_until <= now() ORDER BY run_at, id LIMIT 1 FOR UPDATE SKIP LOCKED) p
		WHERE j.id = p.id RETURNING j.id::text, j.payload::text`).Scan(&id, &payload); err != nil {
		log.Fatal(err)
	}
	fmt.Println("started")
	if _, err := conn.Exec(ctx, "DELETE FROM jobs WHERE id = $1::text::uuid", id); err != nil {
		log.Fatal(err)
	}
	_ = conn.Close(ctx)
}
