// Package migrations makes and checks Doze's tables.
//
// Migrations only go forward, and each runs in a transaction of its own under a
// transaction-level advisory lock: two that start at once, also through a
// transaction-mode pooler, apply each step once. Within one minor version a
// migration only adds, so functions of the version before keep working while
// it rolls out.
package migrations

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dozequeue/doze/queue"
)

//go:embed sql/*.sql
var files embed.FS

// Migration is one step of the schema.
type Migration struct {
	// Version counts from 1 without gaps.
	Version int
	// Name says what the step does, as in its file's name.
	Name string
	// SQL is the step's text, with the schema filled in. It holds several
	// statements that belong in one transaction.
	SQL string
}

// Applied says what [Up] did.
type Applied struct {
	// From and To are the schema's versions before and after. Equal if
	// there was nothing to do; From is 0 on an empty database.
	From, To int
}

// VersionError is returned where the schema's version is not the one that this
// build works with.
type VersionError struct {
	// Have is the schema's version, 0 if Doze was never installed in it.
	Have int
	// Want is this build's version.
	Want int
	// Schema that was looked at.
	Schema string
}

func (e *VersionError) Error() string {
	switch {
	case e.Have == 0:
		return fmt.Sprintf("migrations: schema %q has no Doze tables, this build needs version %d; run doze migrate", e.Schema, e.Want)
	case e.Have < e.Want:
		return fmt.Sprintf("migrations: schema %q is at version %d, this build needs %d; run doze migrate", e.Schema, e.Have, e.Want)
	default:
		return fmt.Sprintf("migrations: schema %q is at version %d, newer than the %d that this build knows; deploy a newer build", e.Schema, e.Have, e.Want)
	}
}

// Version is the schema version that this build needs.
const Version = queue.SchemaVersion

// All returns every migration for a schema, oldest first, for people who run
// SQL with a tool of their own. The empty schema means [queue.DefaultSchema].
func All(schema string) ([]Migration, error) {
	if schema == "" {
		schema = queue.DefaultSchema
	}
	if err := queue.CheckSchema(schema); err != nil {
		return nil, err
	}
	entries, err := fs.ReadDir(files, "sql") // sorted by name, hence by version
	if err != nil {
		return nil, err
	}
	var all []Migration
	for _, entry := range entries {
		number, name, _ := strings.Cut(strings.TrimSuffix(entry.Name(), ".sql"), "_")
		version, err := strconv.Atoi(number)
		if err != nil || version != len(all)+1 {
			return nil, fmt.Errorf("migrations: file %s: want number %04d", entry.Name(), len(all)+1)
		}
		text, err := files.ReadFile("sql/" + entry.Name())
		if err != nil {
			return nil, err
		}
		all = append(all, Migration{
			Version: version,
			Name:    strings.ReplaceAll(name, "_", " "),
			SQL:     queue.Qualify(string(text), schema),
		})
	}
	return all, nil
}

// Script returns one SQL text that installs the schema, for people who run SQL with a tool of
// their own: all steps, each in a transaction with its version row. A step that has been
// applied before fails and changes nothing. To bring an older version up to date, take the
// steps above it from [All].
func Script(schema string) (string, error) {
	all, err := All(schema)
	if err != nil {
		return "", err
	}
	if schema == "" {
		schema = queue.DefaultSchema
	}
	var b strings.Builder
	fmt.Fprintf(&b, "-- Doze schema, versions 1 to %d. Run as the owner.\n", Version)
	b.WriteString(queue.Qualify(setup(schema), schema))
	for _, m := range all {
		fmt.Fprintf(&b, "\nBEGIN; -- %d: %s\n%s\n%s;\nCOMMIT;\n", m.Version, m.Name, m.SQL,
			queue.Qualify(fmt.Sprintf("INSERT INTO doze.migrations (version) VALUES (%d)", m.Version), schema))
	}
	return b.String(), nil
}

// setup makes the schema and its version table. The schema may have been made before, for an owner
// who may make none; CREATE SCHEMA IF NOT EXISTS asks for the right even then.
func setup(schema string) string {
	return fmt.Sprintf(`DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = '%[2]s') THEN
        CREATE SCHEMA %[1]s;
    END IF;
END $$;
REVOKE ALL ON SCHEMA %[1]s FROM PUBLIC;
CREATE TABLE IF NOT EXISTS doze.migrations (
    version    integer PRIMARY KEY,
    applied_at timestamptz NOT NULL DEFAULT now()
);
`, pgx.Identifier{schema}.Sanitize(), schema) // a name that was checked has no quotes
}

// Up brings a schema to this build's version, creating it if it is not there.
// The empty schema means [queue.DefaultSchema]. It needs the owner's rights, and
// waits for another Up that is under way. It returns a [*VersionError] if the
// schema is newer than this build, and changes nothing then.
func Up(ctx context.Context, conn *pgx.Conn, schema string) (Applied, error) {
	all, err := All(schema)
	if err != nil {
		return Applied{}, err
	}
	if schema == "" {
		schema = queue.DefaultSchema
	}
	applied := Applied{From: -1}
	for {
		version, done, err := step(ctx, conn, schema, all)
		if err != nil {
			return applied, err
		}
		if applied.From < 0 {
			applied.From = version
		}
		applied.To = version
		if done {
			return applied, nil
		}
	}
}

// step applies the next migration, if any, in one transaction. It returns the
// version found at its start, and whether that was the newest.
func step(ctx context.Context, conn *pgx.Conn, schema string, all []Migration) (version int, done bool, err error) {
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return 0, false, fmt.Errorf("migrate: begin: %w", err)
	}
	defer rollback(tx)
	// Held until the commit, so that it is not left behind on a pooled connection.
	if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtextextended($1::text, 0))", "doze migrations "+schema); err != nil {
		return 0, false, fmt.Errorf("migrate: lock: %w", err)
	}
	var found bool
	if err := tx.QueryRow(ctx, "SELECT to_regclass($1::text) IS NOT NULL", pgx.Identifier{schema, "migrations"}.Sanitize()).Scan(&found); err != nil {
		return 0, false, fmt.Errorf("migrate: look for the version table: %w", err)
	}
	if found {
		if err := tx.QueryRow(ctx, queue.Qualify("SELECT coalesce(max(version), 0) FROM doze.migrations", schema)).Scan(&version); err != nil {
			return 0, false, fmt.Errorf("migrate: read version: %w", err)
		}
	}
	if version > Version {
		return version, false, &VersionError{Have: version, Want: Version, Schema: schema}
	}
	if version == Version {
		return version, true, nil
	}
	next := all[version]
	sql := next.SQL
	if !found {
		sql = queue.Qualify(setup(schema), schema) + sql
	}
	// The simple protocol takes several statements at once.
	if _, err := tx.Conn().PgConn().Exec(ctx, sql).ReadAll(); err != nil {
		return version, false, fmt.Errorf("migrate: version %d (%s): %w", next.Version, next.Name, err)
	}
	if _, err := tx.Exec(ctx, queue.Qualify("INSERT INTO doze.migrations (version) VALUES ($1::integer)", schema), next.Version); err != nil {
		return version, false, fmt.Errorf("migrate: record version %d: %w", next.Version, err)
	}
	if err := tx.Commit(ctx); err != nil {
		return version, false, fmt.Errorf("migrate: commit version %d: %w", next.Version, err)
	}
	return version, false, nil
}

// rollback runs also when the migration's own context has ended, lest the
// connection goes back with a transaction open.
func rollback(tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = tx.Rollback(ctx)
}

// Check returns nil if the schema is at this build's version, and a
// [*VersionError] if it is not.
func Check(ctx context.Context, db queue.DB, schema string) error {
	if schema == "" {
		schema = queue.DefaultSchema
	}
	if err := queue.CheckSchema(schema); err != nil {
		return err
	}
	have := 0
	var found bool
	if err := db.QueryRow(ctx, "SELECT to_regclass($1::text) IS NOT NULL", pgx.Identifier{schema, "migrations"}.Sanitize()).Scan(&found); err != nil {
		return fmt.Errorf("check schema: %w", err)
	}
	if found {
		if err := db.QueryRow(ctx, queue.Qualify("SELECT coalesce(max(version), 0) FROM doze.migrations", schema)).Scan(&have); err != nil {
			return fmt.Errorf("check schema: %w", err)
		}
	}
	if have != Version {
		return &VersionError{Have: have, Want: Version, Schema: schema}
	}
	return nil
}
