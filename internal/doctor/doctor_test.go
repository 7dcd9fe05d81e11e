package doctor_test

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dozequeue/doze/internal/dbtest"
	"github.com/dozequeue/doze/internal/doctor"
	"github.com/dozequeue/doze/migrations"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	return conn
}

// finds returns the levels of the findings that say something.
func finds(t *testing.T, conn *pgx.Conn, cfg doctor.Config, what string) doctor.Level {
	t.Helper()
	all, err := doctor.Look(t.Context(), conn, cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if strings.Contains(f.What, what) {
			if f.Level != doctor.OK && f.Hint == "" {
				t.Errorf("%+v has no next step", f)
			}
			return f.Level
		}
	}
	return ""
}

func TestDoctorFindsWhatKeepsADatabaseAwake(t *testing.T) {
	url := dbtest.Database(t)
	conn := connect(t, url)
	cfg := doctor.Config{Schema: "doze", Suspend: 5 * time.Minute, Sweep: time.Minute}
	if level := finds(t, conn, cfg, "no Doze tables"); level != doctor.Fault {
		t.Errorf("a schema that is not there: %q", level)
	}
	if _, err := migrations.Up(t.Context(), conn, ""); err != nil {
		t.Fatal(err)
	}
	for what, want := range map[string]doctor.Level{"at version": doctor.OK, "stay two": doctor.OK, "awake for ever": doctor.Warning, "listens": "", "idle in transaction": ""} {
		if level := finds(t, conn, cfg, what); level != want {
			t.Errorf("%s: %q, want %q", what, level, want)
		}
	}
	listener, sleeper := connect(t, url), connect(t, url)
	for c, sql := range map[*pgx.Conn]string{listener: "LISTEN something", sleeper: "BEGIN"} {
		if _, err := c.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	for _, what := range []string{"listens", "idle in transaction"} {
		if level := finds(t, conn, cfg, what); level != doctor.Warning {
			t.Errorf("%s: %q, want a warning", what, level)
		}
	}
	if level := finds(t, conn, doctor.Config{Schema: "doze", Suspend: 5 * time.Minute, Sweep: time.Hour}, "60.8 hours a month"); level != doctor.OK {
		t.Errorf("an hourly sweep: %q", level)
	}
}

func TestDoctorWorksThroughAPooler(t *testing.T) {
	conn := connect(t, dbtest.PgBouncer(t, dbtest.Database(t))+"&default_query_exec_mode=exec")
	if level := finds(t, conn, doctor.Config{Schema: "doze"}, "stay two"); level != doctor.OK {
		t.Errorf("two transactions at once through PgBouncer: %q", level)
	}
}
