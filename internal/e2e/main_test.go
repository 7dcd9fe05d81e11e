// Package e2e runs the built programs as a user would: the command doze, and the functions on a Lambda
// double and as HTTP servers, each with a real Postgres.
package e2e

import (
	"bufio"
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dozequeue/doze/internal/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

var builds sync.Map // package → func() (string, error)

// build builds a main once for all tests and returns the binary.
func build(t *testing.T, pkg string, flags ...string) string {
	t.Helper()
	return buildAs(t, pkg, pkg, flags...)
}

// buildAs is build with a name, for a package that is built in more than one way.
func buildAs(t *testing.T, name, pkg string, flags ...string) string {
	t.Helper()
	once, _ := builds.LoadOrStore(name, sync.OnceValues(func() (string, error) {
		dir, err := os.MkdirTemp("", "doze-e2e-")
		if err != nil {
			return "", err
		}
		binary := filepath.Join(dir, "bootstrap")
		args := append([]string{"build", "-o", binary}, flags...)
		cmd := exec.Command("go", append(args, "github.com/dozequeue/doze/"+pkg)...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("build %s: %w\n%s", pkg, err, out)
		}
		return binary, nil
	}))
	binary, err := once.(func() (string, error))()
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

const githubSecret = "a secret that only GitHub and we know"

// delivery is one webhook as GitHub sends it.
type delivery struct {
	Event string
	ID    string
	Body  []byte
}

// deliveries are those of DOZE_TESTDATA where it is set, else the few that the repo carries.
func deliveries(t *testing.T) []delivery {
	t.Helper()
	path := filepath.Join("testdata", "github-webhooks.jsonl")
	if dir := os.Getenv("DOZE_TESTDATA"); dir != "" {
		path = filepath.Join(dir, "github-webhooks.jsonl")
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var all []delivery
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line struct {
			Event   string
			Payload json.RawMessage
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatalf("%s, line %d: %v", path, len(all)+1, err)
		}
		all = append(all, delivery{Event: line.Event, ID: uuid.NewString(), Body: bytes.Clone(line.Payload)})
	}
	if err := lines.Err(); err != nil || len(all) == 0 {
		t.Fatalf("%s: %d deliveries, %v", path, len(all), err)
	}
	t.Logf("%d deliveries from %s", len(all), path)
	return all
}

type answer struct {
	ID        string `json:"id"`
	Duplicate bool   `json:"duplicate"`
}

// send sends a delivery as GitHub does, signed with secret.
func send(ctx context.Context, api string, d delivery, secret string) (int, answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, api+"/v1/hooks/github", bytes.NewReader(d.Body))
	if err != nil {
		return 0, answer{}, err
	}
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(d.Body)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "GitHub-Hookshot/044aadd")
	req.Header.Set("X-GitHub-Event", d.Event)
	req.Header.Set("X-GitHub-Delivery", d.ID)
	req.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, answer{}, err
	}
	var a answer
	_ = json.Unmarshal(body, &a)
	return resp.StatusCode, a, nil
}

// sendAllTwice sends each delivery twice, a few at a time, and checks the answers. It returns the
// job's id of each.
func sendAllTwice(t *testing.T, ctx context.Context, api string, all []delivery) []string {
	t.Helper()
	ids := make([]string, len(all))
	var wg sync.WaitGroup
	next := make(chan int)
	for range 4 {
		wg.Go(func() {
			for i := range next {
				for nth, want := range []int{http.StatusCreated, http.StatusOK} {
					status, a, err := send(ctx, api, all[i], githubSecret)
					if err != nil || status != want || a.Duplicate != (nth == 1) {
						t.Errorf("delivery %d (%s), time %d: status %d, duplicate %v, %v; want %d, %v", i, all[i].Event, nth+1, status, a.Duplicate, err, want, nth == 1)
						continue
					}
					if nth == 1 && a.ID != ids[i] {
						t.Errorf("delivery %d: the duplicate names job %s, want %s", i, a.ID, ids[i])
					}
					ids[i] = a.ID
				}
			}
		})
	}
	for i := range all {
		next <- i
	}
	close(next)
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return ids
}

// refusesWrongSignature sends one delivery signed with another secret.
func refusesWrongSignature(t *testing.T, ctx context.Context, api string, d delivery, count func() int) {
	t.Helper()
	d.ID = uuid.NewString()
	before := count()
	status, _, err := send(ctx, api, d, rand.Text())
	if err != nil || status != http.StatusUnauthorized {
		t.Errorf("a wrong signature: status %d, %v; want 401", status, err)
	}
	if after := count(); after != before {
		t.Errorf("a wrong signature: %d jobs, want %d as before", after, before)
	}
}

// doneOnce checks in the database that every delivery became one job, done by one attempt, with the
// body byte for byte.
func doneOnce(t *testing.T, ctx context.Context, db *pgxpool.Pool, schema string, all []delivery, ids []string) {
	t.Helper()
	table := pgx.Identifier{schema, "history"}.Sanitize()
	var total int
	if err := db.QueryRow(ctx, "SELECT count(*) FROM "+table).Scan(&total); err != nil || total != len(all) {
		t.Errorf("%d finished jobs, %v; want %d", total, err, len(all))
	}
	for i, d := range all {
		var kind, state, payload string
		var attempts int
		err := db.QueryRow(ctx, "SELECT kind, state, attempts, payload::text FROM "+table+" WHERE id = $1::text::uuid", ids[i]).Scan(&kind, &state, &attempts, &payload)
		if err != nil {
			t.Errorf("delivery %d: %v", i, err)
			continue
		}
		if kind != "github."+d.Event || state != "done" || attempts != 1 {
			t.Errorf("delivery %d: kind %s, %s, %d attempts; want github.%s, done, 1", i, kind, state, attempts, d.Event)
		}
		if payload != string(d.Body) {
			t.Errorf("delivery %d (%s): the payload is not what was sent", i, d.Event)
		}
	}
}

// eventually waits for a state of the database, which no signal tells of. It fails the test when
// the context ends.
func eventually(t *testing.T, ctx context.Context, what string, ok func() (bool, string)) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		reached, now := ok()
		if reached {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("waiting until %s: %s", what, now)
		case <-tick.C:
		}
	}
}

// live counts the jobs that have not finished.
func live(t *testing.T, ctx context.Context, db *pgxpool.Pool, schema string) int {
	t.Helper()
	var n int
	if err := db.QueryRow(ctx, "SELECT count(*) FROM "+pgx.Identifier{schema, "jobs"}.Sanitize()).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func pool(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	p, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// lines passes on what a program prints, line by line.
func lines(r io.Reader) <-chan string {
	c := make(chan string, 1000)
	go func() {
		defer close(c)
		for s := bufio.NewScanner(r); s.Scan(); {
			c <- strings.TrimSpace(s.Text())
		}
	}()
	return c
}

// tail is the end of what a program printed.
func tail(text string) string {
	const most = 4000
	if len(text) <= most {
		return text
	}
	return "…" + text[len(text)-most:]
}

// printed collects what several programs print.
type printed struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (p *printed) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

func (p *printed) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}
