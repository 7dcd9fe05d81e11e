package pgdev_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dozequeue/doze/internal/pgdev"
	"github.com/jackc/pgx/v5"
)

func TestServer_StopAndRestart(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	begin := time.Now()
	server := start(t, pgdev.Config{DataDir: dir, Settings: map[string]string{"max_connections": "33"}})
	t.Logf("new cluster: ready after %v", time.Since(begin))
	if got := one(t, server.URL(), "show fsync"); got != "off" {
		t.Errorf("fsync is %s, want off", got)
	}
	if got := one(t, server.URL(), "show max_connections"); got != "33" {
		t.Errorf("max_connections is %s, want 33", got)
	}
	if got := one(t, server.URL(), "show unix_socket_directories"); got != "" {
		t.Errorf("there is a Unix socket in %s", got)
	}
	url, err := server.CreateDatabase(testContext(t), "doze")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := server.CreateDatabase(testContext(t), "doze"); err != nil {
		t.Errorf("again: %v", err)
	}
	one(t, url, "create table kept (word text)")
	one(t, url, "insert into kept values ('yes')")
	begin = time.Now()
	if err := server.Stop(testContext(t)); err != nil {
		t.Fatal(err)
	}
	t.Logf("stopped after %v", time.Since(begin))
	if err := server.Stop(testContext(t)); err != nil {
		t.Errorf("a second Stop: %v", err)
	}
	if err := server.Err(); err != nil {
		t.Errorf("after Stop: %v", err)
	}

	begin = time.Now()
	server = start(t, pgdev.Config{DataDir: dir, Durable: true})
	t.Logf("existing cluster: ready after %v", time.Since(begin))
	if got := one(t, server.DatabaseURL("doze"), "select word from kept"); got != "yes" {
		t.Errorf("after a restart the row is %q", got)
	}
	if got := one(t, server.URL(), "show fsync"); got != "on" {
		t.Errorf("durable: fsync is %s, want on", got)
	}
}

// Stop ends clients that are busy, and one that ignores everything.
func TestServer_StopWithClients(t *testing.T) {
	t.Parallel()
	server := start(t, pgdev.Config{DataDir: dataDir(t)})
	ctx := testContext(t)
	conn, err := pgx.Connect(ctx, server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	asleep := make(chan error, 1)
	go func() {
		_, err := conn.Exec(ctx, "select pg_sleep(3600)")
		asleep <- err
	}()
	if err := server.Stop(ctx); err != nil {
		t.Error(err)
	}
	if err := <-asleep; err == nil {
		t.Error("the client's statement ended well, want an error")
	}
}

// A Stop whose context is over does not wait for a fast shutdown.
func TestServer_StopAtOnce(t *testing.T) {
	t.Parallel()
	server := start(t, pgdev.Config{DataDir: dataDir(t)})
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := server.Stop(over); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	<-server.Done()
}

func TestServer_Crash(t *testing.T) {
	t.Parallel()
	for name, crash := range map[string]func(*testing.T, *pgdev.Server){
		"all at once": func(_ *testing.T, server *pgdev.Server) { server.Kill() },
		"first process only": func(t *testing.T, server *pgdev.Server) {
			killServerOf(t, server.DataDir())
			<-server.Done()
			wantError(t, server.Err(), "ended by itself", "killed")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := dataDir(t)
			server := start(t, pgdev.Config{DataDir: dir, Settings: map[string]string{"synchronous_commit": "on"}})
			one(t, server.URL(), "create table kept as select 'yes' as word")
			crash(t, server)
			server = start(t, pgdev.Config{DataDir: dir, Durable: true})
			if got := one(t, server.URL(), "select word from kept"); got != "yes" {
				t.Errorf("after the crash the row is %q", got)
			}
		})
	}
}

// A crashed server's id may belong to another process by the next start.
func TestStart_ReusedID(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	server := start(t, pgdev.Config{DataDir: dir})
	server.Kill()
	path := filepath.Join(dir, "postmaster.pid")
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(content), "\n")
	if err := os.WriteFile(path, []byte(fmt.Sprintf("%d\n%s", os.Getpid(), rest)), 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, pgdev.Config{DataDir: dir})
}

func TestStart_AfterKilledOwner(t *testing.T) {
	t.Parallel()
	for name, serverDiesToo := range map[string]bool{"server lives": false, "server dies too": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := dataDir(t)
			owner := exec.Command(os.Args[0])
			owner.Env = append(os.Environ(), ownerEnv+"="+dir)
			out, err := owner.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := owner.Start(); err != nil {
				t.Fatal(err)
			}
			line, _ := bufio.NewReader(out).ReadString('\n')
			if line != "ready\n" {
				t.Fatalf("the owner says %q", line)
			}
			_, err = pgdev.Start(testContext(t), pgdev.Config{DataDir: dir})
			wantError(t, err, "another running process uses it")

			if err := owner.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = owner.Wait()
			if serverDiesToo {
				killServerOf(t, dir)
			}
			server := start(t, pgdev.Config{DataDir: dir})
			if got := one(t, server.URL(), "show data_directory"); got != dir {
				t.Errorf("connected to the server of %s, want %s", got, dir)
			}
		})
	}
}

func TestStart_Errors(t *testing.T) {
	t.Parallel()
	bin, err := pgdev.Find(testContext(t), pgdev.Options{})
	if err != nil {
		t.Fatal(err)
	}
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	port := busy.Addr().(*net.TCPAddr).Port
	other := dataDir(t)
	if err := os.MkdirAll(other, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(other, "PG_VERSION"), []byte("12\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		cfg  pgdev.Config
		want []string
	}{
		"no folder":       {pgdev.Config{}, []string{"DataDir"}},
		"port":            {pgdev.Config{DataDir: dataDir(t), Port: 70000}, []string{"Port 70000", "65535"}},
		"port in use":     {pgdev.Config{DataDir: dataDir(t), Port: port}, []string{fmt.Sprint(port), "in use"}},
		"our setting":     {pgdev.Config{DataDir: dataDir(t), Settings: map[string]string{"Port": "1"}}, []string{`"Port"`, "Config.Port"}},
		"unknown setting": {pgdev.Config{DataDir: dataDir(t), Settings: map[string]string{"no_such": "1"}}, []string{"ended at once", "no_such"}},
		"not a cluster":   {pgdev.Config{DataDir: filepath.Dir(other)}, []string{"DataDir", "neither"}},
		"other major":     {pgdev.Config{DataDir: other}, []string{"DataDir", "PostgreSQL 12", bin.Version}},
	} {
		test.cfg.Binaries = bin
		_, err := pgdev.Start(testContext(t), test.cfg)
		if err == nil {
			t.Errorf("%s: started", name)
			continue
		}
		t.Run(name, func(t *testing.T) { wantError(t, err, test.want...) })
	}
}

// A start that is cut off leaves no process, and the next one works.
func TestStart_CutOff(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := pgdev.Start(ctx, pgdev.Config{DataDir: dir}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	start(t, pgdev.Config{DataDir: dir})
	left, _ := filepath.Glob(dir + ".init-*")
	if len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}
