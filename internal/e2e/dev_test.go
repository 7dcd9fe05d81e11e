//go:build unix

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// dev is a running doze dev.
type dev struct {
	cmd           *exec.Cmd
	api, postgres string
	stderr        *bytes.Buffer
	exited        chan error
}

// folder is one that Postgres' user can enter, which t.TempDir's is not where the tests run as root.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "doze-dev-")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func TestDevRunsInAFolderThatPostgresCannotEnter(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	d := startDev(t, data)
	t.Cleanup(func() { // where root's files lie elsewhere
		if elsewhere, err := os.Readlink(filepath.Join(data, "postgres")); err == nil {
			_ = os.RemoveAll(filepath.Dir(elsewhere))
		}
	})
	_, a := d.post(t, "/v1/jobs", `{"kind":"echo"}`)
	d.becomes(t, a["id"].(string), "done")
	if err := d.stop(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	again := startDev(t, data)
	again.becomes(t, a["id"].(string), "done")
	if err := again.stop(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
}

func startDev(t *testing.T, data string, flags ...string) *dev {
	t.Helper()
	d := &dev{stderr: new(bytes.Buffer), exited: make(chan error, 1)}
	d.cmd = exec.Command(build(t, "cmd/doze"), append([]string{"dev", "--addr", "127.0.0.1:0", "--data", data}, flags...)...)
	d.cmd.Env = append(os.Environ(), "DOZE_GITHUB_SECRET="+githubSecret)
	d.cmd.Stderr = d.stderr
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	printed := lines(out)
	for line := range printed {
		name, value, _ := strings.Cut(line, ": ")
		switch name {
		case "api":
			d.api = value
		case "postgres":
			d.postgres = value
		case "ready":
			go func() {
				for range printed { // until it exits
				}
				d.exited <- d.cmd.Wait()
			}()
			t.Cleanup(func() {
				if d.cmd.ProcessState == nil {
					_ = d.stop(syscall.SIGTERM)
				}
				if t.Failed() {
					t.Logf("dev said:\n%s", tail(d.stderr.String()))
				}
			})
			return d
		}
	}
	t.Fatalf("dev ended before it was ready: %v\n%s", d.cmd.Wait(), d.stderr)
	return nil
}

func (d *dev) stop(sig syscall.Signal) error {
	if err := d.cmd.Process.Signal(sig); err != nil {
		return err
	}
	select {
	case err := <-d.exited:
		return err
	case <-time.After(time.Minute):
		_ = d.cmd.Process.Kill()
		return fmt.Errorf("it did not stop within a minute of %v", sig)
	}
}

func (d *dev) post(t *testing.T, path, body string) (int, map[string]any) {
	t.Helper()
	resp, err := http.Post(d.api+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var v map[string]any
	text, _ := io.ReadAll(resp.Body)
	_ = json.Unmarshal(text, &v)
	return resp.StatusCode, v
}

func (d *dev) job(t *testing.T, id string) map[string]any {
	t.Helper()
	resp, err := http.Get(d.api + "/v1/jobs/" + id)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var v map[string]any
	if err := json.NewDecoder(resp.Body).Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

func (d *dev) becomes(t *testing.T, id, state string) map[string]any {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var v map[string]any
	eventually(t, ctx, "job "+id+" is "+state, func() (bool, string) {
		v = d.job(t, id)
		return v["state"] == state, fmt.Sprint(v)
	})
	return v
}

func TestDevRunsWebhooksFromGitHub(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	d := startDev(t, folder(t))
	db := pool(t, d.postgres)
	all := deliveries(t)
	ids := sendAllTwice(t, ctx, d.api, all)
	eventually(t, ctx, "all jobs have finished", func() (bool, string) {
		n := live(t, ctx, db, "doze")
		return n == 0, fmt.Sprint(n, " live")
	})
	doneOnce(t, ctx, db, "doze", all, ids)
	refusesWrongSignature(t, ctx, d.api, all[0], func() int {
		var n int
		if err := db.QueryRow(ctx, "SELECT count(*) FROM doze.job_list").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	})
	db.Close()
	if err := d.stop(syscall.SIGTERM); err != nil {
		t.Errorf("SIGTERM: %v\n%s", err, d.stderr)
	}
}

func TestDevDemoKindsEndAsTheySay(t *testing.T) {
	t.Parallel()
	d := startDev(t, folder(t))
	for _, tt := range []struct{ body, state, err string }{
		{`{"kind":"echo","payload":{"id":9007199254740993}}`, "done", ""},
		{`{"kind":"sleep","payload":{"ms":5}}`, "done", ""},
		{`{"kind":"sleep","payload":{"ms":"soon"},"max_attempts":1}`, "failed", "decode payload"},
		{`{"kind":"fail","max_attempts":1}`, "failed", "always fails"},
		{`{"kind":"crash","max_attempts":1}`, "failed", "panic"},
		{`{"kind":"echo","delay":"1s"}`, "done", ""},
	} {
		status, a := d.post(t, "/v1/jobs", tt.body)
		if status != http.StatusCreated {
			t.Errorf("%s: status %d, %v", tt.body, status, a)
			continue
		}
		v := d.becomes(t, a["id"].(string), tt.state)
		if last, _ := v["last_error"].(string); !strings.Contains(last, tt.err) {
			t.Errorf("%s: last error %q, want %q in it", tt.body, last, tt.err)
		}
	}
	if err := d.stop(syscall.SIGINT); err != nil {
		t.Errorf("SIGINT: %v", err)
	}
}

func TestDevFinishesTheJobsOfAStartThatWasKilled(t *testing.T) {
	t.Parallel()
	data := folder(t)
	first := startDev(t, data)
	_, running := first.post(t, "/v1/jobs", `{"kind":"sleep","payload":{"ms":200}}`)
	_, long := first.post(t, "/v1/jobs", `{"kind":"sleep","payload":{"ms":2000}}`)
	_, later := first.post(t, "/v1/jobs", `{"kind":"echo","delay":"2s"}`)
	first.becomes(t, long["id"].(string), "running")
	_ = first.stop(syscall.SIGKILL)

	second := startDev(t, data)
	for _, id := range []any{running["id"], long["id"], later["id"]} {
		second.becomes(t, id.(string), "done")
	}
	if err := second.stop(syscall.SIGTERM); err != nil {
		t.Errorf("SIGTERM: %v", err)
	}
	if left, err := http.Get(second.api + "/healthz"); err == nil {
		left.Body.Close()
		t.Error("the API answers after SIGTERM")
	}
	if conn, err := pgx.Connect(t.Context(), second.postgres); err == nil {
		_ = conn.Close(t.Context())
		t.Error("its Postgres runs after SIGTERM")
	}
}

func TestDevEndsIfItsPostgresDies(t *testing.T) {
	t.Parallel()
	data := folder(t)
	d := startDev(t, data)
	_, a := d.post(t, "/v1/jobs", `{"kind":"echo","delay":"1h"}`)
	pid, err := os.ReadFile(filepath.Join(data, "postgres", "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(pid), "\n")
	postmaster, err := strconv.Atoi(first)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(postmaster, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-d.exited:
		if err == nil || !strings.Contains(d.stderr.String(), "ended by itself") {
			t.Errorf("it ended with %v\n%s", err, d.stderr)
		}
	case <-time.After(time.Minute):
		t.Fatal("it goes on without a database")
	}
	again := startDev(t, data)
	if v := again.job(t, a["id"].(string)); v["state"] != "queued" {
		t.Errorf("after the crash: %v", v)
	}
	if err := again.stop(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
}

func TestCommandsFindTheDevThatRuns(t *testing.T) {
	t.Parallel()
	data := folder(t)
	d := startDev(t, data)
	doze := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(build(t, "cmd/doze"), append(args, "--data", data)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("doze %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	id := strings.TrimSpace(doze("enqueue", "echo", `{"a":1}`))
	d.becomes(t, id, "done")
	if out := doze("jobs", "list"); !strings.Contains(out, id) || !strings.Contains(out, "done") {
		t.Errorf("jobs list: %s", out)
	}
	if out := doze("jobs", "show", id, "--json"); !strings.Contains(out, `"payload": {`) {
		t.Errorf("jobs show --json: %s", out)
	}
	doze("queues", "pause", "default")
	id = strings.TrimSpace(doze("enqueue", "fail", "--max-attempts", "1"))
	if out := doze("queues", "list"); !strings.Contains(out, "yes") {
		t.Errorf("queues list of a paused queue: %s", out)
	}
	doze("queues", "resume", "default")
	d.becomes(t, id, "failed")
	doze("jobs", "retry", id)
	d.becomes(t, id, "failed")
	doze("schedules", "put", "often", "* * * * * *", "echo", `{"from":"a schedule"}`)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	eventually(t, ctx, "a schedule's job is done", func() (bool, string) {
		out := doze("jobs", "list", "--kind", "echo", "--state", "done", "--json")
		return strings.Count(out, `"id"`) >= 3, out // of the job above and two ticks
	})
	doze("schedules", "pause", "often")
	if out := doze("schedules", "list"); !strings.Contains(out, "often") || !strings.Contains(out, "yes") {
		t.Errorf("schedules list: %s", out)
	}
	doze("schedules", "resume", "often")
	doze("schedules", "delete", "often")
	doze("sweep")
	doze("drain")
	doze("migrate", "--check")
}

// database is GET /v1/database, which does not wake it.
func (d *dev) database(t *testing.T) (v struct {
	State string `json:"state"`
	Wakes int    `json:"wakes"`
	By    string `json:"kept_awake_by"`
}) {
	t.Helper()
	resp, err := http.Get(d.api + "/v1/database")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestTheDatabaseSleepsBetweenJobsAndWakesForThem(t *testing.T) {
	for _, rule := range []string{"queries", "connections"} {
		t.Run(rule, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			d := startDev(t, folder(t), "--suspend-after", "700ms", "--suspend-rule", rule)
			sleeps := func(wakes int) {
				t.Helper()
				eventually(t, ctx, fmt.Sprint("it sleeps after wake ", wakes), func() (bool, string) {
					v := d.database(t)
					return v.State == "asleep" && v.Wakes >= wakes, fmt.Sprintf("%+v", v)
				})
				if v := d.database(t); v.Wakes != wakes || v.By != "" {
					t.Errorf("%+v; want %d wakes", v, wakes)
				}
			}
			sleeps(1) // what the start needed
			d.post(t, "/v1/jobs", `{"kind":"echo"}`)
			sleeps(2)
			_, later := d.post(t, "/v1/jobs", `{"kind":"echo","delay":"4s"}`)
			sleeps(3)
			sleeps(4) // the alarm woke it when the job was due
			if v := d.job(t, later["id"].(string)); v["state"] != "done" {
				t.Errorf("after its alarm: %v", v)
			}
			sleeps(5) // the look above
		})
	}
}
