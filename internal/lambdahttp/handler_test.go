package lambdahttp

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"
	"github.com/go-chi/chi/v5"
)

// edit changes an event before it is sent.
type edit func(map[string]any)

// invoke sends an event of testdata through aws-lambda-go, as Lambda would.
func invoke(t *testing.T, h http.Handler, file string, edits ...edit) (events.APIGatewayV2HTTPResponse, error) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	var event map[string]any
	if err := json.Unmarshal(raw, &event); err != nil {
		t.Fatal(err)
	}
	for _, e := range edits {
		e(event)
	}
	if raw, err = json.Marshal(event); err != nil {
		t.Fatal(err)
	}
	out, err := lambda.NewHandler(Handler(h)).Invoke(t.Context(), raw)
	if err != nil {
		return events.APIGatewayV2HTTPResponse{}, err
	}
	var a events.APIGatewayV2HTTPResponse
	if err := json.Unmarshal(out, &a); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return a, nil
}

// see runs f on the request that an event becomes.
func see(t *testing.T, file string, f func(*http.Request, []byte), edits ...edit) {
	t.Helper()
	ran := false
	_, err := invoke(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		ran = true
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		f(r, body)
	}), file, edits...)
	if err != nil || !ran {
		t.Fatalf("handler ran: %v, error %v", ran, err)
	}
}

func want[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestRequest_IsAsNetHTTPMakesIt(t *testing.T) {
	see(t, "function-url.json", func(r *http.Request, body []byte) {
		want(t, "method", r.Method, "POST")
		want(t, "path", r.URL.Path, "/v1/jobs/a/b c")
		want(t, "escaped path", r.URL.EscapedPath(), "/v1/jobs/a%2Fb%20c")
		want(t, "request URI", r.RequestURI, "/v1/jobs/a%2Fb%20c?state=failed&state=done&note=a%20b%26c")
		want(t, "state", strings.Join(r.URL.Query()["state"], "|"), "failed|done")
		want(t, "note", r.FormValue("note"), "a b&c")
		want(t, "host", r.Host, "k3hx2mexample.lambda-url.eu-central-1.on.aws")
		want(t, "host header", r.Header.Get("Host"), "")
		want(t, "remote address", r.RemoteAddr, "203.0.113.7:0")
		want(t, "key", r.Header.Get("Idempotency-Key"), "order-17")
		want(t, "repeated header", r.Header.Get("X-Two"), "1,2")
		want(t, "body", string(body), `{"kind":"mail.send"}`)
		want(t, "length", r.ContentLength, 20)
		want(t, "protocol", r.Proto, "HTTP/1.1")
		c, err := r.Cookie("theme")
		if err != nil || c.Value != "dark" {
			t.Errorf("cookie: %v, %v", c, err)
		}
	})
}

func TestRequest_DecodesTheBodyAndTakesOffTheStage(t *testing.T) {
	see(t, "http-api-stage.json", func(r *http.Request, body []byte) {
		want(t, "path", r.URL.Path, "/v1/jobs")
		want(t, "remote address", r.RemoteAddr, "[2001:db8::7]:0")
		if !bytes.Equal(body, []byte{0xff, 0, 0xfe, 1}) {
			t.Errorf("body %x", body)
		}
		want(t, "length", r.ContentLength, 4)
	})
}

func TestRequest_Path(t *testing.T) {
	for _, c := range []struct{ file, raw, domain, path, escaped string }{
		{"http-api-stage.json", "/prod", "", "/", "/"},
		{"http-api-stage.json", "/prod/", "", "/", "/"},
		{"http-api-stage.json", "/production/x", "", "/production/x", "/production/x"},
		{"http-api-stage.json", "/prod/x", "queue.example.org", "/prod/x", "/prod/x"},
		{"function-url.json", "", "", "/", "/"},
		{"function-url.json", "/a%2Fb", "", "/a/b", "/a%2Fb"},
		{"function-url.json", "/a%252Fb", "", "/a%2Fb", "/a%252Fb"},
		{"function-url.json", "/100%", "", "/100%", "/100%25"}, // came decoded
		{"function-url.json", "/gr\u00fc\u00df dich", "", "/gr\u00fc\u00df dich", "/gr%C3%BC%C3%9F%20dich"},
	} {
		see(t, c.file, func(r *http.Request, _ []byte) {
			want(t, c.raw, r.URL.Path, c.path)
			want(t, c.raw+" escaped", r.URL.EscapedPath(), c.escaped)
		}, func(e map[string]any) {
			e["rawPath"] = c.raw
			if c.domain != "" {
				e["requestContext"].(map[string]any)["domainName"] = c.domain
			}
		})
	}
}

func TestRequest_ReachesAChiRoute(t *testing.T) {
	router := chi.NewRouter()
	router.Post("/v1/jobs/{id}", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, chi.URLParam(r, "id"))
	})
	a, err := invoke(t, router, "function-url.json")
	if err != nil || a.Body != "a%2Fb%20c" {
		t.Errorf("got %q, %v, want the parameter in one piece", a.Body, err)
	}
}

func TestRequest_CarriesTheContext(t *testing.T) {
	raw, err := os.ReadFile("testdata/function-url.json")
	if err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(time.Hour)
	ctx, cancel := context.WithDeadline(t.Context(), deadline)
	defer cancel()
	_, err = lambda.NewHandler(Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if d, ok := r.Context().Deadline(); !ok || !d.Equal(deadline) {
			t.Errorf("deadline %v, %v", d, ok)
		}
	}))).Invoke(ctx, raw)
	if err != nil {
		t.Fatal(err)
	}
}

func TestAnswer(t *testing.T) {
	binary := []byte{0x1f, 0x8b, 0xff}
	for name, c := range map[string]struct {
		serve   http.HandlerFunc
		status  int
		headers map[string]string
		cookies []string
		body    string
		encoded bool
	}{
		"nothing written": {
			serve:  func(http.ResponseWriter, *http.Request) {},
			status: 200, headers: map[string]string{},
		},
		"type is found": {
			serve:  func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") },
			status: 200, headers: map[string]string{"Content-Type": "text/plain; charset=utf-8"}, body: "hello",
		},
		"type is kept": {
			serve: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/problem+json")
				w.WriteHeader(422)
				_, _ = io.WriteString(w, "{}")
			},
			status: 422, headers: map[string]string{"Content-Type": "application/problem+json"}, body: "{}",
		},
		"repeated headers and cookies": {
			serve: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Add("Link", "<a>")
				w.Header().Add("Link", "<b>")
				http.SetCookie(w, &http.Cookie{Name: "a", Value: "1"})
				http.SetCookie(w, &http.Cookie{Name: "b", Value: "2"})
				w.WriteHeader(204)
			},
			status: 204, headers: map[string]string{"Link": "<a>, <b>"}, cookies: []string{"a=1", "b=2"},
		},
		"binary": {
			serve: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.Header().Set("Content-Encoding", "gzip")
				_, _ = w.Write(binary)
			},
			status:  200,
			headers: map[string]string{"Content-Type": "application/json", "Content-Encoding": "gzip"},
			body:    base64.StdEncoding.EncodeToString(binary), encoded: true,
		},
		"text beyond ASCII": {
			serve: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/plain")
				_, _ = io.WriteString(w, "gr\u00fc\u00df")
			},
			status: 200, headers: map[string]string{"Content-Type": "text/plain"}, body: "gr\u00fc\u00df",
		},
		"first status counts": {
			serve: func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(103)
				w.WriteHeader(201)
				w.WriteHeader(500)
				w.Header().Set("X-Late", "1")
			},
			status: 201, headers: map[string]string{},
		},
		"flush": {
			serve: func(w http.ResponseWriter, _ *http.Request) {
				if err := http.NewResponseController(w).Flush(); err != nil {
					t.Error(err)
				}
				w.WriteHeader(500)
			},
			status: 200, headers: map[string]string{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := invoke(t, c.serve, "function-url.json")
			if err != nil {
				t.Fatal(err)
			}
			want(t, "status", a.StatusCode, c.status)
			want(t, "body", a.Body, c.body)
			want(t, "base64", a.IsBase64Encoded, c.encoded)
			if !maps.Equal(a.Headers, c.headers) || !slices.Equal(a.Cookies, c.cookies) {
				t.Errorf("headers %v cookies %v, want %v %v", a.Headers, a.Cookies, c.headers, c.cookies)
			}
		})
	}
}

func TestAnswer_ToHEADHasNoBody(t *testing.T) {
	a, err := invoke(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "hello")
	}), "function-url.json", func(e map[string]any) {
		e["requestContext"].(map[string]any)["http"].(map[string]any)["method"] = "HEAD"
	})
	if err != nil || a.Body != "" || a.Headers["Content-Type"] == "" {
		t.Errorf("got %+v, %v", a, err)
	}
}

func TestHandler_AnswersAPanic(t *testing.T) {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	a, err := invoke(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "half an answer")
		panic("out of order")
	}), "function-url.json")
	if err != nil || a.StatusCode != 500 || strings.Contains(a.Body, "half") || strings.Contains(a.Body, "order") {
		t.Errorf("got %+v, %v, want 500 that tells nothing", a, err)
	}
	if !strings.Contains(log.String(), "out of order") || !strings.Contains(log.String(), "handler_test.go") {
		t.Errorf("log has neither the panic nor where it was: %s", log.String())
	}
}

func TestHandler_RefusesABodyThatIsNotBase64(t *testing.T) {
	a, err := invoke(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("handler ran")
	}), "http-api-stage.json", func(e map[string]any) { e["body"] = "?" })
	if err != nil || a.StatusCode != 400 {
		t.Errorf("got %+v, %v", a, err)
	}
}

func TestHandler_FailsForAnotherKindOfEvent(t *testing.T) {
	for name, edits := range map[string][]edit{
		"payload format 1.0": nil,
		"a wake": {func(e map[string]any) {
			clear(e)
			e["v"], e["queue"] = 1, "mail"
		}},
	} {
		_, err := invoke(t, http.NotFoundHandler(), "rest-api.json", edits...)
		if err == nil || !strings.Contains(err.Error(), "payload format 2.0") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
