package lambdahttp

import (
	"bytes"
	"encoding/base64"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/aws/aws-lambda-go/events"
)

// writer gathers an answer.
type writer struct {
	header http.Header
	sent   http.Header // header as it was at WriteHeader
	status int
	body   *bytes.Buffer
}

func (w *writer) Header() http.Header { return w.header }

// WriteHeader counts the first time only. Informational answers cannot be sent.
func (w *writer) WriteHeader(status int) {
	if w.status == 0 && status >= 200 {
		w.status, w.sent = status, w.header.Clone()
	}
}

func (w *writer) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(p)
}

// Flush fixes the header; the body is sent at the end all the same.
func (w *writer) Flush() { w.WriteHeader(http.StatusOK) }

// answer is what was written, in the format's terms.
func (w *writer) answer(head bool) events.APIGatewayV2HTTPResponse {
	w.WriteHeader(http.StatusOK)
	body := w.body.Bytes()
	if _, set := w.sent["Content-Type"]; !set && len(body) > 0 {
		// Otherwise a Function URL says application/json.
		w.sent.Set("Content-Type", http.DetectContentType(body))
	}
	if head || w.status == http.StatusNoContent || w.status == http.StatusNotModified {
		body = nil
	}
	a := events.APIGatewayV2HTTPResponse{StatusCode: w.status, Headers: map[string]string{}, Cookies: w.sent["Set-Cookie"]}
	for name, values := range w.sent {
		if name != "Set-Cookie" && len(values) > 0 {
			a.Headers[name] = strings.Join(values, ", ")
		}
	}
	if utf8.Valid(body) {
		a.Body = string(body)
	} else {
		a.Body, a.IsBase64Encoded = base64.StdEncoding.EncodeToString(body), true
	}
	return a
}
