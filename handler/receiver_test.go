package handler_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/dozequeue/doze/handler"
	"github.com/dozequeue/doze/internal/dbtest"
	"github.com/dozequeue/doze/internal/signature"
	"github.com/dozequeue/doze/queue"
	"github.com/dozequeue/doze/trigger"
	"github.com/dozequeue/doze/trigger/triggertest"
)

var secret = []byte("0123456789abcdef-secret")

func (w *world) receiver(d *handler.Drainer, cfg handler.ReceiverConfig) *httptest.Server {
	w.t.Helper()
	h, err := d.Receiver(cfg)
	w.must(err)
	server := httptest.NewServer(h)
	w.t.Cleanup(server.Close)
	return server
}

// post sends a signed wake and returns the status and the answer.
func (w *world) post(url, body string) (int, string) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.ctx, http.MethodPost, url, strings.NewReader(body))
	w.must(err)
	signature.Sign(secret, []byte(body), time.Now()).Set(req.Header)
	resp, err := http.DefaultClient.Do(req)
	w.must(err)
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	w.must(err)
	return resp.StatusCode, string(answer)
}

func TestReceiver_DrainsWithinTheRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	server := w.receiver(w.drainer(kinds(map[string]handler.RawFunc{"k": nothing}), handler.Config{}), handler.ReceiverConfig{Secrets: [][]byte{secret}})
	w.addMany(3, "k")
	status, answer := w.post(server.URL, `{"v":1,"queue":"q","reason":"enqueue","some_day":true}`)
	var report handler.Drained
	w.must(json.Unmarshal([]byte(answer), &report))
	if status != 200 || report.Done != 3 || report.Queue != "q" || w.done() != 3 {
		t.Errorf("%d %s", status, answer)
	}
	if status, answer := w.post(server.URL, ""); status != 200 || !strings.Contains(answer, `"queue":"default"`) || !strings.Contains(answer, `"no_slot":true`) {
		t.Errorf("an empty body: %d %s", status, answer)
	}
	for body, want := range map[string]string{
		`{"queue":`:           "the body is no wake",
		`[1]`:                 "the body is no wake",
		`{"v":2,"queue":"q"}`: "older build",
		`{"queue":"a b"}`:     "queue",
		`{"queue":""}`:        "queue",
	} {
		if status, answer := w.post(server.URL, body); status != 400 || !strings.Contains(answer, want) || !strings.Contains(answer, `"code":"invalid"`) {
			t.Errorf("%s: %d %s", body, status, answer)
		}
	}
	if _, err := w.drainer(handler.NewMux(), handler.Config{}).Receiver(handler.ReceiverConfig{}); err == nil {
		t.Error("a receiver that nobody may call: no error")
	}
}

func TestReceiver_ACallerThatHangsUpDoesNotStopTheDrain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := newWaiter()
	server := w.receiver(w.drainer(kinds(map[string]handler.RawFunc{"k": h.run}), handler.Config{}), handler.ReceiverConfig{Trusted: true})
	id := w.add("k")
	ctx, cancel := context.WithCancel(w.ctx)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, strings.NewReader(`{"queue":"q"}`))
	w.must(err)
	gone := make(chan error, 1)
	go func() { _, err := http.DefaultClient.Do(req); gone <- err }()
	receive(w, h.begun)
	cancel()
	if err := receive(w, gone); err == nil {
		t.Error("the caller did not hang up")
	}
	h.proceed <- nil
	w.until(`SELECT count(*) = 1 FROM doze.history WHERE state = 'done'`)
	w.wants(id, queue.Done)
}

func TestReceiver_TheEndOfTheProcessInterruptsItsDrains(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := newWaiter()
	process, stop := context.WithCancel(w.ctx)
	server := w.receiver(w.drainer(kinds(map[string]handler.RawFunc{"k": h.run}), handler.Config{}), handler.ReceiverConfig{Secrets: [][]byte{secret}, Process: process})
	id := w.add("k", maxAttempts(1))
	go func() { <-h.begun; stop() }()
	status, answer := w.post(server.URL, `{"queue":"q"}`)
	if job := w.wants(id, queue.Queued); status != 200 || !strings.Contains(answer, `"interrupted":1`) || job.Failures != 0 {
		t.Errorf("%d %s; %+v", status, answer, job)
	}
	if status, _ := w.post(server.URL, `{"queue":"q"}`); status != http.StatusServiceUnavailable {
		t.Errorf("a call that comes too late: %d", status)
	}
}

func TestReceiver_AnErrorAsksTheCallerToCallAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := newProxy(t)
	p.set(func() { p.down = true })
	d := w.drainerOn(p.pool(t), handler.NewMux(), handler.Config{Reconnect: time.Millisecond})
	server := w.receiver(d, handler.ReceiverConfig{Secrets: [][]byte{secret}})
	status, answer := w.post(server.URL, `{"queue":"q"}`)
	if status != http.StatusServiceUnavailable || strings.Contains(answer, "127.0.0.1") || !strings.Contains(answer, `"code":"unavailable"`) {
		t.Errorf("%d %s", status, answer)
	}
}

// The trigger and the receiver are each other's ends.
func TestReceiver_TakesWhatTheHTTPTriggerSends(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	server := w.receiver(w.drainer(kinds(map[string]handler.RawFunc{"k": nothing}), handler.Config{}), handler.ReceiverConfig{Secrets: [][]byte{secret}})
	fire, err := trigger.NewHTTP(trigger.HTTPConfig{URL: server.URL, Secret: secret})
	if err != nil {
		t.Fatal(err)
	}
	if !w.enqueue(newJob("k"), fire) {
		t.Error("not fired")
	}
	w.until(`SELECT count(*) = 1 FROM doze.history WHERE state = 'done'`)
}

func TestInProcess_IsATrigger(t *testing.T) {
	t.Parallel()
	triggertest.Run(t, func(t *testing.T) triggertest.Fixture {
		d, err := handler.New(dbtest.Pool(t), handler.NewMux(), handler.Config{})
		if err != nil {
			t.Fatal(err)
		}
		p := handler.NewInProcess(d, 0)
		deliveries := make(chan triggertest.Delivery, 64)
		gate := make(chan chan struct{}, 1)
		open := make(chan struct{})
		close(open)
		gate <- open
		p.Intercept(func(_ context.Context, wake queue.Wake) (handler.Drained, error) {
			deliveries <- triggertest.Delivery{Wake: wake}
			g := <-gate
			gate <- g
			<-g
			return handler.Drained{}, nil
		})
		end := func() {
			if err := p.Close(context.Background()); err != nil {
				t.Error(err)
			}
		}
		t.Cleanup(end)
		return triggertest.Fixture{
			Trigger:    p,
			Deliveries: deliveries,
			Block: func() func() {
				held := make(chan struct{})
				<-gate
				gate <- held
				return func() { close(held) }
			},
			Break: end,
		}
	})
}

func TestInProcess_CloseInterruptsItsDrains(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := newWaiter()
	p := handler.NewInProcess(w.drainer(kinds(map[string]handler.RawFunc{"k": h.run}), handler.Config{}), 0).Bind()
	id := w.add("k", maxAttempts(1))
	w.must(p.Fire(w.ctx, wakeQ))
	receive(w, h.begun)
	ended, cancel := context.WithCancel(w.ctx)
	cancel()
	if err := p.Wait(ended); err == nil {
		t.Error("Wait with a context that has ended: no error while a drain runs")
	}
	w.must(p.Close(w.ctx))
	if job := w.wants(id, queue.Queued); job.Failures != 0 {
		t.Errorf("%+v", job)
	}
	if err := p.Fire(w.ctx, wakeQ); err == nil {
		t.Error("Fire after Close: no error")
	}
	if err := p.Set(w.ctx, wakeQ, time.Hour); err == nil {
		t.Error("Set after Close: no error")
	}
	// The successor could not be fired, so the bell is not left set.
	if rang, err := w.store.Ring(w.ctx, w.pool, "q", time.Time{}, bell); err != nil || !rang {
		t.Errorf("rang %v, %v", rang, err)
	}
}
