package dbtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dozequeue/doze/internal/pgdev"
	"github.com/jackc/pgx/v5"
)

// PgBouncerServerConns is how many server connections a [PgBouncer] shares out
// among its clients. Few, so that a client often gets another's connection.
const PgBouncerServerConns = 3

// PgBouncer starts a PgBouncer in transaction mode in front of the database of
// databaseURL and returns the connection string through it. It ends with the
// test. It runs with its version's defaults for prepared statements, sets an
// empty search path on every server connection, and ignores the one that a
// client asks for.
//
// The test is skipped if PgBouncer is not installed, or fails if
// DOZE_TEST_PGBOUNCER is "require".
func PgBouncer(tb testing.TB, databaseURL string) string {
	tb.Helper()
	program, err := findPgBouncer()
	if err != nil {
		if os.Getenv("DOZE_TEST_PGBOUNCER") == "require" {
			tb.Fatalf("dbtest: DOZE_TEST_PGBOUNCER is require: %v; to install it: apt-get install pgbouncer", err)
		}
		tb.Skipf("dbtest: PgBouncer is not installed: %v", err)
	}
	root, err := scratch()
	if err != nil {
		tb.Fatalf("dbtest: %v", err)
	}
	// The port is chosen before it is used, so another process may take it.
	for try := 1; ; try++ {
		through, b, err := startPgBouncer(program, root, databaseURL)
		if err == nil {
			tb.Cleanup(b.kill)
			return through
		}
		if try == 3 {
			tb.Fatalf("dbtest: start PgBouncer: %v", err)
		}
	}
}

func findPgBouncer() (string, error) {
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		// Debian keeps it where only root's PATH leads.
		if other, err := exec.LookPath("/usr/sbin/pgbouncer"); err == nil {
			return other, nil
		}
	}
	return program, err
}

// bouncer is a running PgBouncer. Its log may be read when gone is closed.
type bouncer struct {
	dir  string
	cmd  *exec.Cmd
	log  bytes.Buffer
	gone chan struct{}
}

func (b *bouncer) kill() {
	_ = b.cmd.Process.Kill()
	<-b.gone
	os.RemoveAll(b.dir)
}

func startPgBouncer(program, root, databaseURL string) (string, *bouncer, error) {
	through, err := url.Parse(databaseURL)
	if err != nil {
		return "", nil, errors.New("the database is not given as a URL")
	}
	port, err := freePort()
	if err != nil {
		return "", nil, err
	}
	dir, err := os.MkdirTemp(root, "pgbouncer-")
	if err != nil {
		return "", nil, err
	}
	ini, err := pgBouncerConfig(databaseURL, dir, port)
	if err != nil {
		return "", nil, err
	}
	path := filepath.Join(dir, "pgbouncer.ini")
	if err := os.WriteFile(path, []byte(ini), 0o600); err != nil {
		return "", nil, err
	}
	b := &bouncer{dir: dir, cmd: exec.Command(program, path), gone: make(chan struct{})}
	b.cmd.Dir = dir
	b.cmd.Stdout, b.cmd.Stderr = &b.log, &b.log
	if err := pgdev.Unprivileged(b.cmd, dir); err != nil {
		return "", nil, err
	}
	if err := b.cmd.Start(); err != nil {
		return "", nil, err
	}
	go func() {
		_ = b.cmd.Wait()
		close(b.gone)
	}()
	through.Host = fmt.Sprintf("127.0.0.1:%d", port)
	query := through.Query()
	query.Set("sslmode", "disable")
	through.RawQuery = query.Encode()
	if err := b.ready(through.String()); err != nil {
		b.kill()
		return "", nil, fmt.Errorf("%w; its log:\n%s", err, strings.TrimSpace(b.log.String()))
	}
	return through.String(), b, nil
}

// ready waits until a statement gets through to the database.
func (b *bouncer) ready(through string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, through)
		if err == nil {
			_, err = conn.Exec(ctx, "select 1", pgx.QueryExecModeSimpleProtocol)
			conn.Close(ctx)
		}
		if err == nil {
			return nil
		}
		timer := time.NewTimer(5 * time.Millisecond)
		select {
		case <-b.gone:
			timer.Stop()
			return errors.New("it ended at once")
		case <-ctx.Done():
			timer.Stop()
			return err
		case <-timer.C:
		}
	}
}

// pgBouncerConfig is the whole configuration: any client name is let in, and
// every database name leads to the one behind, as its user.
func pgBouncerConfig(databaseURL, dir string, port int) (string, error) {
	behind, err := pgx.ParseConfig(databaseURL)
	if err != nil {
		return "", err
	}
	quoted := func(value string) string { return "'" + strings.ReplaceAll(value, "'", "''") + "'" }
	server := fmt.Sprintf("host=%s port=%d dbname=%s user=%s", behind.Host, behind.Port, quoted(behind.Database), quoted(behind.User))
	if behind.Password != "" {
		server += " password=" + quoted(behind.Password)
	}
	// Not left to the client: PgBouncer does not know this parameter.
	server += " connect_query=" + quoted("select pg_catalog.set_config('search_path', '', false)")
	return fmt.Sprintf(`[databases]
* = %s

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = %d
max_client_conn = 500
ignore_startup_parameters = search_path, extra_float_digits
pidfile = %s
`, server, port, PgBouncerServerConns, filepath.Join(dir, "pgbouncer.pid")), nil
}

func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}
