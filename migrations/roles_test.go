package migrations_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/dozequeue/doze/internal/dbtest"
	"github.com/dozequeue/doze/migrations"
	"github.com/dozequeue/doze/queue"
)

const (
	enqueue = "_enqueue"
	drain   = "_drain"
	sweep   = "_sweep"
	read    = "_read"
	admin   = "_admin"
	nobody  = "_nobody" // a role that was granted nothing
)

var everybody = []string{enqueue, drain, sweep, read, admin, nobody}

// schemaWithRoles returns the name of a schema whose roles, which belong to the whole cluster, go
// with it.
func schemaWithRoles(t *testing.T) string {
	t.Helper()
	var schema string
	admin := connect(t, dbtest.URL(t))
	// Before the schema's own clean-up, so that it runs after it: the tables' rights hold the roles.
	t.Cleanup(func() {
		if t.Failed() {
			return
		}
		for _, suffix := range append(everybody, "_owner") {
			if _, err := admin.Exec(context.Background(), "DROP ROLE IF EXISTS "+pgx.Identifier{schema + suffix}.Sanitize()); err != nil {
				t.Error(err)
			}
		}
	})
	schema = dbtest.Schema(t)
	return schema
}

// Every statement against every role: what a role's work needs it may do, and nothing else.
func TestRoles_EachMayDoItsWorkAndNothingElse(t *testing.T) {
	t.Parallel()
	schema := schemaWithRoles(t)
	ctx, conn := limit(t), connect(t, dbtest.URL(t))
	_, err := migrations.Up(ctx, conn, schema)
	must(t, err)
	for range 2 { // granting twice is granting once
		must(t, migrations.Grant(ctx, conn, schema))
	}
	store, err := queue.NewStore(schema)
	must(t, err)
	exec := func(sql string, args ...any) {
		t.Helper()
		_, err := conn.Exec(ctx, queue.Qualify(sql, schema), args...)
		must(t, err)
	}
	exec("CREATE ROLE " + pgx.Identifier{schema + nobody}.Sanitize())

	// A queue in which there is something for each statement to do, so that each reaches its rows.
	job := func(key string) queue.NewJob {
		return queue.NewJob{ID: uuid.Must(uuid.NewV7()), Queue: "q", Kind: "k", MaxAttempts: 3, Key: key, Payload: json.RawMessage(`{}`)}
	}
	jobs := []queue.NewJob{job("a"), job("b"), job(""), job("")}
	_, err = store.Insert(ctx, conn, jobs, false)
	must(t, err)
	must(t, store.EnsureQueue(ctx, conn, "q"))
	slot := queue.Slot{Queue: "q", Token: uuid.New(), Lease: time.Hour}
	taken, err := store.Start(ctx, conn, slot, "", 3)
	must(t, err)
	ended, running, expired := taken.Claimed[0], taken.Claimed[1], taken.Claimed[2]
	end := func(c queue.Claimed, state queue.State) []queue.Outcome {
		return []queue.Outcome{{ID: c.ID, Attempts: c.Attempts, Token: c.Token, State: state, Failed: state == queue.Failed}}
	}
	_, err = store.Finish(ctx, conn, end(ended, queue.Failed))
	must(t, err)
	exec(`UPDATE doze.history SET finished_at = now() - interval '1 day'`)
	exec(`UPDATE doze.keys SET expires_at = now() - interval '1 day' WHERE key = 'a'`)
	exec(`UPDATE doze.jobs SET locked_until = now() - interval '1 s' WHERE id = $1`, expired.ID)
	exec(`INSERT INTO doze.history SELECT id, ((floor(extract(epoch FROM now()) / 86400)::bigint + 6) % 8)::smallint, queue, kind, 'done', priority, run_at, attempts, failures,
		max_attempts, reaps, created_at, now() - interval '2 days', key, last_error, payload FROM doze.jobs`)

	other := queue.Slot{Queue: "q", Token: uuid.New(), Lease: time.Hour}
	alarm := queue.AlarmFunc(func(context.Context, queue.Wake, time.Duration) error { return nil })
	raw := func(sql string) func(*pgx.Conn) error {
		return func(c *pgx.Conn) error {
			_, err := c.Exec(ctx, queue.Qualify(sql, schema), pgx.QueryExecModeSimpleProtocol)
			return err
		}
	}
	done := func(_ any, err error) error { return err }
	for _, s := range []struct {
		what string
		may  []string
		do   func(c *pgx.Conn) error
	}{
		{"check the version", []string{enqueue, drain, sweep, read, admin}, func(c *pgx.Conn) error { return migrations.Check(ctx, c, schema) }},

		{"insert one", []string{enqueue, admin}, func(c *pgx.Conn) error { return done(store.Insert(ctx, c, []queue.NewJob{job("")}, false)) }},
		{"insert many, again", []string{enqueue, admin}, func(c *pgx.Conn) error {
			return done(store.Insert(ctx, c, []queue.NewJob{job("new"), job("a"), job("b"), job("")}, true))
		}},
		{"insert and ring", []string{enqueue, admin}, func(c *pgx.Conn) error {
			_, _, err := store.InsertAndRing(ctx, c, []queue.NewJob{job("")}, false, time.Minute)
			return err
		}},
		{"ring", []string{enqueue, drain, sweep, admin}, func(c *pgx.Conn) error { return done(store.Ring(ctx, c, "q", time.Time{}, time.Minute)) }},
		{"ring a new queue", []string{enqueue, drain, sweep, admin}, func(c *pgx.Conn) error { return done(store.Ring(ctx, c, "new", time.Time{}, time.Minute)) }},
		{"unring", []string{enqueue, drain, sweep, admin}, func(c *pgx.Conn) error { return store.Unring(ctx, c, "q") }},
		{"set the next alarm", []string{enqueue, drain, sweep, admin}, func(c *pgx.Conn) error { return done(store.SetNextAlarm(ctx, c, alarm, "q")) }},
		{"disarm", []string{enqueue, drain, sweep, admin}, func(c *pgx.Conn) error { return store.Disarm(ctx, c) }},

		{"start", []string{drain}, func(c *pgx.Conn) error {
			taken, err := store.Start(ctx, c, other, uuid.NewString(), 5)
			if err == nil && len(taken.Claimed) == 0 {
				return errors.New("claimed nothing")
			}
			return err
		}},
		{"retake", []string{drain}, func(c *pgx.Conn) error { return done(store.Retake(ctx, c, other, 5)) }},
		{"step", []string{drain}, func(c *pgx.Conn) error {
			return done(store.Step(ctx, c, slot, end(running, queue.Done), 5, true, queue.Open))
		}},
		{"saturated", []string{drain}, func(c *pgx.Conn) error { return done(store.Saturated(ctx, c, slot, time.Minute)) }},
		{"renew", []string{drain}, func(c *pgx.Conn) error {
			return done(store.Renew(ctx, c, slot, queue.Busy, []queue.Claimed{running}))
		}},
		{"exit", []string{drain}, func(c *pgx.Conn) error {
			_, _, err := store.Exit(ctx, c, slot, end(running, queue.Queued))
			return err
		}},
		{"hand over", []string{drain}, func(c *pgx.Conn) error {
			_, _, err := store.HandOver(ctx, c, slot, nil, time.Minute)
			return err
		}},
		{"abandon", []string{drain}, func(c *pgx.Conn) error { return store.Abandon(ctx, c, slot, uuid.New()) }},
		{"give back", []string{drain, sweep}, func(c *pgx.Conn) error { return store.GiveBack(ctx, c, "q", []uuid.UUID{uuid.New()}) }},
		{"slot free in", []string{enqueue, drain, sweep, read, admin}, func(c *pgx.Conn) error { return done(store.SlotFreeIn(ctx, c, "q")) }},
		{"waiting", []string{enqueue, drain, sweep, read, admin}, func(c *pgx.Conn) error { return done(store.Waiting(ctx, c)) }},
		{"extend", []string{drain}, func(c *pgx.Conn) error {
			return done(store.Extend(ctx, c, []queue.Claimed{running}, time.Minute))
		}},
		{"finish", []string{drain}, func(c *pgx.Conn) error { return done(store.Finish(ctx, c, end(running, queue.Cancelled))) }},
		{"get", []string{drain, admin}, func(c *pgx.Conn) error { return done(store.Get(ctx, c, running.ID)) }},

		{"due", []string{enqueue, drain, sweep, admin}, func(c *pgx.Conn) error { return done(store.Due(ctx, c)) }},
		{"last look", []string{enqueue, drain, sweep, admin}, func(c *pgx.Conn) error { return done(store.Next(ctx, c, "q")) }},
		{"reap", []string{drain, sweep}, func(c *pgx.Conn) error { return done(store.Reap(ctx, c, 10)) }},
		{"prune history", []string{sweep}, func(c *pgx.Conn) error {
			days, err := store.PruneHistory(ctx, c, 0)
			if err == nil && days != 1 {
				return fmt.Errorf("emptied %d days", days)
			}
			return err
		}},
		{"prune failed jobs", []string{sweep}, func(c *pgx.Conn) error { return done(store.PruneFailed(ctx, c, 0, 10)) }},
		{"prune keys", []string{sweep}, func(c *pgx.Conn) error { return done(store.PruneKeys(ctx, c, 10)) }},

		{"list", []string{read, admin}, func(c *pgx.Conn) error { return done(store.List(ctx, c, queue.Filter{})) }},
		{"count queues", []string{sweep, read, admin}, func(c *pgx.Conn) error { return done(store.Queues(ctx, c)) }},

		// Whoever may finish a job as cancelled may as well cancel it.
		{"cancel", []string{drain, admin}, func(c *pgx.Conn) error { return done(store.Cancel(ctx, c, running.ID)) }},
		{"retry a failed job", []string{admin}, func(c *pgx.Conn) error { return done(store.Retry(ctx, c, ended.ID)) }},
		{"retry a waiting job", []string{admin}, func(c *pgx.Conn) error { return done(store.Retry(ctx, c, jobs[3].ID)) }},
		{"pause", []string{admin}, func(c *pgx.Conn) error { return store.Pause(ctx, c, "q") }},
		{"resume", []string{admin}, func(c *pgx.Conn) error { return store.Resume(ctx, c, "q") }},
		{"configure", []string{admin}, func(c *pgx.Conn) error {
			return store.Configure(ctx, c, "q", queue.Settings{Slots: 1, MaxReaps: 1, History: "off"})
		}},

		// What no statement of the role asks for.
		{"read payloads", []string{drain, admin}, raw(`SELECT payload FROM doze.jobs`)},
		{"read finished payloads", []string{drain, admin}, raw(`SELECT payload FROM doze.history`)},
		{"read a partition's payloads", nil, raw(`SELECT payload FROM doze.history_failed`)},
		{"read the fence of a job", []string{drain, sweep, read, admin}, raw(`SELECT token FROM doze.jobs`)},
		{"read the fence of a slot", []string{drain}, raw(`SELECT token FROM doze.slots`)},
		{"change a payload", nil, raw(`UPDATE doze.jobs SET payload = '{}'`)},
		{"change a kind", nil, raw(`UPDATE doze.jobs SET kind = 'other'`)},
		{"change a due time", []string{drain, admin}, raw(`UPDATE doze.jobs SET run_at = now()`)},
		{"delete live jobs", []string{drain, admin}, raw(`DELETE FROM doze.jobs`)},
		{"insert a job as claimed", nil, raw(`INSERT INTO doze.jobs (id, queue, kind, payload, token, locked_until) VALUES (gen_random_uuid(), 'q', 'k', '{}', gen_random_uuid(), 'infinity')`)},
		{"insert a job as tried", []string{admin}, raw(`INSERT INTO doze.jobs (id, queue, kind, payload, attempts) VALUES (gen_random_uuid(), 'q', 'k', '{}', 5)`)},
		{"write history", []string{drain, admin}, raw(`INSERT INTO doze.history SELECT * FROM doze.history WHERE false`)},
		{"rewrite history", nil, raw(`UPDATE doze.history SET state = 'done'`)},
		{"rewrite a failed job's bucket", nil, raw(`UPDATE doze.history SET bucket = 1`)},
		{"rewrite a failed job", nil, raw(`UPDATE doze.history_failed SET last_error = ''`)},
		{"delete history", []string{admin}, raw(`DELETE FROM doze.history`)},
		{"delete keys", []string{sweep}, raw(`DELETE FROM doze.keys WHERE key = 'a'`)},
		{"change slots", []string{admin}, raw(`UPDATE doze.queues SET slots = 1000`)},
		{"pause by hand", []string{admin}, raw(`UPDATE doze.queues SET paused_at = now()`)},
		{"delete queues", nil, raw(`DELETE FROM doze.queues`)},
		{"truncate jobs", nil, raw(`TRUNCATE doze.jobs`)},
		{"truncate history", nil, raw(`TRUNCATE doze.history`)},
		{"truncate failed jobs", nil, raw(`TRUNCATE doze.history_failed`)},
		{"change the version", nil, raw(`UPDATE doze.migrations SET version = 99`)},
		{"make a table", nil, raw(`CREATE TABLE doze.mine ()`)},
		{"make a trigger", nil, raw(`CREATE TRIGGER mine AFTER INSERT ON doze.jobs EXECUTE FUNCTION suppress_redundant_updates_trigger()`)},
		{"call history_bucket", []string{drain, admin}, raw(`SELECT doze.history_bucket('done')`)},
	} {
		for _, role := range everybody {
			_, err := conn.Exec(ctx, "BEGIN; SET LOCAL ROLE "+pgx.Identifier{schema + role}.Sanitize(), pgx.QueryExecModeSimpleProtocol)
			must(t, err)
			err = s.do(conn)
			if _, rollback := conn.Exec(ctx, "ROLLBACK"); rollback != nil {
				t.Fatal(rollback)
			}
			switch may := slices.Contains(s.may, role); {
			case may && err != nil:
				t.Errorf("%s: role %s is refused: %v", s.what, role, err)
			case !may && code(err) != "42501":
				t.Errorf("%s: role %s gets %v, want permission denied", s.what, role, err)
			case !may && role != nobody && queue.Classify(err) != queue.Misconfigured:
				t.Errorf("%s: %v is not classified as a missing grant", s.what, err)
			}
		}
	}
}

// A drain that may claim jobs but not finish them would use up their attempts, so it must not
// even start.
func TestRoles_ADrainWithoutTheRightToFinishDoesNotClaim(t *testing.T) {
	t.Parallel()
	schema := schemaWithRoles(t)
	ctx, conn := limit(t), connect(t, dbtest.URL(t))
	_, err := migrations.Up(ctx, conn, schema)
	must(t, err)
	must(t, migrations.Grant(ctx, conn, schema))
	store, err := queue.NewStore(schema)
	must(t, err)
	_, err = store.Insert(ctx, conn, []queue.NewJob{{ID: uuid.New(), Queue: "q", Kind: "k", MaxAttempts: 3, Payload: json.RawMessage(`{}`)}}, false)
	must(t, err)
	must(t, store.EnsureQueue(ctx, conn, "q"))
	role := pgx.Identifier{schema + drain}.Sanitize()
	for _, right := range []string{"DELETE ON doze.jobs", "INSERT ON doze.history"} {
		_, err = conn.Exec(ctx, queue.Qualify("REVOKE "+right+" FROM ", schema)+role)
		must(t, err)
		_, err = conn.Exec(ctx, "SET ROLE "+role)
		must(t, err)
		taken, err := store.Start(ctx, conn, queue.Slot{Queue: "q", Token: uuid.New(), Lease: time.Minute}, "", 10)
		if !errors.Is(err, queue.ErrMisconfigured) || taken.Slot || len(taken.Claimed) != 0 {
			t.Errorf("without %s: took a slot %v, claimed %d, %v; want ErrMisconfigured", right, taken.Slot, len(taken.Claimed), err)
		}
		_, err = conn.Exec(ctx, "RESET ROLE")
		must(t, err)
		must(t, migrations.Grant(ctx, conn, schema)) // gives back what is missing
	}
	var claimed int
	must(t, conn.QueryRow(ctx, queue.Qualify("SELECT count(*) FROM doze.jobs WHERE attempts > 0", schema)).Scan(&claimed))
	if claimed != 0 {
		t.Error("a job has lost an attempt")
	}
}

// The roles may be made by somebody else before: then the owner of the tables needs no right to make
// roles or schemas.
func TestGrant_ByAnOwnerWhoMayMakeNoRoles(t *testing.T) {
	t.Parallel()
	schema := schemaWithRoles(t)
	ctx, conn := limit(t), connect(t, dbtest.URL(t))
	owner := pgx.Identifier{schema + "_owner"}.Sanitize()
	_, err := conn.Exec(ctx, "CREATE ROLE "+owner+"; CREATE SCHEMA "+schema+" AUTHORIZATION "+owner, pgx.QueryExecModeSimpleProtocol)
	must(t, err)
	as := func(role string) {
		t.Helper()
		_, err := conn.Exec(ctx, "SET ROLE "+role)
		must(t, err)
	}
	as(owner)
	_, err = migrations.Up(ctx, conn, schema)
	must(t, err)
	if err := migrations.Grant(ctx, conn, schema); code(err) != "42501" {
		t.Errorf("roles made without the right to: %v", err)
	}
	if conn.PgConn().TxStatus() != 'I' {
		t.Error("the connection is left in a transaction")
	}
	as("NONE")
	must(t, migrations.Grant(ctx, conn, schema))
	as(owner)
	must(t, migrations.Grant(ctx, conn, schema))
}

// What is granted beyond the list is taken back, as after an upgrade that needs less.
func TestGrant_TakesBackWhatIsNotOnTheList(t *testing.T) {
	t.Parallel()
	schema := schemaWithRoles(t)
	ctx, conn := limit(t), connect(t, dbtest.URL(t))
	_, err := migrations.Up(ctx, conn, schema)
	must(t, err)
	must(t, migrations.Grant(ctx, conn, schema))
	role := pgx.Identifier{schema + read}.Sanitize()
	_, err = conn.Exec(ctx, queue.Qualify("GRANT SELECT ON doze.jobs TO PUBLIC; GRANT SELECT (payload) ON doze.history TO "+role+"; GRANT EXECUTE ON FUNCTION doze.prune_history TO PUBLIC", schema), pgx.QueryExecModeSimpleProtocol)
	must(t, err)
	must(t, migrations.Grant(ctx, conn, schema))
	for _, question := range []string{"has_column_privilege($1, 'doze.jobs', 'payload', 'SELECT')", "has_column_privilege($1, 'doze.history', 'payload', 'SELECT')", "has_function_privilege($1, 'doze.prune_history(interval)', 'EXECUTE')"} {
		var still bool
		must(t, conn.QueryRow(ctx, queue.Qualify("SELECT "+question, schema), schema+read).Scan(&still))
		if still {
			t.Errorf("still true: %s", question)
		}
	}
}

func TestRoles_NamesThatFit(t *testing.T) {
	for _, schema := range []string{"", "doze", "UPPER", "with-dash", "_", strings.Repeat("x", 55)} {
		sql, err := migrations.Roles(schema)
		if err != nil {
			t.Errorf("%q: %v", schema, err)
			continue
		}
		if schema == "" {
			schema = "doze"
		}
		if !strings.Contains(sql, `GRANT USAGE ON SCHEMA "`+schema+`" TO "`+schema+`_enqueue", "`) || !strings.Contains(sql, `ARRAY['`+schema+`_enqueue', '`) {
			t.Errorf("%q: %s", schema, sql)
		}
		if schema != "doze" && (strings.Contains(sql, "doze_") || strings.Contains(sql, "doze.")) {
			t.Errorf("%q: the text still names the schema doze", schema)
		}
	}
	for _, schema := range []string{strings.Repeat("x", 56), strings.Repeat("x", 63), "1a", "pg_x", `a"; DROP ROLE x; --`, "a'b"} {
		var wrong *queue.FieldError
		if sql, err := migrations.Roles(schema); !errors.As(err, &wrong) || sql != "" {
			t.Errorf("%q: %v, want a FieldError", schema, err)
		}
	}
}
