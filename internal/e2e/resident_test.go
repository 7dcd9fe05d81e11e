//go:build unix

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dozequeue/doze/internal/dbtest"
)

// migrated returns the setting for a database of its own with the tables.
func migrated(t *testing.T) (url, setting string) {
	t.Helper()
	url = dbtest.Database(t)
	setting = "DOZE_DATABASE_URL=" + url
	cmd := exec.Command(build(t, "functions/migrate", lambdaTags))
	cmd.Env = []string{setting, "DOZE_GRANT_ROLES=false"}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("migrate: %v\n%s", err, out)
	}
	return url, setting
}

func TestAResidentHandlerRunsWebhooksFromGitHub(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	url, database := migrated(t)

	handler := exec.Command(build(t, "functions/handler", lambdaTags))
	handler.Env = []string{database, "DOZE_LISTEN_URL=" + url, "DOZE_FALLBACK=1h"}
	stderr, err := handler.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := handler.Start(); err != nil {
		t.Fatal(err)
	}
	var said printed
	listening, ended := make(chan struct{}, 10), make(chan struct{})
	go func() {
		defer close(ended)
		for line := range lines(stderr) {
			fmt.Fprintln(&said, line)
			if strings.Contains(line, `"msg":"listening"`) {
				listening <- struct{}{}
			}
		}
	}()
	t.Cleanup(func() {
		_ = handler.Process.Kill()
		<-ended
		_ = handler.Wait()
		if t.Failed() {
			t.Logf("the handler said:\n%s", tail(said.String()))
		}
	})
	select {
	case <-listening:
	case <-ended:
		t.Fatal("the handler ended")
	case <-ctx.Done():
		t.Fatal("the handler never listened")
	}

	api := serveFunction(t, "functions/enqueue", database, "DOZE_TRIGGER=notify", "DOZE_ALARM=notify", "DOZE_GITHUB_SECRET="+githubSecret)
	sweeps := serveFunction(t, "functions/sweeper", database, "DOZE_TRIGGER=notify", "DOZE_ALARM=notify", "DOZE_RECEIVER_TRUSTED=true")
	all := deliveries(t)
	ids := sendAllTwice(t, ctx, api, all)
	db := pool(t, url)
	eventually(t, ctx, "all jobs have finished", func() (bool, string) {
		n := live(t, ctx, db, "doze")
		return n == 0, fmt.Sprint(n, " live")
	})
	doneOnce(t, ctx, db, "doze", all, ids)

	// A job that nobody was told of is found by a sweep, which tells the handler.
	if _, err := db.Exec(ctx, `INSERT INTO doze.jobs (id, queue, kind, max_attempts, payload) VALUES (gen_random_uuid(), 'mail', 'hello', 3, '{}')`); err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post(sweeps+"/sweep", "application/json", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	eventually(t, ctx, "the job that was swept has finished", func() (bool, string) {
		n := live(t, ctx, db, "doze")
		return n == 0, fmt.Sprint(n, " live")
	})

	_ = handler.Process.Signal(syscall.SIGTERM)
	select {
	case <-ended:
	case <-ctx.Done():
		t.Fatal("the handler goes on after SIGTERM")
	}
	if err := handler.Wait(); err != nil {
		t.Errorf("the handler after SIGTERM: %v", err)
	}
}

func TestAHandlerDrainsOnceForATimer(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	url, database := migrated(t)
	api := serveFunction(t, "functions/enqueue", database, "DOZE_GITHUB_SECRET="+githubSecret)
	all := deliveries(t)
	all = all[:min(len(all), 50)]
	ids := sendAllTwice(t, ctx, api, all)
	db := pool(t, url)
	if _, err := db.Exec(ctx, `INSERT INTO doze.jobs (id, queue, kind, max_attempts, run_at, payload) VALUES (gen_random_uuid(), 'mail', 'hello', 3, now() + interval '1 day', '{}')`); err != nil {
		t.Fatal(err)
	}
	once := func(settings ...string) (string, error) {
		cmd := exec.CommandContext(ctx, build(t, "functions/handler", lambdaTags))
		cmd.Env = append(settings, "DOZE_ONCE=true", "DOZE_RECONNECT=1s")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := once(database); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if n := live(t, ctx, db, "doze"); n != 1 {
		t.Errorf("%d jobs are left, want the one that is due tomorrow", n)
	}
	doneOnce(t, ctx, db, "doze", all, ids)

	cmd := exec.CommandContext(ctx, build(t, "cmd/doze"), "drain", "--all", "--json")
	cmd.Env = []string{database}
	if out, err := cmd.Output(); err != nil || !bytes.Equal(bytes.TrimSpace(out), []byte("[]")) {
		t.Errorf("doze drain --all: %v, %q; want nothing to drain", err, out)
	}
	for name, setting := range map[string]string{
		"no such database": database + "_x", "no tables": "DOZE_DATABASE_URL=" + dbtest.Database(t), "nobody there": "DOZE_DATABASE_URL=postgres://127.0.0.1:1/x",
	} {
		if out, err := once(setting); err == nil {
			t.Errorf("%s: exit code 0, want 1\n%s", name, out)
		}
		cmd := exec.CommandContext(ctx, build(t, "cmd/doze"), "drain", "--all")
		cmd.Env = []string{setting, "DOZE_RECONNECT=1s"}
		if out, err := cmd.CombinedOutput(); err == nil {
			t.Errorf("%s: doze drain: exit code 0, want 1\n%s", name, out)
		}
	}
}
