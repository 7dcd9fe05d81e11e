package dbtest

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/dozequeue/doze/internal/pgdev"
)

// Main runs the tests of a package, ends the server that they started, if any,
// and exits. Call it from TestMain.
func Main(m *testing.M) {
	code := m.Run()
	if code != 0 && os.Getenv("DOZE_TEST_KEEP") == "1" {
		keep()
	} else {
		cleanUp()
	}
	os.Exit(code)
}

// URL returns the connection string of a maintenance database, with the right
// to create schemas and databases. The first call in a test binary starts the
// server, unless DOZE_TEST_DATABASE_URL names one. It fails the test if there
// is none.
func URL(tb testing.TB) string {
	tb.Helper()
	u, err := maintenance()
	if err != nil {
		tb.Fatalf("dbtest: %v", err)
	}
	return u
}

// maintenance finds or starts the server, once. A failure is kept too: every
// test then fails at once with the same reason.
var maintenance = sync.OnceValues(func() (string, error) {
	if given := os.Getenv("DOZE_TEST_DATABASE_URL"); given != "" {
		if u, err := url.Parse(given); err != nil || u.Host == "" {
			return "", fmt.Errorf("DOZE_TEST_DATABASE_URL: want a URL such as postgres://user:password@host:5432/database")
		}
		return given, nil
	}
	// Long enough to download a version.
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	bin, err := pgdev.Find(ctx, pgdev.Options{Version: os.Getenv("DOZE_TEST_PG")})
	if err != nil {
		return "", fmt.Errorf("%w; or set DOZE_TEST_DATABASE_URL", err)
	}
	dir, err := scratch()
	if err != nil {
		return "", err
	}
	server, err := pgdev.Start(ctx, pgdev.Config{
		Binaries: bin,
		DataDir:  filepath.Join(dir, "data"),
		Settings: map[string]string{"max_connections": "200"}, // parallel tests, a pool each
	})
	if err != nil {
		return "", err
	}
	running.Lock()
	defer running.Unlock()
	running.server = server
	return server.URL(), nil
})

// running is what this test binary has started.
var running struct {
	sync.Mutex
	server *pgdev.Server
	watch  *watch
	dir    string
}

// scratch is the folder for all that the servers of this test binary write.
var scratch = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "doze-test-")
	if err != nil {
		return "", err
	}
	// Open, as the servers may run as another user.
	if err := os.Chmod(dir, 0o755); err != nil {
		return "", err
	}
	// Before anything is started, so that there is no moment without it.
	watch, err := startWatch(dir)
	if err != nil {
		return "", fmt.Errorf("start the watch over the test servers: %w", err)
	}
	running.Lock()
	defer running.Unlock()
	running.dir, running.watch = dir, watch
	return dir, nil
})

func cleanUp() {
	running.Lock()
	defer running.Unlock()
	if running.dir == "" {
		return
	}
	if running.server != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := running.server.Stop(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "dbtest:", err)
		}
	}
	running.watch.release()
	os.RemoveAll(running.dir)
}

func keep() {
	running.Lock()
	defer running.Unlock()
	if running.server == nil {
		return
	}
	running.watch.release()
	fmt.Fprintf(os.Stderr, "dbtest: the server stays, as DOZE_TEST_KEEP is 1: psql '%s'; to end it: kill -INT $(head -1 %s)\n",
		running.server.URL(), filepath.Join(running.server.DataDir(), "postmaster.pid"))
}

// onFailure tells how to look at what a failed test left.
func onFailure(tb testing.TB, what, databaseURL string) {
	tb.Helper()
	hint := ""
	if os.Getenv("DOZE_TEST_DATABASE_URL") == "" && os.Getenv("DOZE_TEST_KEEP") != "1" {
		hint = " (the server ends with this run; set DOZE_TEST_KEEP=1 to keep it)"
	}
	tb.Logf("dbtest: the test failed, so %s is kept: psql '%s'%s", what, redacted(databaseURL), hint)
}

// redacted hides the password of a connection string.
func redacted(databaseURL string) string {
	u, err := url.Parse(databaseURL)
	if err != nil {
		return "(not a URL)"
	}
	return u.Redacted()
}

// withDatabase returns the connection string with another database.
func withDatabase(databaseURL, name string) (string, error) {
	u, err := url.Parse(databaseURL)
	if err != nil {
		return "", err
	}
	u.Path = "/" + name
	return u.String(), nil
}
