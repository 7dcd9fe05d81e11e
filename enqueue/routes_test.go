package enqueue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dozequeue/doze/internal/dbtest"
	"github.com/dozequeue/doze/queue"
)

// anyone lets everybody in.
var anyone = AuthFunc(func(*http.Request) (Caller, error) { return Caller{Name: "test"}, nil })

func (b *bundle) routes(cfg RoutesConfig) http.Handler {
	b.t.Helper()
	if cfg.Auth == nil {
		cfg.Auth = anyone
	}
	h, err := Routes(b.client, cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	return h
}

// ask sends one request. Headers are pairs; an empty value takes one away.
func ask(h http.Handler, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
		if headers[i+1] == "" {
			r.Header.Del(headers[i])
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// answer is any of the API's answers.
type answer struct {
	ID        string
	Duplicate bool
	State     string
	Type      string
	Title     string
	Status    int
	Detail    string
	Code      string
	Field     string
	Index     *int
}

func read(t *testing.T, w *httptest.ResponseRecorder, status int) (a answer) {
	t.Helper()
	if w.Code != status {
		t.Fatalf("status %d, want %d: %s", w.Code, status, w.Body)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil {
		t.Fatalf("%v: %s", err, w.Body)
	}
	if w.Header().Get("X-Content-Type-Options") != "nosniff" || w.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("headers %v", w.Header())
	}
	if status >= 400 && (a.Status != status || a.Type == "" || a.Title == "" || a.Detail == "" || w.Header().Get("Content-Type") != "application/problem+json") {
		t.Errorf("%s is no whole problem: %s", w.Header().Get("Content-Type"), w.Body)
	}
	return a
}

func wantProblem(t *testing.T, w *httptest.ResponseRecorder, status int, code, field string) answer {
	t.Helper()
	a := read(t, w, status)
	if a.Code != code || a.Field != field {
		t.Errorf("code %q, field %q, want %q and %q: %s", a.Code, a.Field, code, field, w.Body)
	}
	return a
}

func TestRoutes_AddAndGet(t *testing.T) {
	t.Parallel()
	b := setup(t)
	h := b.routes(RoutesConfig{})
	payload := `{"id":9007199254740993, "a":"<&>", "a" : 2}`
	w := ask(h, "POST", "/v1/jobs", `{"kind":"mail/send", "payload": `+payload+` , "queue":"mail","priority":-2,"max_attempts":3,"key":"k","run_at":"2020-01-01T00:00:00+01:00"}`)
	added := read(t, w, http.StatusCreated)
	if added.Duplicate || uuid.MustParse(added.ID).Version() != 7 {
		t.Errorf("answer %s", w.Body)
	}
	wantQueues(t, b.trigger.take(), "mail")

	w = ask(h, "GET", "/v1/jobs/"+added.ID, "")
	if a := read(t, w, http.StatusOK); a.State != "queued" || a.ID != added.ID {
		t.Errorf("answer %s", w.Body)
	}
	if !strings.Contains(w.Body.String(), `"payload":`+payload+`,"run_at":"2019-12-31T23:00:00Z"`) {
		t.Errorf("the payload is not there byte for byte: %s", w.Body)
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(w.Body.Bytes(), &members); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"queue": `"mail"`, "kind": `"mail/send"`, "attempts": "0", "failures": "0", "finished_at": "null", "last_error": "null",
	} {
		if string(members[name]) != want {
			t.Errorf("%s is %s, want %s", name, members[name], want)
		}
	}
	if len(members) != 11 {
		t.Errorf("%d members, want 11: %s", len(members), w.Body)
	}
	if !value[bool](b, "SELECT priority = -2 AND max_attempts = 3 AND key = 'k' FROM doze.jobs") {
		t.Error("a member was lost")
	}

	// The key makes a second one a duplicate, be it given in the header.
	w = ask(h, "POST", "/v1/jobs", `{"kind":"mail/send","payload":1}`, "Idempotency-Key", "k")
	if again := read(t, w, http.StatusOK); !again.Duplicate || again.ID != added.ID {
		t.Errorf("answer %s", w.Body)
	}

	b.finishAll("mail")
	w = ask(h, "GET", "/v1/jobs/"+added.ID, "")
	if a := read(t, w, http.StatusOK); a.State != "done" || strings.Contains(w.Body.String(), `"finished_at":null`) {
		t.Errorf("answer %s", w.Body)
	}
}

func TestRoutes_LeastAndDelayed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	h := b.routes(RoutesConfig{})
	read(t, ask(h, "POST", "/v1/jobs", `{"kind":"k"}`, "Content-Type", "application/json; charset=UTF-8"), http.StatusCreated)
	read(t, ask(h, "POST", "/v1/jobs", " {\"kind\":\"k\",\"delay\":\"1h30m\",\"key\":\"\\u0041\"}\n"), http.StatusCreated)
	if !value[bool](b, "SELECT payload::text = 'null' AND queue = 'default' AND run_at = created_at AND key IS NULL FROM doze.jobs ORDER BY run_at LIMIT 1") {
		t.Error("the first row is not as it is by default")
	}
	if !value[bool](b, "SELECT run_at = created_at + interval '90 minutes' AND key = 'A' FROM doze.jobs ORDER BY run_at DESC LIMIT 1") {
		t.Error("the second row is not as it was sent")
	}
}

func TestRoutes_RefusesFields(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.client = b.newClient(b.pool, Config{MaxPayload: 2000})
	h := b.routes(RoutesConfig{})
	const secret = "s3cret"
	deep := strings.Repeat("[", 600) + strings.Repeat("]", 600)
	for _, c := range []struct {
		body   string // a job; %s is the secret
		status int
		code   string
		field  string
	}{
		{`{"payload":"%s"}`, 400, "invalid_field", "kind"},
		{`{"kind":null,"payload":"%s"}`, 400, "invalid_field", "kind"},
		{`{"kind":7,"payload":"%s"}`, 400, "invalid_field", "kind"},
		{`{"kind":"","payload":"%s"}`, 400, "invalid_field", "kind"},
		{`{"kind":"a b","payload":"%s"}`, 400, "invalid_field", "kind"},
		{`{"kind":"a\u0000","payload":"%s"}`, 400, "invalid_field", "kind"},
		{`{"kind":"k","queue":"","payload":"%s"}`, 400, "invalid_field", "queue"},
		{`{"kind":"k","queue":null,"payload":"%s"}`, 400, "invalid_field", "queue"},
		{`{"kind":"k","queue":"Ünï✅","payload":"%s"}`, 400, "invalid_field", "queue"},
		{`{"kind":"k","queue":["q"],"payload":"%s"}`, 400, "invalid_field", "queue"},
		{`{"kind":"k","delay":10,"payload":"%s"}`, 400, "invalid_field", "delay"},
		{`{"kind":"k","delay":"","payload":"%s"}`, 400, "invalid_field", "delay"},
		{`{"kind":"k","delay":"10","payload":"%s"}`, 400, "invalid_field", "delay"},
		{`{"kind":"k","delay":"-1s","payload":"%s"}`, 400, "invalid_field", "delay"},
		{`{"kind":"k","delay":"100000h","payload":"%s"}`, 400, "invalid_field", "delay"},
		{`{"kind":"k","delay":"9999999h","payload":"%s"}`, 400, "invalid_field", "delay"},
		{`{"kind":"k","delay":"1s","run_at":"2030-01-01T00:00:00Z","payload":"%s"}`, 400, "invalid_field", "delay"},
		{`{"kind":"k","run_at":"tomorrow","payload":"%s"}`, 400, "invalid_field", "run_at"},
		{`{"kind":"k","run_at":"2030-01-01","payload":"%s"}`, 400, "invalid_field", "run_at"},
		{`{"kind":"k","run_at":"2030-02-30T00:00:00Z","payload":"%s"}`, 400, "invalid_field", "run_at"},
		{`{"kind":"k","run_at":"0001-01-01T00:00:00Z","payload":"%s"}`, 400, "invalid_field", "run_at"},
		{`{"kind":"k","run_at":"1969-12-31T00:00:00Z","payload":"%s"}`, 400, "invalid_field", "run_at"},
		{`{"kind":"k","run_at":"1970-01-01T00:00:00+00:01","payload":"%s"}`, 400, "invalid_field", "run_at"},
		{`{"kind":"k","run_at":"9999-12-31T23:59:00-00:01","payload":"%s"}`, 400, "invalid_field", "run_at"},
		{`{"kind":"k","run_at":1767225600,"payload":"%s"}`, 400, "invalid_field", "run_at"},
		{`{"kind":"k","key":"","payload":"%s"}`, 400, "invalid_field", "key"},
		{`{"kind":"k","key":null,"payload":"%s"}`, 400, "invalid_field", "key"},
		{`{"kind":"k","key":5,"payload":"%s"}`, 400, "invalid_field", "key"},
		{`{"kind":"k","key":"a\u0000","payload":"%s"}`, 400, "invalid_field", "key"},
		{`{"kind":"k","key":"\ud800","payload":"%s"}`, 400, "invalid_field", "key"},
		{`{"kind":"k","key":"` + strings.Repeat("x", 513) + `","payload":"%s"}`, 400, "invalid_field", "key"},
		{`{"kind":"k","priority":11,"payload":"%s"}`, 400, "invalid_field", "priority"},
		{`{"kind":"k","priority":1.5,"payload":"%s"}`, 400, "invalid_field", "priority"},
		{`{"kind":"k","priority":"1","payload":"%s"}`, 400, "invalid_field", "priority"},
		{`{"kind":"k","priority":null,"payload":"%s"}`, 400, "invalid_field", "priority"},
		{`{"kind":"k","priority":9223372036854775808,"payload":"%s"}`, 400, "invalid_field", "priority"},
		{`{"kind":"k","priority":4294967296,"payload":"%s"}`, 400, "invalid_field", "priority"},
		{`{"kind":"k","max_attempts":0,"payload":"%s"}`, 400, "invalid_field", "max_attempts"},
		{`{"kind":"k","max_attempts":1001,"payload":"%s"}`, 400, "invalid_field", "max_attempts"},
		{`{"kind":"k","max_attempts":true,"payload":"%s"}`, 400, "invalid_field", "max_attempts"},
		{`{"kind":"k","payload":"%s","payload":1}`, 400, "invalid_field", "payload"},
		{`{"kind":"k","k\u0069nd":"k","payload":"%s"}`, 400, "invalid_field", "kind"},
		{`{"kind":"k","payload":` + deep + `,"key":"%s"}`, 400, "invalid_field", "payload"},
		{`{"kind":"k","Kind":"k","payload":"%s"}`, 400, "invalid_field", "Kind"},
		{`{"kind":"k","retries":3,"payload":"%s"}`, 400, "invalid_field", "retries"},
		{`{"kind":"k","` + strings.Repeat("y", 100) + `":3,"payload":"%s"}`, 400, "invalid_field", strings.Repeat("y", 40) + "…"},
		{`{"kind":"k","payload":"%s` + strings.Repeat("x", 2000) + `"}`, 413, "too_large", "payload"},
		{`{"kind":"k","payload":%s}`, 400, "invalid_json", ""},
		{`{"kind":"k","payload":"%s"`, 400, "invalid_json", ""},
		{`{"kind":"k","payload":"%s",}`, 400, "invalid_json", ""},
		{`{"kind":"k","payload":"%s"}}`, 400, "invalid_json", ""},
		{`{"kind":"k","payload":"%s"} {"kind":"k"}`, 400, "invalid_json", ""},
		{`{"kind":"k","payload":"%s` + "\xff" + `"}`, 400, "invalid_json", ""},
		{`["%s"]`, 400, "invalid_json", ""},
		{`"%s"`, 400, "invalid_json", ""},
		{"\ufeff" + `{"kind":"k","payload":"%s"}`, 400, "invalid_json", ""},
		{` `, 400, "invalid_json", ""},
	} {
		body := strings.ReplaceAll(c.body, "%s", secret)
		t.Run(fmt.Sprintf("%.70s", body), func(t *testing.T) {
			w := ask(h, "POST", "/v1/jobs", body)
			a := wantProblem(t, w, c.status, c.code, c.field)
			if a.Index != nil || strings.Contains(w.Body.String(), secret) {
				t.Errorf("answer %s", w.Body)
			}
			// In a batch one wrong job refuses all, and the error names it.
			first := `{"kind":"first"}`
			batches := map[string]string{"application/x-ndjson": first + "\n" + body + "\n"}
			if c.code != "invalid_json" {
				batches["application/json"] = "[" + first + "," + body + "]"
			}
			if strings.TrimSpace(body) == "" {
				return // a blank line
			}
			for contentType, batch := range batches {
				w := ask(h, "POST", "/v1/jobs/batch", batch, "Content-Type", contentType)
				a := wantProblem(t, w, c.status, c.code, c.field)
				if a.Index == nil || *a.Index != 1 || strings.Contains(w.Body.String(), secret) {
					t.Errorf("%s: answer %s", contentType, w.Body)
				}
			}
		})
	}
	if b.rows() != 0 || b.logs.String() != "" || b.trigger.take() != nil {
		t.Errorf("left %d rows, and logged %q", b.rows(), b.logs)
	}
}

func TestRoutes_RefusesRequests(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.client = b.newClient(b.pool, Config{MaxPayload: 1000})
	h := b.routes(RoutesConfig{MaxBatchBody: 5000, MaxJobs: 3})
	job, id := `{"kind":"k"}`, uuid.NewString()
	for _, c := range []struct {
		name         string
		method, path string
		body         string
		headers      []string
		status       int
		code, field  string
	}{
		{"no such path", "GET", "/v2/jobs", "", nil, 404, "not_found", ""},
		{"slash at the end", "GET", "/v1/jobs/" + id + "/", "", nil, 404, "not_found", ""},
		{"method", "DELETE", "/v1/jobs/" + id, "", nil, 405, "method_not_allowed", ""},
		{"get of jobs", "GET", "/v1/jobs", "", nil, 405, "method_not_allowed", ""},
		{"no content type", "POST", "/v1/jobs", job, []string{"Content-Type", ""}, 415, "unsupported_media_type", ""},
		{"form", "POST", "/v1/jobs", job, []string{"Content-Type", "application/x-www-form-urlencoded"}, 415, "unsupported_media_type", ""},
		{"plain text", "POST", "/v1/jobs", job, []string{"Content-Type", "text/plain"}, 415, "unsupported_media_type", ""},
		{"latin1", "POST", "/v1/jobs", job, []string{"Content-Type", "application/json; charset=latin1"}, 415, "unsupported_media_type", ""},
		{"gzip", "POST", "/v1/jobs", job, []string{"Content-Encoding", "gzip"}, 415, "unsupported_media_type", ""},
		{"lines where one is wanted", "POST", "/v1/jobs", job, []string{"Content-Type", "application/x-ndjson"}, 415, "unsupported_media_type", ""},
		{"cancel with a form", "POST", "/v1/jobs/" + id + "/cancel", "a=b", []string{"Content-Type", "application/x-www-form-urlencoded"}, 415, "unsupported_media_type", ""},
		{"cancel with a body", "POST", "/v1/jobs/" + id + "/cancel", `{"a":1}`, nil, 400, "invalid_json", ""},
		{"two keys", "POST", "/v1/jobs", `{"kind":"k","key":"a"}`, []string{"Idempotency-Key", "b"}, 400, "invalid_field", "key"},
		{"key header of a blank", "POST", "/v1/jobs", `{"kind":"k","key":"k"}`, []string{"Idempotency-Key", " "}, 400, "invalid_field", "key"},
		{"key for a batch", "POST", "/v1/jobs/batch", "[" + job + "]", []string{"Idempotency-Key", "b"}, 400, "invalid_field", "Idempotency-Key"},
		{"body too long", "POST", "/v1/jobs", `{"kind":"k","payload":"` + strings.Repeat("x", 1000+slack) + `"}`, nil, 413, "too_large", ""},
		{"batch too long", "POST", "/v1/jobs/batch", "[" + strings.Repeat(" ", 5000) + "]", nil, 413, "too_large", ""},
		{"too many jobs", "POST", "/v1/jobs/batch", "[" + strings.Repeat(job+",", 3) + job + "]", nil, 413, "too_large", ""},
		{"too many lines", "POST", "/v1/jobs/batch", strings.Repeat(job+"\n", 4), []string{"Content-Type", "application/jsonl"}, 413, "too_large", ""},
		{"array and more", "POST", "/v1/jobs/batch", "[" + job + "],", nil, 400, "invalid_json", ""},
		{"array not closed", "POST", "/v1/jobs/batch", "[" + job, nil, 400, "invalid_json", ""},
		{"object for an array", "POST", "/v1/jobs/batch", job, nil, 400, "invalid_json", ""},
		{"no id", "GET", "/v1/jobs/xyz", "", nil, 400, "invalid_field", "id"},
		{"id in braces", "GET", "/v1/jobs/{" + id + "}", "", nil, 400, "invalid_field", "id"},
		{"no such job", "GET", "/v1/jobs/" + id, "", nil, 404, "not_found", ""},
		{"cancel none", "POST", "/v1/jobs/" + id + "/cancel", "", nil, 404, "not_found", ""},
		{"retry none", "POST", "/v1/jobs/" + id + "/retry", "{}", nil, 404, "not_found", ""},
		{"pause no queue", "POST", "/v1/queues/a%20b/pause", "", nil, 400, "invalid_field", "queue"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := ask(h, c.method, c.path, c.body, c.headers...)
			wantProblem(t, w, c.status, c.code, c.field)
			if c.status == 405 && w.Header().Get("Allow") == "" {
				t.Error("no Allow")
			}
		})
	}
	if b.rows() != 0 || b.logs.String() != "" {
		t.Errorf("left %d rows, and logged %q", b.rows(), b.logs)
	}
}

func TestRoutes_Batch(t *testing.T) {
	t.Parallel()
	b := setup(t)
	h := b.routes(RoutesConfig{})
	for contentType, body := range map[string]string{
		"application/json":     `[{"kind":"k","payload": {"n" : 0} }, {"kind":"k","key":"%s"},{"kind":"k","key":"%s"}]`,
		"application/x-ndjson": `{"kind":"k","payload": {"n" : 0} }` + "\r\n\r\n" + `{"kind":"k","key":"%s"}` + "\n" + `{"kind":"k","key":"%s"}`,
		"application/ndjson":   `{"kind":"k","payload": {"n" : 0} }` + "\n" + `{"kind":"k","key":"%s"}` + "\n" + `{"kind":"k","key":"%s"}` + "\n\n",
	} {
		body = strings.ReplaceAll(body, "%s", contentType)
		w := ask(h, "POST", "/v1/jobs/batch", body, "Content-Type", contentType)
		if w.Code != http.StatusCreated {
			t.Fatalf("%s: status %d: %s", contentType, w.Code, w.Body)
		}
		var added []addedJob
		if err := json.Unmarshal(w.Body.Bytes(), &added); err != nil || len(added) != 3 {
			t.Fatalf("%v: %s", err, w.Body)
		}
		if added[0].Duplicate || added[1].Duplicate || !added[2].Duplicate || added[1].ID != added[2].ID {
			t.Errorf("%s: %s", contentType, w.Body)
		}
		if job, err := b.store.Get(b.ctx, b.pool, added[0].ID); err != nil || string(job.Payload) != `{"n" : 0}` {
			t.Errorf("%s: stored %s, %v", contentType, job.Payload, err)
		}
	}
	if w := ask(h, "POST", "/v1/jobs/batch", `[{"kind":"k","key":"application/json"}]`); w.Code != http.StatusOK {
		t.Errorf("only duplicates: status %d, want 200", w.Code)
	}
	if w := ask(h, "POST", "/v1/jobs/batch", ` [ ] `); w.Code != http.StatusOK || strings.TrimSpace(w.Body.String()) != "[]" {
		t.Errorf("nothing: %d %s", w.Code, w.Body)
	}
	full := "[" + strings.Repeat(`{"kind":"bulk"},`, 999) + `{"kind":"bulk"}]`
	if w := ask(h, "POST", "/v1/jobs/batch", full); w.Code != http.StatusCreated {
		t.Errorf("1000 jobs: status %d", w.Code)
	}
}

func TestRoutes_CancelAndRetry(t *testing.T) {
	t.Parallel()
	b := setup(t)
	h := b.routes(RoutesConfig{})
	added, err := b.client.Add(b.ctx, greet{"Ann"})
	if err != nil {
		t.Fatal(err)
	}
	at := "/v1/jobs/" + added.ID.String()
	if a := read(t, ask(h, "POST", at+"/cancel", ""), 200); a.State != "cancelled" {
		t.Errorf("state %q, want cancelled", a.State)
	}
	if a := read(t, ask(h, "POST", at+"/cancel", "{}"), 200); a.State != "cancelled" {
		t.Errorf("the second time state %q, want cancelled", a.State)
	}
	b.trigger.take()
	b.exec("UPDATE doze.bells SET bell_until = NULL")
	var reason queue.Reason
	b.trigger.before = func(_ context.Context, wake queue.Wake) { reason = wake.Reason }
	if a := read(t, ask(h, "POST", at+"/retry", ""), 200); a.State != "queued" {
		t.Errorf("state %q, want queued", a.State)
	}
	if wantQueues(t, b.trigger.take(), "default"); reason != queue.ReasonResume {
		t.Errorf("reason %q", reason)
	}
	b.finishAll("default")
	wantProblem(t, ask(h, "POST", at+"/cancel", ""), 409, "wrong_state", "")
	wantProblem(t, ask(h, "POST", at+"/retry", ""), 409, "wrong_state", "")
}

func TestRoutes_Queues(t *testing.T) {
	t.Parallel()
	b := setup(t)
	h := b.routes(RoutesConfig{})
	if w := ask(h, "GET", "/v1/queues", ""); strings.TrimSpace(w.Body.String()) != "[]" {
		t.Errorf("no queues: %s", w.Body)
	}
	if _, err := b.client.Add(b.ctx, greet{}, On("mail")); err != nil {
		t.Fatal(err)
	}
	b.exec("UPDATE doze.bells SET bell_until = NULL")
	b.trigger.take()
	for range 2 {
		if w := ask(h, "POST", "/v1/queues/mail/pause", ""); w.Code != 200 || !strings.Contains(w.Body.String(), `"paused":true`) {
			t.Errorf("pause: %d %s", w.Code, w.Body)
		}
	}
	var all []queueCounts
	if err := json.Unmarshal(ask(h, "GET", "/v1/queues", "").Body.Bytes(), &all); err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	if c := all[0]; c.Queue != "mail" || !c.Paused || c.Queued != 1 || c.Slots != 4 {
		t.Errorf("counts %+v", c)
	}
	if _, err := b.client.Add(b.ctx, greet{}, On("mail")); err != nil {
		t.Fatal(err)
	}
	wantQueues(t, b.trigger.take()) // a paused queue is not woken
	for range 2 {
		if w := ask(h, "POST", "/v1/queues/mail/resume", ""); w.Code != 200 || !strings.Contains(w.Body.String(), `"paused":false`) {
			t.Errorf("resume: %d %s", w.Code, w.Body)
		}
	}
	wantQueues(t, b.trigger.take(), "mail")
	if w := ask(h, "POST", "/v1/queues/never-seen/resume", ""); w.Code != 200 {
		t.Errorf("resume of a new queue: %d %s", w.Code, w.Body)
	}
}

func TestRoutes_Healthz(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.client = b.newClient(unreachable(t), Config{})
	h := b.routes(RoutesConfig{Auth: Keys{}})
	for _, method := range []string{"GET", "HEAD"} {
		if w := ask(h, method, "/healthz", ""); w.Code != 200 {
			t.Errorf("%s: status %d", method, w.Code)
		}
	}
}

// unreachable is a pool whose server is not there.
func unreachable(t *testing.T) *pgxpool.Pool {
	return dbtest.Pool(t, dbtest.Configure(func(c *pgxpool.Config) {
		c.ConnConfig.Host, c.ConnConfig.Port, c.ConnConfig.Fallbacks = "127.0.0.1", 1, nil
	}))
}

func TestRoutes_DatabaseAway(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.client = b.newClient(unreachable(t), Config{Timeout: 50 * time.Millisecond})
	h := b.routes(RoutesConfig{})
	for _, w := range []*httptest.ResponseRecorder{
		ask(h, "POST", "/v1/jobs", `{"kind":"k","payload":"s3cret"}`),
		ask(h, "GET", "/v1/jobs/"+uuid.NewString(), ""),
		ask(h, "GET", "/v1/queues", ""),
	} {
		wantProblem(t, w, 503, "unavailable", "")
		if after, err := strconv.Atoi(w.Header().Get("Retry-After")); err != nil || after < 1 {
			t.Errorf("Retry-After %q", w.Header().Get("Retry-After"))
		}
		if strings.Contains(w.Body.String(), "127.0.0.1") {
			t.Errorf("the answer shows the inside: %s", w.Body)
		}
	}
	if text := b.logs.String(); !strings.Contains(text, "request failed") || strings.Contains(text, "s3cret") {
		t.Errorf("logged %q", text)
	}
}

func TestRoutes_OutcomeUnknown(t *testing.T) {
	t.Parallel()
	b := setup(t)
	th, pool := steal(t)
	th.arm("INSERT INTO", -1, nil)
	b.client = b.newClient(pool, Config{Timeout: 200 * time.Millisecond})
	w := ask(b.routes(RoutesConfig{}), "POST", "/v1/jobs", `{"kind":"k","key":"k"}`)
	wantProblem(t, w, 503, "outcome_unknown", "")
}

func TestRoutes_Internal(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec("ALTER TABLE doze.jobs ADD CONSTRAINT no_evil CHECK (payload::text NOT LIKE '%evil%')")
	h := b.routes(RoutesConfig{})
	w := ask(h, "POST", "/v1/jobs", `{"kind":"k","payload":"s3cret evil"}`)
	wantProblem(t, w, 500, "internal", "")
	text := b.logs.String()
	if !strings.Contains(text, "no_evil") || strings.Contains(text, "s3cret") || strings.Contains(w.Body.String(), "no_evil") {
		t.Errorf("answered %s and logged %q, want the reason in the log only", w.Body, text)
	}

	h = b.routes(RoutesConfig{Auth: AuthFunc(func(*http.Request) (Caller, error) { panic("s3cret") })})
	wantProblem(t, ask(h, "GET", "/v1/queues", ""), 500, "internal", "")
	if text := b.logs.String(); !strings.Contains(text, "request panicked") || strings.Contains(text, "s3cret") {
		t.Errorf("logged %q", text)
	}
}

func TestRoutes_NeedsAuth(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := Routes(b.client, RoutesConfig{})
	wantField(t, err, "Auth", -1)
	_, err = Routes(nil, RoutesConfig{Auth: anyone})
	wantField(t, err, "client", -1)
	_, err = Routes(b.client, RoutesConfig{Auth: anyone, MaxJobs: -1})
	wantField(t, err, "MaxJobs", -1)
	_, err = Routes(b.client, RoutesConfig{Auth: anyone, MaxBatchBody: -1})
	wantField(t, err, "MaxBatchBody", -1)
}

// The codes are part of the API: a change here is one that clients notice.
func TestProblems_Table(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err    error
		status int
		code   string
	}{
		{&queue.FieldError{Index: -1, Field: "kind", Rule: "want one"}, 400, "invalid_field"},
		{tooLarge(&queue.FieldError{Index: -1, Field: "payload", Rule: "long"}), 413, "too_large"},
		{fmt.Errorf("%w: at byte 3", errJSON), 400, "invalid_json"},
		{ErrUnauthorized, 401, "unauthorized"},
		{fmt.Errorf("%w: not here", ErrForbidden), 403, "forbidden"},
		{fmt.Errorf("get: %w", queue.ErrNotFound), 404, "not_found"},
		{errRoute, 404, "not_found"},
		{errMethod, 405, "method_not_allowed"},
		{&queue.StateError{State: queue.Done, Op: "cancel"}, 409, "wrong_state"},
		{errMediaType, 415, "unsupported_media_type"},
		{&RateError{After: 1500 * time.Millisecond}, 429, "too_many_requests"},
		{&OutcomeError{IDs: []uuid.UUID{uuid.New()}, Err: errors.New("EOF")}, 503, "outcome_unknown"},
		{fmt.Errorf("connect: %w", errors.New("conn closed")), 503, "unavailable"},
		{errors.New("who knows"), 500, "internal"},
		{queue.ErrMisconfigured, 500, "internal"},
	} {
		w := httptest.NewRecorder()
		if status := WriteProblem(w, c.err); status != c.status {
			t.Errorf("%v: status %d, want %d", c.err, status, c.status)
		}
		read(t, w, c.status)
		if !strings.Contains(w.Body.String(), `"code":"`+c.code+`"`) {
			t.Errorf("%v: %s, want code %s", c.err, w.Body, c.code)
		}
		if c.status == 429 && w.Header().Get("Retry-After") != "2" {
			t.Errorf("Retry-After %q, want 2", w.Header().Get("Retry-After"))
		}
	}
}
