// Package doctor looks at a database for what keeps it awake, what slows claims down, and what would
// keep Doze from working.
package doctor

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dozequeue/doze/migrations"
	"github.com/dozequeue/doze/queue"
)

//go:embed sql/*.sql
var files embed.FS

// Level of a finding.
type Level string

// The levels. A fault keeps Doze from working, a warning costs money or speed.
const (
	OK      Level = "ok"
	Warning Level = "warning"
	Fault   Level = "fault"
)

// Finding is what one look found.
type Finding struct {
	Level Level  `json:"level"`
	What  string `json:"what"`
	// Hint is the next step, empty if there is nothing to do.
	Hint string `json:"hint,omitempty"`
}

// Config says what is known of the deployment.
type Config struct {
	// Schema of Doze's tables.
	Schema string
	// Suspend is the database's suspend time; zero skips what depends on it.
	Suspend time.Duration
	// Connections is true if any open connection keeps the database awake, as with Aurora; else a session that
	// is idle does not.
	Connections bool
	// For names what this login is to do: enqueue, drain or sweep. Empty: what it may do is only told.
	For []string
	// Lease that drains are set to hold jobs for, and Function the time limit of their function; zero for no
	// setting.
	Lease, Function time.Duration
	// Sweep is the period of sweeps; zero skips what depends on it.
	Sweep time.Duration
}

// Look makes all checks. It returns an error only if the database cannot be asked.
func Look(ctx context.Context, conn *pgx.Conn, cfg Config) ([]Finding, error) {
	var all []Finding
	for _, check := range []func(context.Context, *pgx.Conn, Config) ([]Finding, error){schema, may, pooler, sessions, holders, settings} {
		found, err := check(ctx, conn, cfg)
		if err != nil {
			return all, err
		}
		all = append(all, found...)
	}
	return all, nil
}

func one(level Level, hint, format string, args ...any) Finding {
	return Finding{Level: level, What: fmt.Sprintf(format, args...), Hint: hint}
}

func schema(ctx context.Context, conn *pgx.Conn, cfg Config) ([]Finding, error) {
	err := migrations.Check(ctx, queue.Unnamed(conn), cfg.Schema)
	var version *migrations.VersionError
	var pg *pgconn.PgError
	switch {
	case errors.As(err, &version):
		return []Finding{one(Fault, "doze migrate", "%v", err)}, nil
	case errors.As(err, &pg) && queue.Classify(err) == queue.Misconfigured:
		return []Finding{one(Fault, "grant this login one of Doze's roles: doze migrate --roles", "this login cannot read the schema's version: %s", pg.Message)}, nil
	case err != nil:
		return nil, err
	}
	return []Finding{one(OK, "", "the tables are at version %d", migrations.Version)}, nil
}

// may says what this login may do.
func may(ctx context.Context, conn *pgx.Conn, cfg Config) ([]Finding, error) {
	text, err := files.ReadFile("sql/may.sql")
	if err != nil {
		return nil, err
	}
	allowed := make(map[string]bool)
	var enqueue, drain, sweep bool
	err = queue.Unnamed(conn).QueryRow(ctx, queue.Qualify(string(text), cmp.Or(cfg.Schema, queue.DefaultSchema))).Scan(&enqueue, &drain, &sweep)
	var pg *pgconn.PgError
	switch {
	case errors.As(err, &pg): // there are no tables, or it may not even know of them: said before
		return nil, nil
	case err != nil:
		return nil, err
	}
	allowed["enqueue"], allowed["drain"], allowed["sweep"] = enqueue, drain, sweep
	var all []Finding
	for _, what := range cfg.For {
		if !allowed[what] {
			all = append(all, one(Fault, fmt.Sprintf("grant it the role %s_%s", cmp.Or(cfg.Schema, queue.DefaultSchema), what), "this login may not %s", what))
		}
	}
	var can []string
	for _, what := range []string{"enqueue", "drain", "sweep"} {
		if allowed[what] {
			can = append(can, what)
		}
	}
	if len(can) == 0 {
		can = []string{"do nothing with jobs"}
	}
	return append(all, one(OK, "", "this login may %s", strings.Join(can, ", "))), nil
}

// pooler checks that two transactions sent at once stay two: the wake protocol stands on it.
func pooler(ctx context.Context, conn *pgx.Conn, _ Config) ([]Finding, error) {
	p := conn.PgConn().StartPipeline(ctx)
	for range 2 {
		p.SendQueryParams("SELECT txid_current()", nil, nil, nil, nil)
		p.SendPipelineSync()
	}
	if err := p.Flush(); err != nil {
		return nil, err
	}
	var ids []string
	for range 4 {
		results, err := p.GetResults()
		if err != nil {
			_ = p.Close()
			return nil, err
		}
		if r, ok := results.(*pgconn.ResultReader); ok {
			read := r.Read()
			if read.Err != nil {
				_ = p.Close()
				return nil, read.Err
			}
			ids = append(ids, string(read.Rows[0][0]))
		}
	}
	if err := p.Close(); err != nil {
		return nil, err
	}
	if len(ids) != 2 || ids[0] == ids[1] {
		return []Finding{one(Fault, "connect directly, or through another pooler", "the pooler runs two transactions that are sent at once as one, so wakes can be lost")}, nil
	}
	return []Finding{one(OK, "", "two transactions that are sent at once stay two")}, nil
}

func sessions(ctx context.Context, conn *pgx.Conn, cfg Config) ([]Finding, error) {
	text, err := files.ReadFile("sql/sessions.sql")
	if err != nil {
		return nil, err
	}
	rows, err := queue.Unnamed(conn).Query(ctx, string(text))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []Finding
	open, kept := 0, 0
	for rows.Next() {
		var pid int32
		var app, user, state, kind string
		var seconds, horizon, age int64
		var listens bool
		if err := rows.Scan(&pid, &app, &user, &state, &kind, &seconds, &horizon, &listens, &age); err != nil {
			return nil, err
		}
		who := fmt.Sprintf("session %d of %s (%s)", pid, user, app)
		if kind == "client backend" {
			open++
		}
		switch {
		case kind == "walsender":
			all = append(all, one(Warning, "logical replication keeps a compute awake; end the subscription if it is not needed", "%s replicates", who))
		case listens:
			all = append(all, one(Warning, "a LISTEN connection keeps a database awake for ever: let its owner enqueue jobs instead, unless it is the resident process that you chose", "%s listens", who))
		case len(state) > 4 && state[:4] == "idle" && state != "idle":
			all = append(all, one(Warning, "it keeps the database awake and holds vacuum back; end its transaction", "%s is %s for %d s", who, state, seconds))
		case horizon > 1_000_000:
			all = append(all, one(Warning, "vacuum cannot remove what it might still see; end its transaction", "%s holds a snapshot %d transactions old", who, horizon))
		case kind == "client backend" && cfg.Suspend > 0 && age > int64(cfg.Suspend.Seconds()):
			if seconds < int64(cfg.Suspend.Seconds()) {
				all = append(all, one(Warning, "if it asks again and again (a poller, a health check, a dashboard) the database never sleeps; ask less often than it suspends",
					"%s is open for %d s and asked something %d s ago", who, age, seconds))
			} else {
				kept++
			}
		}
	}
	if kept > 0 && cfg.Connections {
		all = append(all, one(Warning, "let the pools close idle connections: a minimum size of 0, DOZE_CONNECTIONS=close", "%d sessions are kept open and idle, which keeps the database awake for ever", kept))
	}
	if open > 0 {
		all = append(all, one(OK, "", "%d other sessions are open; where connections count (Aurora) they keep the database awake", open))
	}
	return all, rows.Err()
}

func holders(ctx context.Context, conn *pgx.Conn, _ Config) ([]Finding, error) {
	text, err := files.ReadFile("sql/holders.sql")
	if err != nil {
		return nil, err
	}
	rows, err := queue.Unnamed(conn).Query(ctx, string(text))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []Finding
	for rows.Next() {
		var what, name string
		var active bool
		var horizon int64
		if err := rows.Scan(&what, &name, &active, &horizon); err != nil {
			return nil, err
		}
		hint := "its jobs wake the database, or run only while it is awake; Doze's schedules need neither"
		if what != "extension" {
			hint = "it keeps vacuum and WAL back; drop it if nobody uses it"
		}
		all = append(all, one(Warning, hint, "%s %s (active: %v, horizon %d transactions old)", what, name, active, horizon))
	}
	return all, rows.Err()
}

// settings compares what was said of the deployment.
func settings(_ context.Context, _ *pgx.Conn, cfg Config) ([]Finding, error) {
	var all []Finding
	if cfg.Sweep > 0 && cfg.Suspend > 0 {
		if cfg.Sweep <= cfg.Suspend {
			all = append(all, one(Warning, "sweep less often than the database suspends", "a sweep each %v keeps a database that suspends after %v awake for ever", cfg.Sweep, cfg.Suspend))
		} else {
			all = append(all, one(OK, "", "sweeps each %v keep the database awake for %.1f hours a month", cfg.Sweep, 730*cfg.Suspend.Hours()/cfg.Sweep.Hours()))
		}
	}
	if cfg.Lease > 0 && cfg.Function > 0 {
		if cfg.Lease < cfg.Function {
			all = append(all, one(Warning, "leave DOZE_LEASE unset: the lease then ends with the function, and nothing needs renewing",
				"a lease of %v in a function of %v is renewed each %v, and a function that is frozen meanwhile loses its jobs", cfg.Lease, cfg.Function, cfg.Lease/3))
		} else {
			all = append(all, one(OK, "", "the lease outlives its function"))
		}
	}
	return all, nil
}
