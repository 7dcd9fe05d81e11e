package pgdev_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/dozequeue/doze/internal/pgdev"
	"github.com/jackc/pgx/v5"
)

// ownerEnv makes this test binary a process that owns a server of the data
// directory it names, until it is killed.
const ownerEnv = "PGDEV_TEST_OWNER_OF"

func TestMain(m *testing.M) {
	if dir := os.Getenv(ownerEnv); dir != "" {
		if _, err := pgdev.Start(context.Background(), pgdev.Config{DataDir: dir}); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("ready")
		select {}
	}
	os.Exit(m.Run())
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// openDir is a folder that any user can enter; t.TempDir is closed to the one
// that a root process runs PostgreSQL as.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pgdev-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func dataDir(t *testing.T) string { return filepath.Join(openDir(t), "data") }

func start(t *testing.T, cfg pgdev.Config) *pgdev.Server {
	t.Helper()
	server, err := pgdev.Start(testContext(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Kill)
	return server
}

// one runs SQL on a connection of its own and returns the first value.
func one(t *testing.T, url, sql string) string {
	t.Helper()
	ctx := testContext(t)
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	rows, err := conn.Query(ctx, sql)
	if err != nil {
		t.Fatal(err)
	}
	values, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	if len(values) == 0 {
		return ""
	}
	return values[0]
}
