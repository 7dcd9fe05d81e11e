package enqueue

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/dozequeue/doze/internal/signature"
	"github.com/dozequeue/doze/queue"
)

func TestNewKey(t *testing.T) {
	t.Parallel()
	secret, hash := NewKey()
	other, _ := NewKey()
	if len(secret) != 43 || len(hash) != 64 || secret == other {
		t.Errorf("secret of %d and hash of %d characters", len(secret), len(hash))
	}
	keys, err := ParseKeys("ann:" + hash)
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("Authorization", "bearer "+secret)
	if caller, err := keys.Authenticate(r); err != nil || caller.Name != "ann" {
		t.Errorf("%+v, %v", caller, err)
	}
	r.Header.Set("Authorization", "Bearer "+other)
	if _, err := keys.Authenticate(r); !errors.Is(err, ErrUnauthorized) {
		t.Errorf("another key: %v", err)
	}
}

func TestParseKeys(t *testing.T) {
	t.Parallel()
	hash := func(c string) string { return strings.Repeat(c, 64) }
	keys, err := ParseKeys(" ann:" + hash("a") + ",\nbo:" + hash("B") + ":queues=mail|web:kinds=mail:send|x, cy:" + hash("c") + ":kinds=a:b|queues=c")
	if err == nil {
		t.Errorf("took a kind with = in it: %v", keys)
	}
	keys, err = ParseKeys(" ann:" + hash("a") + ",\nbo:" + hash("B") + ":queues=mail|web:kinds=mail:send|x, cy:" + hash("c") + ":kinds=a:b,dan:" + hash("d") + ":queues=q")
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, k := range keys {
		got += fmt.Sprintf("%s %x.. %q %q\n", k.Name, k.Hash[:1], k.Queues, k.Kinds)
	}
	want := `ann aa.. [] []
bo bb.. ["mail" "web"] ["mail:send" "x"]
cy cc.. [] ["a:b"]
dan dd.. ["q"] []
`
	if got != want {
		t.Errorf("read %s, want %s", got, want)
	}
	if keys, err := ParseKeys(" "); err != nil || len(keys) != 0 {
		t.Errorf("nothing: %v, %v", keys, err)
	}
	for _, text := range []string{
		"ann", "ann:", ":" + hash("a"), "ann:" + hash("a")[1:], "ann:" + hash("g"), "a b:" + hash("a"),
		"ann:" + hash("a") + ":", "ann:" + hash("a") + ":queues=", "ann:" + hash("a") + ":queues=a|", "ann:" + hash("a") + ":kinds=a b",
		"ann:" + hash("a") + ":queue=a", "ann:" + hash("a") + ":kinds=x:queues=a|b",
		"ann:" + hash("a") + ",ann:" + hash("b"), "ann:" + hash("a") + ",bo:" + hash("a"), "ann:" + hash("a") + ",",
	} {
		if _, err := ParseKeys(text); err == nil || strings.Contains(err.Error(), "aaaa") {
			t.Errorf("%.30q…: error %v", text, err)
		}
	}
}

func TestRoutes_Keys(t *testing.T) {
	t.Parallel()
	b := setup(t)
	all, allHash := NewKey()
	mail, mailHash := NewKey()
	kind, kindHash := NewKey()
	keys, err := ParseKeys(fmt.Sprintf("all:%s,mail:%s:queues=mail,kind:%s:kinds=greet", allHash, mailHash, kindHash))
	if err != nil {
		t.Fatal(err)
	}
	h := b.routes(RoutesConfig{Auth: keys})
	bearer := func(secret string) []string { return []string{"Authorization", "Bearer " + secret} }

	for _, path := range []string{"POST /v1/jobs", "POST /v1/jobs/batch", "GET /v1/queues", "GET /v1/jobs/x", "POST /v1/jobs/x/cancel", "POST /v1/jobs/x/retry", "POST /v1/queues/x/pause", "POST /v1/queues/x/resume"} {
		method, path, _ := strings.Cut(path, " ")
		for _, header := range [][]string{nil, bearer("x"), bearer(""), {"Authorization", "Basic " + all}, bearer(allHash)} {
			w := ask(h, method, path, "", header...)
			wantProblem(t, w, 401, "unauthorized", "")
			if !strings.HasPrefix(w.Header().Get("WWW-Authenticate"), "Bearer") {
				t.Errorf("WWW-Authenticate %q", w.Header().Get("WWW-Authenticate"))
			}
		}
	}
	twice := httptest.NewRequest("GET", "/v1/queues", nil)
	twice.Header["Authorization"] = []string{"Bearer x", "Bearer " + all}
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, twice); w.Code != 401 {
		t.Errorf("two headers: status %d", w.Code)
	}

	wantProblem(t, ask(h, "POST", "/v1/jobs", `{"kind":"greet"}`, bearer(mail)...), 403, "forbidden", "")
	wantProblem(t, ask(h, "POST", "/v1/jobs", `{"kind":"other"}`, bearer(kind)...), 403, "forbidden", "")
	a := wantProblem(t, ask(h, "POST", "/v1/jobs/batch", `[{"kind":"greet"},{"kind":"other"}]`, bearer(kind)...), 403, "forbidden", "")
	if a.Index == nil || *a.Index != 1 {
		t.Errorf("index %v", a.Index)
	}
	if b.rows() != 0 {
		t.Fatalf("%d rows of requests that were refused", b.rows())
	}

	added := read(t, ask(h, "POST", "/v1/jobs", `{"kind":"other","queue":"mail"}`, bearer(mail)...), 201)
	at := "/v1/jobs/" + added.ID
	read(t, ask(h, "GET", at, "", bearer(all)...), 200)
	read(t, ask(h, "GET", at, "", bearer(mail)...), 200)
	wantProblem(t, ask(h, "GET", at, "", bearer(kind)...), 404, "not_found", "")
	wantProblem(t, ask(h, "POST", at+"/cancel", "", bearer(kind)...), 404, "not_found", "")
	if a := read(t, ask(h, "GET", at, "", bearer(mail)...), 200); a.State != "queued" {
		t.Errorf("state %q: a caller who may not see it has cancelled it", a.State)
	}
	wantProblem(t, ask(h, "POST", "/v1/queues/web/pause", "", bearer(mail)...), 403, "forbidden", "")
	wantProblem(t, ask(h, "POST", "/v1/queues/mail/pause", "", bearer(kind)...), 403, "forbidden", "")
	if w := ask(h, "POST", "/v1/queues/mail/pause", "", bearer(mail)...); w.Code != 200 {
		t.Errorf("pause of one's own queue: %d", w.Code)
	}
	if _, err := b.client.Add(b.ctx, greet{}, On("web")); err != nil {
		t.Fatal(err)
	}
	if w := ask(h, "GET", "/v1/queues", "", bearer(mail)...); strings.Contains(w.Body.String(), `"web"`) || !strings.Contains(w.Body.String(), `"mail"`) {
		t.Errorf("queues %s, want mail only", w.Body)
	}
	if strings.Contains(b.logs.String(), all) {
		t.Error("a key was logged")
	}
}

func TestRoutes_HMAC(t *testing.T) {
	t.Parallel()
	b := setup(t)
	secret, next := []byte("0123456789abcdef-old"), []byte("0123456789abcdef-new")
	signed, err := HMAC("shop", secret, next)
	if err != nil {
		t.Fatal(err)
	}
	key, hash := NewKey()
	keys, err := ParseKeys("ann:" + hash)
	if err != nil {
		t.Fatal(err)
	}
	h := b.routes(RoutesConfig{Auth: Any(keys, signed)})
	sign := func(secret []byte, body string, at time.Time) []string {
		s := signature.Sign(secret, []byte(body), at)
		return []string{signature.TimestampHeader, s.Timestamp, signature.SignatureHeader, s.Signature}
	}
	body := `{"kind":"greet","key":"k","payload":{"n" : 1}}`
	for _, headers := range [][]string{
		nil,
		sign([]byte("0123456789abcdef-bad"), body, time.Now()),
		sign(secret, body+" ", time.Now()),
		sign(secret, body, time.Now().Add(-6*time.Minute)),
		sign(secret, body, time.Now().Add(6*time.Minute)),
		sign(secret, body, time.Now())[2:],
	} {
		wantProblem(t, ask(h, "POST", "/v1/jobs", body, headers...), 401, "unauthorized", "")
	}
	if b.rows() != 0 {
		t.Fatal("a refused request left rows")
	}
	headers := sign(secret, body, time.Now())
	first := read(t, ask(h, "POST", "/v1/jobs", body, headers...), 201)
	if again := read(t, ask(h, "POST", "/v1/jobs", body, headers...), 200); again.ID != first.ID {
		t.Error("a copy of a signed request made another job")
	}
	batch := `[{"kind":"greet","key":"b"}]`
	if w := ask(h, "POST", "/v1/jobs/batch", batch, sign(next, batch, time.Now())...); w.Code != 201 {
		t.Errorf("batch with the new secret: %d %s", w.Code, w.Body)
	}
	keyless := `{"kind":"greet"}`
	wantProblem(t, ask(h, "POST", "/v1/jobs", keyless, sign(secret, keyless, time.Now())...), 400, "invalid_field", "key")
	// A signature vouches for a body only, so nothing that is said by the path.
	for _, path := range []string{"GET /v1/queues", "GET /v1/jobs/" + first.ID, "POST /v1/jobs/" + first.ID + "/cancel", "POST /v1/queues/default/pause"} {
		method, path, _ := strings.Cut(path, " ")
		wantProblem(t, ask(h, method, path, "", sign(secret, "", time.Now())...), 403, "forbidden", "")
	}
	read(t, ask(h, "GET", "/v1/jobs/"+first.ID, "", "Authorization", "Bearer "+key), 200)

	if _, err := HMAC("shop"); err == nil {
		t.Error("took no secrets")
	}
	if _, err := HMAC("shop", secret, []byte("short")); err == nil || strings.Contains(err.Error(), "short\"") {
		t.Errorf("took a short secret: %v", err)
	}
	long := `{"kind":"greet","key":"k","payload":"` + strings.Repeat("x", 2<<20) + `"}`
	wantProblem(t, ask(h, "POST", "/v1/jobs", long, sign(secret, long, time.Now())...), 413, "too_large", "")
}

// Whoever has seen a signed request can send it again, with other headers, to another path, in other words
// of the query: whatever the signature does not cover must not make another job of it.
func TestRoutes_CopyOfASignedRequestMakesNoOtherJob(t *testing.T) {
	t.Parallel()
	b := setup(t)
	secret := []byte("0123456789abcdef-shop")
	auth, err := HMAC("shop", secret)
	if err != nil {
		t.Fatal(err)
	}
	h := b.routes(RoutesConfig{Auth: auth})
	send := func(path, body string, headers ...string) *httptest.ResponseRecorder {
		s := signature.Sign(secret, []byte(body), time.Now())
		return ask(h, "POST", path, body, append(headers, signature.TimestampHeader, s.Timestamp, signature.SignatureHeader, s.Signature)...)
	}

	// No key in the body: the header alone is not enough, whoever sent it.
	for _, body := range []string{`{"kind":"pay"}`, `{"kind":"pay","payload":{"key":"k"}}`} {
		for _, key := range []string{"order-1", "order-2"} {
			a := wantProblem(t, send("/v1/jobs", body, "Idempotency-Key", key), 400, "invalid_field", "key")
			if !strings.Contains(a.Detail, "Idempotency-Key") || !strings.Contains(a.Detail, "body") {
				t.Errorf("detail %q does not say what to do", a.Detail)
			}
		}
		for _, wrapped := range []string{body, "[" + body + "]"} {
			contentType := map[bool]string{true: "application/json", false: "application/x-ndjson"}[wrapped[0] == '[']
			wantProblem(t, send("/v1/jobs/batch", wrapped, "Idempotency-Key", "order-1", "Content-Type", contentType), 400, "invalid_field", "Idempotency-Key")
			wantProblem(t, send("/v1/jobs/batch", wrapped, "Content-Type", contentType), 400, "invalid_field", "key")
		}
	}
	if b.rows() != 0 {
		t.Fatalf("refused requests left %d rows", b.rows())
	}

	// The key is in the body: each copy is that job, or is refused.
	body := `{"kind":"pay","key":"order-1","payload":{"amount":100}}`
	first := read(t, send("/v1/jobs", body, "Idempotency-Key", "order-1"), 201)
	for name, w := range map[string]*httptest.ResponseRecorder{
		"as it was":        send("/v1/jobs", body, "Idempotency-Key", "order-1"),
		"no header":        send("/v1/jobs", body),
		"another query":    send("/v1/jobs?key=order-2&queue=other&delay=1s", body),
		"another header":   send("/v1/jobs", body, "Idempotency-Key", "order-2"),
		"empty header":     send("/v1/jobs", body, "Idempotency-Key", " "),
		"a batch of lines": send("/v1/jobs/batch", body, "Content-Type", "application/x-ndjson"),
		"a batch":          send("/v1/jobs/batch", body),
		"batch and header": send("/v1/jobs/batch", body, "Content-Type", "application/x-ndjson", "Idempotency-Key", "order-2"),
		"another method":   ask(h, "PUT", "/v1/jobs", body),
	} {
		if w.Code < 400 && (w.Code != 200 || !strings.Contains(w.Body.String(), first.ID)) {
			t.Errorf("%s: %d %s, want the job that is there or a refusal", name, w.Code, w.Body)
		}
	}
	if n := b.jobs(); n != 1 {
		t.Errorf("%d jobs of one signed request", n)
	}
}

// The key of a signed job outlasts every copy of its request, however short keys are held otherwise.
func TestRoutes_KeyOfASignedRequestIsHeldAsLongAsItsCopiesAreGood(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.client = b.newClient(b.pool, Config{KeyHold: time.Millisecond})
	secret := []byte("0123456789abcdef-shop")
	auth, err := HMAC("shop", secret)
	if err != nil {
		t.Fatal(err)
	}
	key, hash := NewKey()
	keys, err := ParseKeys("ann:" + hash)
	if err != nil {
		t.Fatal(err)
	}
	h := b.routes(RoutesConfig{Auth: Any(keys, auth)})
	body := `{"kind":"pay","key":"signed"}`
	s := signature.Sign(secret, []byte(body), time.Now())
	send := func() *httptest.ResponseRecorder {
		return ask(h, "POST", "/v1/jobs", body, signature.TimestampHeader, s.Timestamp, signature.SignatureHeader, s.Signature)
	}
	first := read(t, send(), 201)
	batch := `[{"kind":"pay","key":"batch"}]`
	sb := signature.Sign(secret, []byte(batch), time.Now())
	if w := ask(h, "POST", "/v1/jobs/batch", batch, signature.TimestampHeader, sb.Timestamp, signature.SignatureHeader, sb.Signature); w.Code != 201 {
		t.Fatalf("batch: %d %s", w.Code, w.Body)
	}
	read(t, ask(h, "POST", "/v1/jobs", `{"kind":"pay","key":"api key"}`, "Authorization", "Bearer "+key), 201)
	for name, want := range map[string]string{"signed": "00:10:00", "batch": "00:10:00", "api key": "00:00:00.001"} {
		if hold := value[string](b, "SELECT hold::text FROM doze.keys WHERE key = $1::text", name); hold != want {
			t.Errorf("%s: the key is held for %s, want %s", name, hold, want)
		}
	}
	if n := b.finishAll("default"); n != 3 {
		t.Fatalf("finished %d jobs, want 3", n)
	}
	if again := read(t, send(), 200); again.ID != first.ID {
		t.Errorf("a copy made job %s, want %s", again.ID, first.ID)
	}
}

func TestOpen(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name         string
		method       string
		remote, host string
		headers      []string
		ok           bool
	}{
		{"loopback", "POST", "127.0.0.1:5000", "localhost:8080", nil, true},
		{"loopback by number", "POST", "127.8.9.1:5000", "127.0.0.1", nil, true},
		{"IPv6", "POST", "[::1]:5000", "[::1]:8080", nil, true},
		{"mapped", "POST", "[::ffff:127.0.0.1]:5000", "doze.localhost", nil, true},
		{"another machine", "GET", "192.0.2.1:5000", "localhost", nil, false},
		{"another machine that says it is this one", "GET", "192.0.2.1:5000", "localhost", []string{"X-Forwarded-For", "127.0.0.1"}, false},
		{"no address", "GET", "", "localhost", nil, false},
		{"unix socket", "GET", "@", "localhost", nil, false},
		{"rebound name", "GET", "127.0.0.1:5000", "evil.example:8080", nil, false},
		{"name that begins like it", "GET", "127.0.0.1:5000", "localhost.evil.example", nil, false},
		{"number in a name", "GET", "127.0.0.1:5000", "127.0.0.1.evil.example", nil, false},
		{"no host", "GET", "127.0.0.1:5000", "", nil, false},
		{"through a proxy", "GET", "127.0.0.1:5000", "localhost", []string{"X-Forwarded-For", "192.0.2.1"}, false},
		{"through a proxy", "GET", "127.0.0.1:5000", "localhost", []string{"Forwarded", "for=192.0.2.1"}, false},
		{"another site's page", "POST", "127.0.0.1:5000", "localhost:8080", []string{"Sec-Fetch-Site", "cross-site"}, false},
		{"another site's image", "GET", "127.0.0.1:5000", "localhost:8080", []string{"Sec-Fetch-Site", "cross-site"}, false},
		{"another port's page", "POST", "127.0.0.1:5000", "localhost:8080", []string{"Sec-Fetch-Site", "same-site"}, false},
		{"another origin, old browser", "POST", "127.0.0.1:5000", "localhost:8080", []string{"Origin", "http://evil.example"}, false},
		{"own page", "POST", "127.0.0.1:5000", "localhost:8080", []string{"Sec-Fetch-Site", "same-origin"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := httptest.NewRequest(c.method, "/v1/jobs", nil)
			r.RemoteAddr, r.Host = c.remote, c.host
			for i := 0; i < len(c.headers); i += 2 {
				r.Header.Set(c.headers[i], c.headers[i+1])
			}
			_, err := Open().Authenticate(r)
			if (err == nil) != c.ok || err != nil && !errors.Is(err, ErrForbidden) {
				t.Errorf("error %v, want let in: %v", err, c.ok)
			}
		})
	}
}

func TestRoutes_OpenRefusesOthers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	h := b.routes(RoutesConfig{Auth: Open()})
	w := ask(h, "POST", "/v1/jobs", `{"kind":"k"}`) // httptest's address and host are example ones
	if a := wantProblem(t, w, 403, "forbidden", ""); !strings.Contains(a.Detail, "own machine") {
		t.Errorf("detail %q", a.Detail)
	}
	server := httptest.NewServer(h)
	defer server.Close()
	res, err := http.Post(server.URL+"/v1/jobs", "application/json", strings.NewReader(`{"kind":"k"}`))
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != 201 || b.jobs() != 1 {
		t.Errorf("status %d, %d jobs", res.StatusCode, b.jobs())
	}
}

func TestAny(t *testing.T) {
	t.Parallel()
	refuse := func(err error) Auth {
		return AuthFunc(func(*http.Request) (Caller, error) { return Caller{}, err })
	}
	boom := errors.New("boom")
	for _, c := range []struct {
		auths []Auth
		want  error
	}{
		{nil, ErrUnauthorized},
		{[]Auth{refuse(ErrUnauthorized), anyone}, nil},
		{[]Auth{refuse(ErrForbidden), anyone}, nil},
		{[]Auth{refuse(ErrUnauthorized), refuse(ErrForbidden), refuse(ErrUnauthorized)}, ErrForbidden},
		{[]Auth{refuse(boom), refuse(ErrUnauthorized)}, boom},
	} {
		if _, err := Any(c.auths...).Authenticate(nil); !errors.Is(err, c.want) {
			t.Errorf("%d auths: %v, want %v", len(c.auths), err, c.want)
		}
	}
}

func TestRoutes_RateError(t *testing.T) {
	t.Parallel()
	b := setup(t)
	h := b.routes(RoutesConfig{Auth: AuthFunc(func(*http.Request) (Caller, error) {
		return Caller{}, &RateError{After: 30 * time.Second}
	})})
	w := ask(h, "POST", "/v1/jobs", `{"kind":"k"}`)
	if wantProblem(t, w, 429, "too_many_requests", ""); w.Header().Get("Retry-After") != "30" {
		t.Errorf("Retry-After %q", w.Header().Get("Retry-After"))
	}
}

var _ queue.Trigger = (*recorder)(nil)
