package lambdatest

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// FunctionURL opens an HTTP door to a function and returns its address, without
// a path. A request becomes an event of payload format 2.0, as a Function URL
// without streaming makes it:
// https://docs.aws.amazon.com/lambda/latest/dg/urls-invocation.html. Everybody
// may call it, as with AuthType NONE. It is open until [Server.Close].
func (s *Server) FunctionURL(name string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.find(name); err != nil {
		return "", err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("lambdatest: listen: %w", err)
	}
	front := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.serveURL(w, r, name) }),

		ReadHeaderTimeout: 10 * time.Second,
	}
	s.fronts = append(s.fronts, front)
	go func() { _ = front.Serve(l) }()
	return "http://" + l.Addr().String(), nil
}

func (s *Server) serveURL(w http.ResponseWriter, r *http.Request, name string) {
	event, status := makeEvent(r)
	if status != 0 {
		message(w, status)
		return
	}
	out, err := s.invoke(r.Context(), name, event, r.Header.Get("X-Amzn-Trace-Id"))
	switch {
	case errors.Is(err, errThrottled):
		message(w, http.StatusTooManyRequests)
		return
	case err != nil:
		message(w, http.StatusBadGateway)
		return
	}
	writeAnswer(w, out)
}

// urlEvent has only what the format documents.
type urlEvent struct {
	Version         string            `json:"version"`
	RouteKey        string            `json:"routeKey"`
	RawPath         string            `json:"rawPath"`
	RawQueryString  string            `json:"rawQueryString"`
	Cookies         []string          `json:"cookies,omitempty"`
	Headers         map[string]string `json:"headers"`
	Query           map[string]string `json:"queryStringParameters,omitempty"`
	RequestContext  urlContext        `json:"requestContext"`
	Body            string            `json:"body,omitempty"`
	IsBase64Encoded bool              `json:"isBase64Encoded"`
}

type urlContext struct {
	AccountID    string  `json:"accountId"`
	APIID        string  `json:"apiId"`
	DomainName   string  `json:"domainName"`
	DomainPrefix string  `json:"domainPrefix"`
	HTTP         urlHTTP `json:"http"`
	RequestID    string  `json:"requestId"`
	RouteKey     string  `json:"routeKey"`
	Stage        string  `json:"stage"`
	Time         string  `json:"time"`
	TimeEpoch    int64   `json:"timeEpoch"`
}

type urlHTTP struct {
	Method    string `json:"method"`
	Path      string `json:"path"`
	Protocol  string `json:"protocol"`
	SourceIP  string `json:"sourceIp"`
	UserAgent string `json:"userAgent"`
}

// makeEvent turns a request into an event, or tells the status to refuse with.
func makeEvent(r *http.Request) ([]byte, int) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxSync+1))
	if err != nil {
		return nil, http.StatusBadRequest
	}
	if len(body) > maxSync {
		return nil, http.StatusRequestEntityTooLarge
	}
	now := time.Now().UTC()
	ip, _, _ := net.SplitHostPort(r.RemoteAddr)
	e := urlEvent{
		Version:        "2.0",
		RouteKey:       "$default",
		RawPath:        r.URL.EscapedPath(),
		RawQueryString: r.URL.RawQuery,
		Headers:        map[string]string{"host": r.Host, "x-forwarded-for": ip, "x-forwarded-proto": "https", "x-forwarded-port": "443"},
		RequestContext: urlContext{
			AccountID: "anonymous", APIID: "lambdatest", DomainName: r.Host, DomainPrefix: "lambdatest",
			HTTP: urlHTTP{
				Method: r.Method, Path: r.URL.EscapedPath(), Protocol: r.Proto, SourceIP: ip, UserAgent: r.UserAgent(),
			},
			RequestID: newID(), RouteKey: "$default", Stage: "$default",
			Time: now.Format("02/Jan/2006:15:04:05 -0700"), TimeEpoch: now.UnixMilli(),
		},
	}
	for name, values := range r.Header {
		if name == "Cookie" {
			for _, v := range values {
				for c := range strings.SplitSeq(v, ";") {
					e.Cookies = append(e.Cookies, strings.TrimSpace(c))
				}
			}
			continue
		}
		e.Headers[strings.ToLower(name)] = strings.Join(values, ",")
	}
	for name, values := range r.URL.Query() {
		if e.Query == nil {
			e.Query = map[string]string{}
		}
		e.Query[name] = strings.Join(values, ",")
	}
	if isText(r.Header) {
		e.Body = string(body)
	} else {
		e.Body, e.IsBase64Encoded = base64.StdEncoding.EncodeToString(body), len(body) > 0
	}
	event, err := json.Marshal(e)
	if err != nil {
		return nil, http.StatusBadRequest
	}
	return event, 0
}

// isText tells which bodies go into the event as they are.
func isText(h http.Header) bool {
	kind, _, _ := strings.Cut(strings.ToLower(h.Get("Content-Type")), ";")
	if h.Get("Content-Encoding") != "" {
		return false
	}
	switch kind = strings.TrimSpace(kind); kind {
	case "application/json", "application/xml", "application/javascript":
		return true
	}
	return strings.HasPrefix(kind, "text/")
}

// writeAnswer turns what the function answered into a response. An object
// without statusCode is itself the body.
func writeAnswer(w http.ResponseWriter, out []byte) {
	var a struct {
		StatusCode      *int              `json:"statusCode"`
		Headers         map[string]string `json:"headers"`
		Cookies         []string          `json:"cookies"`
		Body            string            `json:"body"`
		IsBase64Encoded bool              `json:"isBase64Encoded"`
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.Unmarshal(out, &a); err != nil || a.StatusCode == nil {
		_, _ = w.Write(out)
		return
	}
	body := []byte(a.Body)
	if a.IsBase64Encoded {
		var err error
		if body, err = base64.StdEncoding.DecodeString(a.Body); err != nil {
			message(w, http.StatusBadGateway)
			return
		}
	}
	if *a.StatusCode < 100 || *a.StatusCode > 999 {
		message(w, http.StatusBadGateway)
		return
	}
	for name, value := range a.Headers {
		w.Header().Set(name, value)
	}
	for _, c := range a.Cookies {
		w.Header().Add("Set-Cookie", c)
	}
	w.WriteHeader(*a.StatusCode)
	_, _ = w.Write(body)
}

func message(w http.ResponseWriter, status int) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"Message": http.StatusText(status)})
}
