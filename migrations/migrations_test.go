package migrations_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/dozequeue/doze/internal/dbtest"
	"github.com/dozequeue/doze/migrations"
	"github.com/dozequeue/doze/queue"
)

func number(t *testing.T, conn *pgx.Conn, sql string, args ...any) (n int) {
	t.Helper()
	must(t, conn.QueryRow(limit(t), sql, args...).Scan(&n))
	return n
}

// relations counts all that is in a schema.
func relations(t *testing.T, conn *pgx.Conn, schema string) int {
	t.Helper()
	return number(t, conn, "SELECT count(*) FROM pg_catalog.pg_class WHERE relnamespace = (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = $1)", schema)
}

func TestUp_FromNothingAndThenNothing(t *testing.T) {
	t.Parallel()
	schema := dbtest.Schema(t)
	ctx, conn := limit(t), connect(t, dbtest.URL(t))

	err := migrations.Check(ctx, conn, schema)
	var wrong *migrations.VersionError
	if !errors.As(err, &wrong) || wrong.Have != 0 || wrong.Want != migrations.Version || wrong.Schema != schema || !strings.Contains(err.Error(), "doze migrate") {
		t.Errorf("check before: %v", err)
	}
	applied, err := migrations.Up(ctx, conn, schema)
	if err != nil || applied != (migrations.Applied{From: 0, To: migrations.Version}) {
		t.Fatalf("first: %+v, %v", applied, err)
	}
	must(t, migrations.Check(ctx, conn, schema))
	written := number(t, conn, queue.Qualify("SELECT count(*) FROM doze.migrations", schema))
	if written != migrations.Version {
		t.Errorf("%d versions are recorded, want %d", written, migrations.Version)
	}

	before := dump(t, conn, schema)
	last := number(t, conn, queue.Qualify("SELECT max(xmin::text::bigint) FROM doze.migrations", schema))
	applied, err = migrations.Up(ctx, conn, schema)
	if err != nil || applied != (migrations.Applied{From: migrations.Version, To: migrations.Version}) {
		t.Errorf("again: %+v, %v", applied, err)
	}
	if dump(t, conn, schema) != before || number(t, conn, queue.Qualify("SELECT max(xmin::text::bigint) FROM doze.migrations", schema)) != last {
		t.Error("the second time changed something")
	}
}

// Several deploys at once, also through a transaction-mode pooler, where a lock of the session would be
// left on somebody else's connection.
func TestUp_ManyAtOnceApplyEachStepOnce(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"direct", "PgBouncer"} {
		t.Run(how, func(t *testing.T) {
			schema := dbtest.Schema(t)
			url := dbtest.URL(t)
			if how == "PgBouncer" {
				url = dbtest.PgBouncer(t, url)
			}
			ctx := limit(t)
			const many = 8
			results := make([]migrations.Applied, many)
			begin := make(chan struct{})
			var all sync.WaitGroup
			for i := range many {
				cfg, err := pgx.ParseConfig(url)
				must(t, err)
				if how == "PgBouncer" {
					cfg.DefaultQueryExecMode = pgx.QueryExecModeExec // as for any pooler without prepared statements
				}
				conn, err := pgx.ConnectConfig(ctx, cfg)
				must(t, err)
				defer conn.Close(context.Background())
				all.Add(1)
				go func() {
					defer all.Done()
					<-begin
					var err error
					if results[i], err = migrations.Up(ctx, conn, schema); err != nil {
						t.Error(err)
					}
				}()
			}
			close(begin)
			all.Wait()
			conn := connect(t, dbtest.URL(t))
			for _, r := range results { // a step that ran twice would have failed
				if r.To != migrations.Version {
					t.Errorf("one ended with %+v", r)
				}
			}
			if n := number(t, conn, queue.Qualify("SELECT count(*) FROM doze.migrations", schema)); n != migrations.Version {
				t.Errorf("%d versions are recorded, want %d", n, migrations.Version)
			}
			if n := number(t, conn, "SELECT count(*) FROM pg_catalog.pg_locks WHERE locktype = 'advisory' AND objid = (hashtextextended($1, 0) & 4294967295)::oid", "doze migrations "+schema); n != 0 {
				t.Errorf("%d locks are left", n)
			}
		})
	}
}

// An older build meets tables of a newer one.
func TestUp_RefusesANewerSchemaAndChangesNothing(t *testing.T) {
	t.Parallel()
	schema := dbtest.Schema(t)
	ctx, conn := limit(t), connect(t, dbtest.URL(t))
	_, err := migrations.Up(ctx, conn, schema)
	must(t, err)
	_, err = conn.Exec(ctx, queue.Qualify("INSERT INTO doze.migrations (version) VALUES (99)", schema))
	must(t, err)
	before := dump(t, conn, schema)
	for what, err := range map[string]error{
		"up":    func() error { _, err := migrations.Up(ctx, conn, schema); return err }(),
		"check": migrations.Check(ctx, conn, schema),
	} {
		var wrong *migrations.VersionError
		if !errors.As(err, &wrong) || wrong.Have != 99 || !strings.Contains(err.Error(), "newer") {
			t.Errorf("%s: %v, want a VersionError", what, err)
		}
	}
	if dump(t, conn, schema) != before || number(t, conn, queue.Qualify("SELECT max(version) FROM doze.migrations", schema)) != 99 {
		t.Error("it changed something")
	}
	if conn.PgConn().TxStatus() != 'I' {
		t.Error("the connection is left in a transaction")
	}
}

// A step that fails leaves nothing of itself, and the next try begins where it was.
func TestUp_AStepThatFailsLeavesNothing(t *testing.T) {
	t.Parallel()
	schema := dbtest.Schema(t)
	ctx, conn := limit(t), connect(t, dbtest.URL(t))
	_, err := conn.Exec(ctx, queue.Qualify("CREATE SCHEMA "+schema+"; CREATE TABLE doze.job_list ()", schema), pgx.QueryExecModeSimpleProtocol)
	must(t, err)
	applied, err := migrations.Up(ctx, conn, schema) // fails at its last statement: the name is taken
	if code(err) == "" || applied.To != 0 || !strings.Contains(err.Error(), "version 1") {
		t.Errorf("%+v, %v; want an error of version 1", applied, err)
	}
	if n := relations(t, conn, schema); n != 1 {
		t.Errorf("%d relations are left, want the one that was there", n)
	}
	if conn.PgConn().TxStatus() != 'I' {
		t.Error("the connection is left in a transaction")
	}
	_, err = conn.Exec(ctx, queue.Qualify("DROP TABLE doze.job_list", schema))
	must(t, err)
	_, err = migrations.Up(ctx, conn, schema)
	must(t, err)
}

// Also where everybody's transactions are serializable by default.
func TestUp_UnderAnyDefaultIsolation(t *testing.T) {
	t.Parallel()
	schema := dbtest.Schema(t)
	ctx, conn := limit(t), connect(t, dbtest.URL(t))
	_, err := conn.Exec(ctx, "SET default_transaction_isolation = serializable")
	must(t, err)
	_, err = migrations.Up(ctx, conn, schema)
	must(t, err)
	must(t, migrations.Check(ctx, conn, schema))
}

// Any name that the check lets through works everywhere: quoted, long, in upper case.
func TestUp_InSchemasWithOddNames(t *testing.T) {
	t.Parallel()
	url := dbtest.Database(t) // the names are not this test's own
	ctx, conn := limit(t), connect(t, url)
	for _, schema := range []string{"", "UPPER", "with-dash", "select", strings.Repeat("x", 63), "_"} {
		_, err := migrations.Up(ctx, conn, schema)
		if err != nil {
			t.Errorf("%q: %v", schema, err)
			continue
		}
		must(t, migrations.Check(ctx, conn, schema))
		store, err := queue.NewStore(schema)
		must(t, err)
		must(t, store.Pause(ctx, conn, "q"))
		if _, err := store.PruneHistory(ctx, conn, 0); err != nil {
			t.Errorf("%q: %v", schema, err)
		}
		if n := relations(t, conn, store.Schema()); n < 20 {
			t.Errorf("%q: %d relations in it", schema, n)
		}
	}
	for _, schema := range []string{"1digit", "pg_doze", "PG_doze", "a b", `x"; DROP SCHEMA doze CASCADE; --`, "x'y", "x.y", "ü", strings.Repeat("x", 64), "x\x00"} {
		var wrong *queue.FieldError
		for what, err := range map[string]error{
			"up":     func() error { _, err := migrations.Up(ctx, conn, schema); return err }(),
			"check":  migrations.Check(ctx, conn, schema),
			"all":    func() error { _, err := migrations.All(schema); return err }(),
			"script": func() error { _, err := migrations.Script(schema); return err }(),
			"grant":  migrations.Grant(ctx, conn, schema),
		} {
			if !errors.As(err, &wrong) || wrong.Field != "schema" {
				t.Errorf("%s of %q: %v, want a FieldError", what, schema, err)
			}
		}
	}
	schemas := number(t, conn, "SELECT count(*) FROM pg_catalog.pg_namespace WHERE nspname !~ '^pg_|^information_schema$|^public$'")
	if schemas != 6 {
		t.Errorf("%d schemas, want the 6 good ones", schemas)
	}
}

// What the script makes, by psql or any tool that sends SQL as text, is what Up makes.
func TestScript_MakesTheSameSchema(t *testing.T) {
	t.Parallel()
	ctx, conn := limit(t), connect(t, dbtest.URL(t))
	schema, byUp := dbtest.Schema(t), dbtest.Schema(t)
	script, err := migrations.Script(schema)
	must(t, err)
	_, err = conn.PgConn().Exec(ctx, script).ReadAll()
	must(t, err)
	_, err = migrations.Up(ctx, conn, byUp)
	must(t, err)
	if one, two := dump(t, conn, schema), dump(t, conn, byUp); one != two {
		t.Errorf("the script makes\n%s\nand Up makes\n%s", one, two)
	}
	must(t, migrations.Check(ctx, conn, schema))
	applied, err := migrations.Up(ctx, conn, schema)
	if err != nil || applied.From != migrations.Version {
		t.Errorf("up after the script: %+v, %v", applied, err)
	}
	if _, err := conn.PgConn().Exec(ctx, script).ReadAll(); code(err) != "42710" {
		t.Errorf("the script again: %v, want to be told that its types are there", err)
	}
	_, err = conn.Exec(ctx, "ROLLBACK") // as psql's next COMMIT does
	must(t, err)
	if dump(t, conn, schema) != dump(t, conn, byUp) {
		t.Error("the script, run again, changed something")
	}
}

func TestAll_CountsFromOne(t *testing.T) {
	t.Parallel()
	all, err := migrations.All("some-where")
	must(t, err)
	if len(all) != migrations.Version {
		t.Errorf("%d steps, want %d", len(all), migrations.Version)
	}
	for i, m := range all {
		if m.Version != i+1 || m.Name == "" || strings.Contains(m.SQL, "doze.") {
			t.Errorf("step %d: version %d, name %q, or it still names the schema doze", i, m.Version, m.Name)
		}
	}
}

func TestVersionError_SaysWhatToDo(t *testing.T) {
	t.Parallel()
	for have, want := range map[int]string{0: "run doze migrate", 1: "run doze migrate", 9: "deploy a newer build"} {
		err := error(&migrations.VersionError{Have: have, Want: 3, Schema: "doze"})
		if !strings.Contains(err.Error(), want) {
			t.Errorf("have %d: %v", have, err)
		}
	}
}
