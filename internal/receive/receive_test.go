package receive_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/dozequeue/doze/internal/receive"
	"github.com/dozequeue/doze/internal/signature"
)

var (
	oldSecret = []byte("0123456789abcdef-old")
	newSecret = []byte("0123456789abcdef-new")
	bearers   = []string{"bearer-0123456789-one", "bearer-0123456789-two"}
)

const body = `{"queue":"q"}`

// call sends one request to a receiver that answers with what do returns.
func call(t *testing.T, auth receive.Auth, do func(context.Context, []byte) (any, error), change func(*http.Request)) *http.Response {
	t.Helper()
	h, err := receive.Handler(auth, nil, time.Minute, do)
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodPost, "/drain", strings.NewReader(body))
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func sign(secret []byte, text string, at time.Time) func(*http.Request) {
	return func(r *http.Request) { signature.Sign(secret, []byte(text), at).Set(r.Header) }
}

func bearer(value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Authorization", value) }
}

func TestHandler_LetsInWhoMayCall(t *testing.T) {
	t.Parallel()
	signing := receive.Auth{Secrets: [][]byte{newSecret, oldSecret}}
	both := receive.Auth{Secrets: [][]byte{newSecret}, Bearers: bearers}
	for _, c := range []struct {
		name   string
		auth   receive.Auth
		change func(*http.Request)
		allow  bool
	}{
		{"signed", signing, sign(newSecret, body, time.Now()), true},
		{"signed with the secret before", signing, sign(oldSecret, body, time.Now()), true},
		{"signed with another secret", signing, sign([]byte("0123456789abcdef-bad"), body, time.Now()), false},
		{"signed for another body", signing, sign(newSecret, `{"queue":"p"}`, time.Now()), false},
		{"signed long ago", signing, sign(newSecret, body, time.Now().Add(-signature.Tolerance-time.Minute)), false},
		{"signed in the future", signing, sign(newSecret, body, time.Now().Add(signature.Tolerance+time.Minute)), false},
		{"not signed", signing, nil, false},
		{"half signed", signing, func(r *http.Request) { sign(newSecret, body, time.Now())(r); r.Header.Del(signature.TimestampHeader) }, false},
		{"a token where none is set", signing, bearer("Bearer "), false},
		{"the first token", both, bearer("Bearer " + bearers[0]), true},
		{"the second token", both, bearer("Bearer " + bearers[1]), true},
		{"a part of a token", both, bearer("Bearer " + bearers[1][:20]), false},
		{"a token and more", both, bearer("Bearer " + bearers[1] + "x"), false},
		{"no token", both, bearer("Bearer "), false},
		{"a token without its scheme", both, bearer(bearers[0]), false},
		{"signed beside tokens", both, sign(newSecret, body, time.Now()), true},
		{"a wrong token, but signed", both, func(r *http.Request) { sign(newSecret, body, time.Now())(r); bearer("Bearer x")(r) }, true},
		{"trusted", receive.Auth{Trusted: true}, nil, true},
	} {
		called := false
		resp := call(t, c.auth, func(_ context.Context, got []byte) (any, error) {
			called = true
			if string(got) != body {
				t.Errorf("%s: body %q", c.name, got)
			}
			return map[string]int{"done": 1}, nil
		}, c.change)
		want := http.StatusUnauthorized
		if c.allow {
			want = http.StatusOK
		}
		if resp.StatusCode != want || called != c.allow || resp.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %s, called %v", c.name, resp.Status, called)
		}
		if want == http.StatusUnauthorized && resp.Header.Get("WWW-Authenticate") == "" {
			t.Errorf("%s: no WWW-Authenticate", c.name)
		}
	}
}

func TestHandler_AnswersWithProblems(t *testing.T) {
	t.Parallel()
	open := receive.Auth{Trusted: true}
	never := func(context.Context, []byte) (any, error) { t.Error("called"); return nil, nil }
	with := func(err error) func(context.Context, []byte) (any, error) {
		return func(context.Context, []byte) (any, error) { return nil, err }
	}
	for _, c := range []struct {
		name   string
		do     func(context.Context, []byte) (any, error)
		change func(*http.Request)
		status int
		code   string
	}{
		{"GET", never, func(r *http.Request) { r.Method = http.MethodGet }, 405, "method_not_allowed"},
		{"PUT", never, func(r *http.Request) { r.Method = http.MethodPut }, 405, "method_not_allowed"},
		{"a large body", never, func(r *http.Request) { r.Body = reader(strings.Repeat("x", 64<<10+1)) }, 413, "too_large"},
		{"a body that breaks off", never, func(r *http.Request) { r.Body = broken{} }, 400, "invalid"},
		{"what the caller got wrong", with(&receive.BadRequest{Detail: "queue: want a name"}), nil, 400, "invalid"},
		{"a fault", with(errors.New("password authentication failed for user app")), nil, 503, "unavailable"},
	} {
		resp := call(t, open, c.do, c.change)
		var problem struct {
			Status              int
			Code, Detail, Title string
		}
		if err := json.NewDecoder(resp.Body).Decode(&problem); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if resp.StatusCode != c.status || problem.Status != c.status || problem.Code != c.code || resp.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %s, %+v", c.name, resp.Status, problem)
		}
		if strings.Contains(problem.Detail, "password") {
			t.Errorf("%s: the answer tells %q", c.name, problem.Detail)
		}
		if c.status == 405 && resp.Header.Get("Allow") != "POST" || c.status == 503 && resp.Header.Get("Retry-After") == "" {
			t.Errorf("%s: headers %v", c.name, resp.Header)
		}
	}
	full := call(t, open, func(_ context.Context, got []byte) (any, error) { return len(got), nil },
		func(r *http.Request) { r.Body = reader(strings.Repeat("x", 64<<10)) })
	if full.StatusCode != http.StatusOK {
		t.Errorf("a body of the greatest size: %s", full.Status)
	}
}

type closer struct{ *strings.Reader }

func (closer) Close() error { return nil }

func reader(text string) closer { return closer{strings.NewReader(text)} }

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("reset") }
func (broken) Close() error             { return nil }

// The work goes on when the caller goes, and ends with the process or its limit.
func TestHandler_WhatEndsTheWork(t *testing.T) {
	t.Parallel()
	process, stop := context.WithCancel(context.Background())
	defer stop()
	for _, c := range []struct {
		name    string
		process context.Context
		limit   time.Duration
		want    error
	}{
		{"the process", process, time.Hour, context.Canceled},
		{"the limit", context.Background(), 50 * time.Millisecond, context.DeadlineExceeded},
		{"the limit of one that knows no process", nil, 50 * time.Millisecond, context.DeadlineExceeded},
	} {
		var got error
		h, err := receive.Handler(receive.Auth{Trusted: true}, c.process, c.limit, func(ctx context.Context, _ []byte) (any, error) {
			if c.process == process {
				if ctx.Err() != nil {
					t.Errorf("it ended with the caller: %v", ctx.Err())
				}
				stop()
			}
			<-ctx.Done()
			got = ctx.Err()
			return nil, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		caller, hangUp := context.WithCancel(context.Background())
		hangUp()
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", nil).WithContext(caller))
		if !errors.Is(got, c.want) {
			t.Errorf("%s: ended with %v", c.name, got)
		}
	}
}

func TestAuth_RefusesNobodyAndWhatCanBeGuessed(t *testing.T) {
	t.Parallel()
	for name, auth := range map[string]receive.Auth{
		"nobody":         {},
		"a short secret": {Secrets: [][]byte{newSecret, []byte("short")}},
		"an empty one":   {Secrets: [][]byte{{}}},
		"a short token":  {Bearers: []string{"short"}},
		"an empty token": {Bearers: []string{""}},
		"short, trusted": {Trusted: true, Bearers: []string{"short"}},
	} {
		if _, err := receive.Handler(auth, nil, time.Minute, nil); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
