package trigger

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dozequeue/doze/internal/signature"
	"github.com/dozequeue/doze/queue"
	"github.com/dozequeue/doze/trigger/triggertest"
)

var secret = []byte("a secret for the tests of trigger")

var mail = queue.Wake{Version: 1, Queue: "mail", Reason: queue.ReasonEnqueue}

// drain is a receiver: it checks the signature, tells of the wake, and then
// holds the request as a busy drain does.
type drain struct {
	t          *testing.T
	mu         sync.Mutex
	gate       chan struct{}
	deliveries chan triggertest.Delivery
}

func newDrain(t *testing.T) *drain {
	gate := make(chan struct{})
	close(gate)
	return &drain{t: t, gate: gate, deliveries: make(chan triggertest.Delivery, 64)}
}

func (d *drain) block() func() {
	gate := make(chan struct{})
	d.mu.Lock()
	d.gate = gate
	d.mu.Unlock()
	return sync.OnceFunc(func() { close(gate) })
}

func (d *drain) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		d.t.Errorf("read: %v", err)
	}
	if err := signature.Verify([][]byte{secret}, r.Header, body, time.Now(), 0); err != nil {
		d.t.Errorf("verify: %v", err)
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	var wake queue.Wake
	if err := json.Unmarshal(body, &wake); err != nil {
		d.t.Errorf("decode: %v", err)
	}
	d.mu.Lock()
	gate := d.gate
	d.mu.Unlock()
	d.deliveries <- triggertest.Delivery{Wake: wake, Body: body}
	select {
	case <-gate:
	case <-r.Context().Done():
	}
}

func newTrigger(t *testing.T, c HTTPConfig) *HTTP {
	t.Helper()
	if c.Secret == nil && !c.Unsigned {
		c.Secret = secret
	}
	h, err := NewHTTP(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

// serve starts a receiver that is stopped before the trigger's requests end.
func serve(t *testing.T, h http.Handler) *httptest.Server {
	s := httptest.NewServer(h)
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s
}

func TestHTTP_KeepsTheContract(t *testing.T) {
	triggertest.Run(t, func(t *testing.T) triggertest.Fixture {
		d := newDrain(t)
		s := serve(t, d)
		return triggertest.Fixture{
			Trigger:    newTrigger(t, HTTPConfig{URL: s.URL + "/drain", AnswerWait: 20 * time.Millisecond}),
			Deliveries: d.deliveries,
			Block:      d.block,
			Break:      s.Close,
		}
	})
}

func TestNone_KeepsTheContract(t *testing.T) {
	triggertest.Run(t, func(*testing.T) triggertest.Fixture { return triggertest.Fixture{Trigger: None()} })
}

func TestHTTP_LeavesTheRequestOpenAfterFire(t *testing.T) {
	started, gone := make(chan struct{}), make(chan struct{})
	s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		close(started)
		<-r.Context().Done()
		close(gone)
	}))
	h := newTrigger(t, HTTPConfig{URL: s.URL, AnswerWait: time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	if err := h.Fire(ctx, mail); err != nil {
		t.Fatal(err)
	}
	cancel() // the context of Fire is not the request's
	<-started
	select {
	case <-gone:
		t.Fatal("the request ended with Fire")
	case <-time.After(50 * time.Millisecond):
	}
	h.Close()
	<-gone
	if err := h.Fire(t.Context(), mail); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v, want ErrClosed", err)
	}
}

func TestHTTP_EndsTheRequestAtHold(t *testing.T) {
	for name, hold := range map[string]time.Duration{"after a time": time.Millisecond, "at once": -1} {
		t.Run(name, func(t *testing.T) {
			gone := make(chan struct{})
			started := make(chan struct{})
			s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				close(started)
				<-r.Context().Done()
				close(gone)
			}))
			// Long enough that the receiver has the request before it is ended.
			ctx, cancel := context.WithCancel(t.Context())
			go func() { <-started; cancel() }()
			h := newTrigger(t, HTTPConfig{URL: s.URL, AnswerWait: time.Minute, Hold: hold})
			if err := h.Fire(ctx, mail); err != nil {
				t.Fatal(err)
			}
			<-gone
		})
	}
}

func TestHTTP_ReportsBadAnswers(t *testing.T) {
	for status, hint := range map[int]string{
		401: "secret", 403: "secret", 404: "path", 500: "500", 502: "502", 302: "302", 400: "400",
	} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			var calls atomic.Int32
			s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				calls.Add(1)
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(status)
				_, _ = io.WriteString(w, "a body that may hold a payload")
			}))
			h := newTrigger(t, HTTPConfig{URL: s.URL + "/drain?token=hush", AnswerWait: time.Minute})
			err := h.Fire(t.Context(), mail)
			if err == nil {
				t.Fatal("no error")
			}
			if got := err.Error(); !strings.Contains(got, hint) || strings.Contains(got, "hush") || strings.Contains(got, "payload") {
				t.Errorf("error %q: want a hint of %q and neither query nor body", got, hint)
			}
			if calls.Load() != 1 {
				t.Errorf("%d calls, want 1", calls.Load())
			}
		})
	}
}

func TestHTTP_TriesABusyReceiverThreeTimes(t *testing.T) {
	for _, status := range []int{429, 503} {
		for _, c := range []struct{ busy, calls int }{{0, 1}, {1, 2}, {2, 3}, {9, 3}} {
			t.Run(strconv.Itoa(status)+"x"+strconv.Itoa(c.busy), func(t *testing.T) {
				var calls atomic.Int32
				s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if int(calls.Add(1)) <= c.busy {
						w.WriteHeader(status)
					}
				}))
				h := newTrigger(t, HTTPConfig{URL: s.URL, AnswerWait: time.Minute})
				err := h.Fire(t.Context(), mail)
				if (err != nil) != (c.busy >= maxTries) {
					t.Errorf("busy %d times: %v", c.busy, err)
				}
				if int(calls.Load()) != c.calls {
					t.Errorf("%d calls, want %d", calls.Load(), c.calls)
				}
			})
		}
	}
}

func TestHTTP_DoesNotStartAWaitThatItCannotEnd(t *testing.T) {
	for name, timeout := range map[string]time.Duration{"context": 500 * time.Millisecond, "limit": time.Hour} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Retry-After", "30")
				w.WriteHeader(503)
			}))
			h := newTrigger(t, HTTPConfig{URL: s.URL, AnswerWait: time.Minute})
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			if err := h.Fire(ctx, mail); err == nil || ctx.Err() != nil {
				t.Errorf("got %v with context %v, want an error before the context ends", err, ctx.Err())
			}
		})
	}
}

func TestHTTP_ReportsAReceiverThatDoesNotTakeTheRequest(t *testing.T) {
	// It accepts a connection and never speaks TLS, so nothing can be written.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	h := newTrigger(t, HTTPConfig{URL: "https://" + l.Addr().String(), SendTimeout: 20 * time.Millisecond})
	if err := h.Fire(t.Context(), mail); err == nil || !strings.Contains(err.Error(), "20ms") {
		t.Errorf("got %v, want the send timeout", err)
	}
	h = newTrigger(t, HTTPConfig{URL: "https://" + l.Addr().String(), SendTimeout: time.Minute})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := h.Fire(ctx, mail); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the context's end", err)
	}
}

func TestHTTP_SpeaksTLSWithTheGivenClient(t *testing.T) {
	d := newDrain(t)
	s := httptest.NewTLSServer(d)
	defer s.Close()
	h := newTrigger(t, HTTPConfig{URL: s.URL, Client: s.Client()})
	if err := h.Fire(t.Context(), mail); err != nil {
		t.Fatal(err)
	}
	<-d.deliveries
	// A certificate that is not trusted is an error, not a wait.
	h = newTrigger(t, HTTPConfig{URL: s.URL})
	var unknown *tls.CertificateVerificationError
	if err := h.Fire(t.Context(), mail); !errors.As(err, &unknown) {
		t.Errorf("got %v, want a certificate error", err)
	}
}

func TestNewHTTP_RefusesBadConfig(t *testing.T) {
	good := HTTPConfig{URL: "https://drain.example.org/drain", Secret: secret}
	for name, c := range map[string]struct {
		change func(*HTTPConfig)
		want   string
	}{
		"no URL":             {func(c *HTTPConfig) { c.URL = "" }, "URL: empty"},
		"no scheme":          {func(c *HTTPConfig) { c.URL = "drain.example.org" }, "scheme"},
		"another scheme":     {func(c *HTTPConfig) { c.URL = "ftp://drain.example.org" }, `scheme "ftp"`},
		"not a URL":          {func(c *HTTPConfig) { c.URL = "https://x/%zz?token=hush" }, "cannot be parsed"},
		"no host":            {func(c *HTTPConfig) { c.URL = "https:///drain" }, "no host"},
		"plain http":         {func(c *HTTPConfig) { c.URL = "http://drain.example.org" }, "AllowInsecure"},
		"looks like local":   {func(c *HTTPConfig) { c.URL = "http://localhost.example.org" }, "AllowInsecure"},
		"password":           {func(c *HTTPConfig) { c.URL = "https://me:hush@drain.example.org" }, "password"},
		"no secret":          {func(c *HTTPConfig) { c.Secret = nil }, "Secret"},
		"short secret":       {func(c *HTTPConfig) { c.Secret = []byte("hush") }, "4 bytes"},
		"signed and not":     {func(c *HTTPConfig) { c.Unsigned = true }, "Unsigned"},
		"negative wait":      {func(c *HTTPConfig) { c.AnswerWait = -1 }, "AnswerWait"},
		"negative send time": {func(c *HTTPConfig) { c.SendTimeout = -1 }, "SendTimeout"},
	} {
		t.Run(name, func(t *testing.T) {
			config := good
			c.change(&config)
			_, err := NewHTTP(config)
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hush") {
				t.Errorf("got %v, want %q and no secret", err, c.want)
			}
		})
	}
	for name, change := range map[string]func(*HTTPConfig){
		"https":             func(*HTTPConfig) {},
		"localhost":         func(c *HTTPConfig) { c.URL = "http://localhost:8080/drain" },
		"IPv4 loopback":     func(c *HTTPConfig) { c.URL = "http://127.8.0.1/drain" },
		"IPv6 loopback":     func(c *HTTPConfig) { c.URL = "http://[::1]:8080/drain" },
		"insecure on order": func(c *HTTPConfig) { c.URL, c.AllowInsecure = "http://drain", true },
		"unsigned on order": func(c *HTTPConfig) { c.Secret, c.Unsigned = nil, true },
	} {
		config := good
		change(&config)
		if _, err := NewHTTP(config); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
