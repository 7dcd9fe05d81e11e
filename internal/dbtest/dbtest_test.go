package dbtest_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dozequeue/doze/internal/dbtest"
	"github.com/jackc/pgx/v5"
)

// ownerEnv makes this test binary start a server and wait to be killed.
const ownerEnv = "DBTEST_TEST_OWNER"

func TestMain(m *testing.M) { dbtest.Main(m) }

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func TestSchema(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	var name string
	t.Run("Name With/Signs and a tail that is longer than a name may be", func(t *testing.T) {
		name = dbtest.Schema(t)
		if !regexp.MustCompile(`^t_[a-z0-9_]{1,48}$`).MatchString(name) || name == dbtest.Schema(t) {
			t.Errorf("name %q", name)
		}
		pool := dbtest.Pool(t)
		if _, err := pool.Exec(ctx, "create schema "+name); err != nil {
			t.Fatal(err)
		}
		if _, err := pool.Exec(ctx, "create table "+name+".jobs (id int)"); err != nil {
			t.Fatal(err)
		}
		if _, err := pool.Exec(ctx, "select from jobs"); err == nil {
			t.Error("a table was found without its schema")
		}
		pinned := dbtest.Pool(t, dbtest.SearchPath(name))
		if _, err := pinned.Exec(ctx, "select from jobs"); err != nil {
			t.Errorf("with a search path: %v", err)
		}
	})
	var left int
	err := dbtest.Pool(t).QueryRow(ctx, "select count(*) from pg_namespace where nspname = $1", name).Scan(&left)
	if err != nil || left != 0 {
		t.Errorf("%d schemas are left, %v", left, err)
	}
}

func TestPool_EmptySearchPath(t *testing.T) {
	t.Parallel()
	var path string
	if err := dbtest.Pool(t).QueryRow(testContext(t), "show search_path").Scan(&path); err != nil {
		t.Fatal(err)
	}
	if strings.Trim(path, `"`) != "" {
		t.Errorf("search_path is %s, want none", path)
	}
}

func TestDatabase(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	var name string
	t.Run("own", func(t *testing.T) {
		pool := dbtest.Pool(t, dbtest.At(dbtest.Database(t)), dbtest.MaxConns(1))
		if err := pool.QueryRow(ctx, "select current_database()").Scan(&name); err != nil {
			t.Fatal(err)
		}
	})
	var left int
	err := dbtest.Pool(t).QueryRow(ctx, "select count(*) from pg_database where datname = $1", name).Scan(&left)
	if err != nil || left != 0 || name == "" {
		t.Errorf("database %q: %d are left, %v", name, left, err)
	}
}

func TestExecModes(t *testing.T) {
	t.Parallel()
	seen := map[pgx.QueryExecMode]bool{}
	dbtest.ExecModes(t, func(t *testing.T, mode pgx.QueryExecMode) {
		seen[mode] = true
		var sum int
		pool := dbtest.Pool(t, dbtest.Mode(mode))
		if err := pool.QueryRow(testContext(t), "select $1::int + 1", 41).Scan(&sum); err != nil || sum != 42 {
			t.Errorf("got %d, %v", sum, err)
		}
		if got := pool.Config().ConnConfig.DefaultQueryExecMode; got != mode {
			t.Errorf("mode %v, want %v", got, mode)
		}
	})
	if len(seen) != 5 {
		t.Errorf("ran %d modes, want 5", len(seen))
	}
}

// Many clients share a few server connections, none of which has a search path.
func TestPgBouncer(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	through := dbtest.PgBouncer(t, dbtest.Database(t))
	pool := dbtest.Pool(t, dbtest.At(through), dbtest.Mode(pgx.QueryExecModeCacheDescribe), dbtest.MaxConns(8))
	var clients sync.WaitGroup
	var mu sync.Mutex
	backends := map[int]bool{}
	for range 8 {
		clients.Go(func() {
			for range 20 {
				var backend int
				var path string
				err := pool.QueryRow(ctx, "select pg_backend_pid(), current_setting('search_path') where $1", true).Scan(&backend, &path)
				if err != nil || path != "" {
					t.Errorf("search_path %q, %v", path, err)
					return
				}
				mu.Lock()
				backends[backend] = true
				mu.Unlock()
			}
		})
	}
	clients.Wait()
	if len(backends) == 0 || len(backends) > dbtest.PgBouncerServerConns {
		t.Errorf("%d server connections, want 1 to %d", len(backends), dbtest.PgBouncerServerConns)
	}
}

// A test binary that is killed leaves no server.
func TestKilled(t *testing.T) {
	if os.Getenv(ownerEnv) != "" {
		fmt.Println("url " + dbtest.URL(t))
		select {}
	}
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("there is no watch on Windows")
	}
	owner := exec.Command(os.Args[0], "-test.run=^TestKilled$")
	owner.Env = append(os.Environ(), ownerEnv+"=1", "DOZE_TEST_DATABASE_URL=")
	out, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	url, ok := strings.CutPrefix(strings.TrimSpace(line), "url ")
	if !ok {
		t.Fatalf("the owner says %q", line)
	}
	ctx := testContext(t)
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = owner.Wait()
	// It ends when the server cuts it off.
	if _, err := conn.WaitForNotification(ctx); err == nil || ctx.Err() != nil {
		t.Errorf("the server is still there: %v", err)
	}
}
