//go:build unix

package lambdatest

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestFunctionURL_PassesTheRequestAndTheAnswer(t *testing.T) {
	events := make(chan urlEvent, 1)
	s := start(t, Function{Handler: func(_ context.Context, p []byte) ([]byte, error) {
		var e urlEvent
		if err := json.Unmarshal(p, &e); err != nil {
			return nil, err
		}
		events <- e
		return json.Marshal(map[string]any{
			"statusCode": 201, "headers": map[string]string{"X-One": "1"}, "cookies": []string{"a=1; Path=/", "b=2"},
			"body": base64.StdEncoding.EncodeToString([]byte{0xff, 0}), "isBase64Encoded": true,
		})
	}})
	base, err := s.FunctionURL("fn")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		contentType string
		body        []byte
		encoded     bool
	}{
		{"application/json; charset=utf-8", []byte(`{"a":1}`), false},
		{"application/octet-stream", []byte{0xfe, 0, 1}, true},
	} {
		req, _ := http.NewRequestWithContext(patient(t), http.MethodPut, base+"/v1/a%2Fb?x=1&x=2&y=%20", bytes.NewReader(c.body))
		req.Header.Set("Content-Type", c.contentType)
		req.Header.Add("X-Two", "1")
		req.Header.Add("X-Two", "2")
		req.Header.Set("Cookie", "k=v; l=w")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != 201 || resp.Header.Get("X-One") != "1" || len(resp.Header.Values("Set-Cookie")) != 2 || !bytes.Equal(body, []byte{0xff, 0}) {
			t.Errorf("got %d %v %x", resp.StatusCode, resp.Header, body)
		}
		e := <-events
		got := []byte(e.Body)
		if e.IsBase64Encoded {
			got, _ = base64.StdEncoding.DecodeString(e.Body)
		}
		if e.IsBase64Encoded != c.encoded || !bytes.Equal(got, c.body) {
			t.Errorf("%s: body %q encoded %v", c.contentType, e.Body, e.IsBase64Encoded)
		}
		if e.RawPath != "/v1/a%2Fb" || e.RawQueryString != "x=1&x=2&y=%20" || e.Query["x"] != "1,2" ||
			e.Headers["x-two"] != "1,2" || strings.Join(e.Cookies, "|") != "k=v|l=w" || e.RequestContext.HTTP.Method != "PUT" {
			t.Errorf("event %+v", e)
		}
	}
}

func TestFunctionURL_AnswersForAFunctionThatCannot(t *testing.T) {
	running, release := make(chan struct{}), make(chan struct{})
	s := start(t, Function{Concurrency: 1, Handler: func(_ context.Context, p []byte) ([]byte, error) {
		if strings.Contains(string(p), `"/fail"`) {
			return nil, io.ErrUnexpectedEOF
		}
		close(running)
		<-release
		return []byte(`"plain"`), nil
	}})
	base, err := s.FunctionURL("fn")
	if err != nil {
		t.Fatal(err)
	}
	get := func(path string) (int, string) {
		resp, err := http.Get(base + path)
		if err != nil {
			t.Error(err)
			return 0, ""
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(body)
	}
	if status, _ := get("/fail"); status != 502 {
		t.Errorf("a function that fails: %d, want 502", status)
	}
	answer := make(chan string)
	go func() { _, body := get("/slow"); answer <- body }()
	<-running
	if status, _ := get("/"); status != 429 {
		t.Errorf("a function that is full: %d, want 429", status)
	}
	close(release)
	if body := <-answer; body != `"plain"` {
		t.Errorf("an answer without statusCode: %q, want it as the body", body)
	}
}
