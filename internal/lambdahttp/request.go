package lambdahttp

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/aws/aws-lambda-go/events"
)

// request turns an event into a request. An error means that the event holds
// what no client can have sent properly.
func request(ctx context.Context, event events.APIGatewayV2HTTPRequest) (*http.Request, error) {
	body := []byte(event.Body)
	if event.IsBase64Encoded {
		var err error
		if body, err = base64.StdEncoding.DecodeString(event.Body); err != nil {
			return nil, fmt.Errorf("body is said to be base64: %w", err)
		}
	}
	in := event.RequestContext.HTTP
	u := &url.URL{Path: pathOf(event), RawQuery: event.RawQueryString}
	// Both, so that a router sees %2F; where rawPath came decoded and is no
	// valid escape, EscapedPath ignores RawPath.
	if decoded, err := url.PathUnescape(u.Path); err == nil {
		u.Path, u.RawPath = decoded, u.Path
	}
	r, err := http.NewRequestWithContext(ctx, in.Method, "/", bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("method: %w", err)
	}
	r.URL, r.RequestURI = u, u.RequestURI()
	if major, minor, ok := http.ParseHTTPVersion(in.Protocol); ok {
		r.Proto, r.ProtoMajor, r.ProtoMinor = in.Protocol, major, minor
	}
	for name, value := range event.Headers {
		r.Header.Set(name, value)
	}
	if len(event.Cookies) > 0 {
		r.Header.Set("Cookie", strings.Join(event.Cookies, "; "))
	}
	r.Host = r.Header.Get("Host")
	if r.Host == "" {
		r.Host = event.RequestContext.DomainName
	}
	r.Header.Del("Host")              // as net/http does
	r.Header.Del("Transfer-Encoding") // the body is here in full
	r.RemoteAddr = net.JoinHostPort(in.SourceIP, "0")
	return r, nil
}

// pathOf is the path as the client sent it. An HTTP API puts the stage before
// it, unless that is $default or the API has a domain of its own.
func pathOf(event events.APIGatewayV2HTTPRequest) string {
	path := event.RawPath
	stage := "/" + event.RequestContext.Stage
	if stage != "/$default" && strings.Contains(event.RequestContext.DomainName, ".execute-api.") {
		if rest, ok := strings.CutPrefix(path, stage); ok && (rest == "" || rest[0] == '/') {
			path = rest
		}
	}
	if path == "" {
		return "/"
	}
	return path
}
