package webhooks

import (
	"bufio"
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dozequeue/doze/enqueue"
	"github.com/dozequeue/doze/internal/dbtest"
	"github.com/dozequeue/doze/migrations"
	"github.com/dozequeue/doze/queue"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

const secret = "It's a Secret to Everybody"

type bundle struct {
	t       *testing.T
	ctx     context.Context
	pool    *pgxpool.Pool
	store   *queue.Store
	handler http.Handler
	logs    bytes.Buffer
	wakes   int
}

func setup(t *testing.T) *bundle {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	schema := dbtest.Schema(t)
	b := &bundle{t: t, ctx: ctx, pool: dbtest.Pool(t)}
	conn, err := b.pool.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if _, err := migrations.Up(ctx, conn.Conn(), schema); err != nil {
		t.Fatal(err)
	}
	if b.store, err = queue.NewStore(schema); err != nil {
		t.Fatal(err)
	}
	trigger := queue.TriggerFunc(func(context.Context, queue.Wake) error { b.wakes++; return nil })
	client, err := enqueue.New(b.pool, trigger, enqueue.Config{Schema: schema, Logger: slog.New(slog.NewTextHandler(&b.logs, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if b.handler, err = Handler(client, secret); err != nil {
		t.Fatal(err)
	}
	return b
}

func sign(body []byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}

// deliver sends a body as GitHub does. Headers are pairs that change it.
func (b *bundle) deliver(event, delivery string, body []byte, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", "/v1/hooks/github", bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "GitHub-Hookshot/044aadd")
	r.Header.Set("X-GitHub-Event", event)
	r.Header.Set("X-GitHub-Delivery", delivery)
	r.Header.Set("X-Hub-Signature-256", sign(body))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	b.handler.ServeHTTP(w, r)
	return w
}

func (b *bundle) jobs() int {
	b.t.Helper()
	n := 0
	if err := b.pool.QueryRow(b.ctx, queue.Qualify("SELECT (SELECT count(*) FROM doze.jobs) + (SELECT count(*) FROM doze.keys) + (SELECT count(*) FROM doze.queues)", b.store.Schema())).Scan(&n); err != nil {
		b.t.Fatal(err)
	}
	return n
}

// twice delivers a body two times and compares what is stored.
func (b *bundle) twice(event string, body []byte) {
	b.t.Helper()
	delivery := uuid.NewString()
	var first, second struct {
		ID        uuid.UUID
		Duplicate bool
	}
	w := b.deliver(event, delivery, body)
	if err := json.Unmarshal(w.Body.Bytes(), &first); err != nil || w.Code != http.StatusCreated || first.Duplicate {
		b.t.Fatalf("%s: %d %s", event, w.Code, w.Body)
	}
	w = b.deliver(event, delivery, body)
	if err := json.Unmarshal(w.Body.Bytes(), &second); err != nil || w.Code != http.StatusOK || !second.Duplicate || second.ID != first.ID {
		b.t.Fatalf("%s, sent again: %d %s, want job %s", event, w.Code, w.Body, first.ID)
	}
	job, err := b.store.Get(b.ctx, b.pool, first.ID)
	if err != nil {
		b.t.Fatal(err)
	}
	if !bytes.Equal(job.Payload, body) {
		b.t.Errorf("%s: the payload is not the body byte for byte", event)
	}
	if job.Kind != "github."+event || job.Queue != Queue || job.Key != delivery {
		b.t.Errorf("%s: stored as %s on %s with key %s", event, job.Kind, job.Queue, job.Key)
	}
}

func TestHandler_Samples(t *testing.T) {
	t.Parallel()
	b := setup(t)
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) != 3 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		body, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		b.twice(strings.TrimSuffix(filepath.Base(name), ".json"), body)
	}
	if b.wakes != 1 {
		t.Errorf("woken %d times, want once for the burst", b.wakes)
	}
}

// 329 deliveries of all events, from a file that is not in this repository: one JSON
// object a line, with "event" and "payload".
func TestHandler_AllEvents(t *testing.T) {
	t.Parallel()
	dir := os.Getenv("DOZE_TESTDATA")
	if dir == "" {
		t.Skip("set DOZE_TESTDATA to the directory with github-webhooks.jsonl")
	}
	file, err := os.Open(filepath.Join(dir, "github-webhooks.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	b := setup(t)
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	n := 0
	for lines.Scan() {
		var line struct {
			Event   string
			Payload json.RawMessage
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			if w := b.deliver(line.Event, uuid.NewString(), line.Payload, "X-Hub-Signature-256", sign([]byte("another"))); w.Code != http.StatusUnauthorized || b.jobs() != 0 {
				t.Fatalf("wrong signature: %d, %d rows", w.Code, b.jobs())
			}
		}
		b.twice(line.Event, line.Payload)
		n++
	}
	if err := lines.Err(); err != nil || n != 329 || b.jobs() != 2*329+1 {
		t.Errorf("%v, %d deliveries, %d rows, want a job and a key for each of 329", err, n, b.jobs())
	}
}

func TestHandler_Refuses(t *testing.T) {
	t.Parallel()
	b := setup(t)
	body := []byte(`{"token":"s3cret"}`)
	const id = "72d3162e-cc78-11e3-81ab-4c9367dc0958"
	for _, c := range []struct {
		name    string
		body    []byte
		headers []string
		status  int
		text    string
	}{
		{"no signature", body, []string{"X-Hub-Signature-256", ""}, 401, "unauthorized"},
		{"signature of another body", body, []string{"X-Hub-Signature-256", sign([]byte("{}"))}, 401, "unauthorized"},
		{"half a signature", body, []string{"X-Hub-Signature-256", sign(body)[:40]}, 401, "unauthorized"},
		{"bare signature", body, []string{"X-Hub-Signature-256", sign(body)[7:]}, 401, "unauthorized"},
		{"SHA-1 only", body, []string{"X-Hub-Signature-256", "", "X-Hub-Signature", "sha1=" + strings.Repeat("0", 40)}, 401, "unauthorized"},
		{"form", body, []string{"Content-Type", "application/x-www-form-urlencoded"}, 400, "Content-Type"},
		{"no event", body, []string{"X-GitHub-Event", ""}, 400, "X-GitHub-Event"},
		{"odd event", body, []string{"X-GitHub-Event", "push\u00e9"}, 400, "X-GitHub-Event"},
		{"long event", body, []string{"X-GitHub-Event", strings.Repeat("e", 65)}, 400, "X-GitHub-Event"},
		{"no delivery", body, []string{"X-GitHub-Delivery", ""}, 400, "X-GitHub-Delivery"},
		{"odd delivery", body, []string{"X-GitHub-Delivery", "a b"}, 400, "X-GitHub-Delivery"},
		{"no body", nil, nil, 400, "payload"},
		{"no JSON", []byte(`s3cret`), nil, 400, "payload"},
		{"no UTF-8", []byte("\"s3cret\xff\""), nil, 400, "payload"},
		{"too large", fmt.Appendf(nil, `"s3cret%s"`, strings.Repeat("x", 1<<20)), nil, 413, "too_large"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := b.deliver("push", id, c.body, c.headers...)
			if w.Code != c.status || !strings.Contains(w.Body.String(), c.text) || strings.Contains(w.Body.String(), "s3cret") {
				t.Errorf("%d %s, want %d and %s", w.Code, w.Body, c.status, c.text)
			}
		})
	}
	if b.jobs() != 0 || b.logs.Len() != 0 {
		t.Errorf("%d rows, logged %q", b.jobs(), &b.logs)
	}
	r := httptest.NewRequest("GET", "/v1/hooks/github", nil)
	w := httptest.NewRecorder()
	if b.handler.ServeHTTP(w, r); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("GET: %d", w.Code)
	}
}

func TestHandler_NeedsASecret(t *testing.T) {
	t.Parallel()
	if _, err := Handler(&enqueue.Client{}, ""); err == nil {
		t.Error("built without a secret")
	}
	if _, err := Handler(nil, secret); err == nil {
		t.Error("built without a client")
	}
}
