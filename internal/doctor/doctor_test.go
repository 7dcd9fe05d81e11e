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

func TestDoctorSaysWhatALoginMayDo(t *testing.T) {
	conn := connect(t, dbtest.Database(t))
	if _, err := migrations.Up(t.Context(), conn, ""); err != nil {
		t.Fatal(err)
	}
	if err := migrations.Grant(t.Context(), conn, ""); err != nil {
		t.Fatal(err)
	}
	all := doctor.Config{Schema: "doze", For: []string{"enqueue", "drain", "sweep"}}
	if level := finds(t, conn, all, "this login may enqueue, drain, sweep"); level != doctor.OK {
		t.Errorf("the owner: %q", level)
	}
	for _, role := range all.For {
		if _, err := conn.Exec(t.Context(), "SET ROLE doze_"+role); err != nil {
			t.Fatal(err)
		}
		for _, what := range all.For {
			want := doctor.Fault
			if what == role {
				want = ""
			}
			if level := finds(t, conn, all, "this login may not "+what); level != want {
				t.Errorf("role %s, %s: %q, want %q", role, what, level, want)
			}
		}
		if level := finds(t, conn, doctor.Config{Schema: "doze"}, "this login may "+role); level != doctor.OK {
			t.Errorf("role %s: %q", role, level)
		}
	}
}

func TestDoctorFindsPollersAndPools(t *testing.T) {
	url := dbtest.Database(t)
	conn, poller, idle := connect(t, url), connect(t, url), connect(t, url)
	_ = idle
	// Both are older than this suspend time, and one has just asked something.
	cfg := doctor.Config{Schema: "doze", Suspend: time.Second, Connections: true}
	deadline := time.Now().Add(time.Minute)
	for finds(t, conn, cfg, "kept open and idle") != doctor.Warning {
		if time.Now().After(deadline) {
			t.Fatal("an idle session was not found")
		}
	}
	if _, err := poller.Exec(t.Context(), "SELECT 1"); err != nil {
		t.Fatal(err)
	}
	if level := finds(t, conn, cfg, "asked something"); level != doctor.Warning {
		t.Errorf("a poller: %q", level)
	}
	cfg.Connections = false
	if level := finds(t, conn, cfg, "kept open and idle"); level != "" {
		t.Errorf("idle sessions where only queries count: %q", level)
	}
}

func TestDoctorComparesLeaseAndFunction(t *testing.T) {
	conn := connect(t, dbtest.Database(t))
	for lease, want := range map[time.Duration]doctor.Level{time.Minute: doctor.Warning, time.Hour: doctor.OK, 0: ""} {
		if level := finds(t, conn, doctor.Config{Schema: "doze", Lease: lease, Function: 15 * time.Minute}, "lease"); level != want {
			t.Errorf("lease %v: %q, want %q", lease, level, want)
		}
	}
}
