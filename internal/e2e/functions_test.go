//go:build unix

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dozequeue/doze/internal/dbtest"
	"github.com/dozequeue/doze/internal/lambdatest"
)

const lambdaTags = "-tags=lambda.norpc"

func TestFunctionsOnLambdaRunWebhooksFromGitHub(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	url := dbtest.Database(t)
	s, err := lambdatest.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	var log printed
	t.Cleanup(func() {
		_ = s.Close()
		if t.Failed() {
			t.Logf("the functions said:\n%s", tail(log.String()))
		}
	})
	settings := []string{"DOZE_DATABASE_URL=" + url, "DOZE_TRIGGER=lambda", "DOZE_TRIGGER_FUNCTION=Handler"}
	for _, f := range []lambdatest.Function{
		{Name: "Enqueue", Bootstrap: build(t, "functions/enqueue", lambdaTags), Env: append(settings, "DOZE_GITHUB_SECRET="+githubSecret), Timeout: 30 * time.Second},
		{Name: "Handler", Bootstrap: build(t, "functions/handler", lambdaTags), Env: settings, Timeout: 30 * time.Second, AllowLoop: true},
		{Name: "Sweeper", Bootstrap: build(t, "functions/sweeper", lambdaTags), Env: settings, Timeout: 30 * time.Second},
		{Name: "Migrate", Bootstrap: build(t, "functions/migrate", lambdaTags), Env: append(settings, "DOZE_GRANT_ROLES=false"), Timeout: 30 * time.Second},
	} {
		f.Log = &log
		if err := s.Add(f); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := s.Invoke(ctx, "Migrate", []byte(`{}`)); err != nil {
		t.Fatalf("migrate: %v %s", err, out)
	}
	api, err := s.FunctionURL("Enqueue")
	if err != nil {
		t.Fatal(err)
	}
	all := deliveries(t)
	ids := sendAllTwice(t, ctx, strings.TrimSuffix(api, "/"), all)
	if err := s.WaitIdle(ctx); err != nil {
		t.Fatal(err)
	}
	db := pool(t, url)
	if n := live(t, ctx, db, "doze"); n != 0 {
		t.Errorf("%d jobs are left after the last drain, want 0", n)
	}
	doneOnce(t, ctx, db, "doze", all, ids)
	refusesWrongSignature(t, ctx, strings.TrimSuffix(api, "/"), all[0], func() int {
		var n int
		if err := db.QueryRow(ctx, "SELECT count(*) FROM doze.job_list").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	})
	c := s.Counters("Handler")
	if c.Errors > 0 || c.Invocations >= len(all) {
		t.Errorf("the handler: %+v; want no errors, and fewer drains than deliveries", c)
	}
	t.Logf("%d deliveries took %d drains", len(all), c.Invocations)
	if out, err := s.Invoke(ctx, "Sweeper", []byte(`{}`)); err != nil || !strings.Contains(string(out), `"reaped":0`) {
		t.Errorf("sweep: %s %v", out, err)
	}
}

// serveFunction runs a function as an HTTP server and returns its URL.
func serveFunction(t *testing.T, pkg string, settings ...string) string {
	t.Helper()
	cmd := exec.Command(build(t, pkg, lambdaTags))
	cmd.Env = append(settings, "DOZE_ADDR=127.0.0.1:0")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	printed := lines(stderr)
	var said []string
	for line := range printed {
		said = append(said, line)
		if _, addr, ok := strings.Cut(line, `"addr":"`); ok {
			addr, _, _ = strings.Cut(addr, `"`)
			done := make(chan struct{})
			go func() {
				defer close(done)
				for line := range printed {
					said = append(said, line)
				}
			}()
			t.Cleanup(func() {
				_ = cmd.Process.Signal(syscall.SIGTERM)
				<-done
				if err := cmd.Wait(); err != nil {
					t.Errorf("%s after SIGTERM: %v", pkg, err)
				}
				if t.Failed() {
					t.Logf("%s said:\n%s", pkg, tail(strings.Join(said, "\n")))
				}
			})
			return "http://" + addr
		}
	}
	t.Fatalf("%s ended: %v\n%s", pkg, cmd.Wait(), strings.Join(said, "\n"))
	return ""
}

func TestFunctionsAsHTTPServersRunWebhooksFromGitHub(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	url := dbtest.Database(t)
	database := "DOZE_DATABASE_URL=" + url
	migrate := exec.Command(build(t, "functions/migrate", lambdaTags))
	migrate.Env = []string{database, "DOZE_GRANT_ROLES=false"}
	if out, err := migrate.CombinedOutput(); err != nil {
		t.Fatalf("migrate: %v\n%s", err, out)
	}
	const secrets = "DOZE_TRIGGER_SECRETS=0123456789abcdef0123456789abcdef"
	drains := serveFunction(t, "functions/handler", database, secrets)
	api := serveFunction(t, "functions/enqueue", database, secrets, "DOZE_TRIGGER=http", "DOZE_TRIGGER_URL="+drains+"/drain", "DOZE_GITHUB_SECRET="+githubSecret)
	sweeps := serveFunction(t, "functions/sweeper", database, secrets, "DOZE_RECEIVER_TOKENS=a-token-for-the-scheduler")

	all := deliveries(t)
	ids := sendAllTwice(t, ctx, api, all)
	db := pool(t, url)
	eventually(t, ctx, "all jobs have finished", func() (bool, string) {
		n := live(t, ctx, db, "doze")
		return n == 0, fmt.Sprint(n, " live")
	})
	doneOnce(t, ctx, db, "doze", all, ids)

	for _, tt := range []struct {
		url, token string
		want       int
	}{
		{drains + "/drain", "", http.StatusUnauthorized},
		{sweeps + "/sweep", "another-token-entirely", http.StatusUnauthorized},
		{sweeps + "/sweep", "a-token-for-the-scheduler", http.StatusOK},
	} {
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, tt.url, nil)
		if tt.token != "" {
			req.Header.Set("Authorization", "Bearer "+tt.token)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != tt.want {
			t.Errorf("POST %s with token %q: status %d, want %d", tt.url, tt.token, resp.StatusCode, tt.want)
		}
	}
}
