package migrations

import (
	"context"
	_ "embed"
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dozequeue/doze/queue"
)

//go:embed roles.sql
var rolesSQL string

// roleName is a role's name in the text, as a literal or as an identifier.
var roleName = regexp.MustCompile(`'?\bdoze_(enqueue|drain|sweep|read|admin)\b'?`)

// longest is the room that PostgreSQL has for a name. It cuts longer ones short without an
// error, which would make one role of several.
const longest = 63

// Roles returns SQL that makes five roles for a schema and grants each what its part of Doze
// needs and nothing else. It can be run any number of times, in one transaction, by the owner
// of the tables; to make the roles it also needs CREATEROLE. Run it after [Up], again
// after each upgrade.
//
// With the schema doze they are, each NOLOGIN and to be granted to the logins that do the work:
//
//   - doze_enqueue adds jobs and rings.
//   - doze_drain claims and finishes jobs. A handler that enqueues needs doze_enqueue too.
//   - doze_sweep reaps, rings and prunes.
//   - doze_read sees jobs without their payloads, and the counts of queues.
//   - doze_admin is doze_enqueue and doze_read, and cancels, retries, pauses and reads payloads: for
//     the HTTP API and for people.
//
// Nothing is left to PUBLIC. The empty schema means [queue.DefaultSchema]; a schema's name
// longer than 55 bytes leaves no room for the roles' names and is refused.
func Roles(schema string) (string, error) {
	if schema == "" {
		schema = queue.DefaultSchema
	}
	if err := queue.CheckSchema(schema); err != nil {
		return "", err
	}
	if most := longest - len("_enqueue"); len(schema) > most {
		return "", &queue.FieldError{Index: -1, Field: "schema", Value: fmt.Sprintf("%q", schema),
			Rule: fmt.Sprintf("want at most %d bytes where roles are named after it", most)}
	}
	sql := roleName.ReplaceAllStringFunc(rolesSQL, func(found string) string {
		if literal, ok := strings.CutPrefix(found, "'doze"); ok {
			return "'" + schema + literal // a name that was checked has no quotes
		}
		return pgx.Identifier{schema + strings.TrimPrefix(found, "doze")}.Sanitize()
	})
	sql = strings.ReplaceAll(sql, "SCHEMA doze", "SCHEMA "+pgx.Identifier{schema}.Sanitize())
	return queue.Qualify(sql, schema), nil
}

// Grant makes the roles of [Roles] and grants them their rights, in one transaction.
func Grant(ctx context.Context, conn *pgx.Conn, schema string) error {
	sql, err := Roles(schema)
	if err != nil {
		return err
	}
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return fmt.Errorf("grant: begin: %w", err)
	}
	defer rollback(tx)
	// Roles belong to the whole cluster, and two grants at once would meet at the same catalog rows.
	if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtextextended('doze roles', 0))"); err != nil {
		return fmt.Errorf("grant: lock: %w", err)
	}
	var results []*pgconn.Result
	if results, err = tx.Conn().PgConn().Exec(ctx, sql).ReadAll(); err != nil {
		return fmt.Errorf("grant: statement %d: %w", len(results), err)
	}
	if err := tx.Commit(ctx); err != nil {
		return fmt.Errorf("grant: commit: %w", err)
	}
	return nil
}
