// Package lambdahttp runs an [http.Handler] behind a Lambda Function URL or an
// API Gateway HTTP API: both send events of payload format 2.0 and buffer the
// answer. See
// https://docs.aws.amazon.com/apigateway/latest/developerguide/http-api-develop-integrations-lambda.html.
package lambdahttp

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"

	"github.com/aws/aws-lambda-go/events"
)

// Handler makes a function for [lambda.Start] that serves each event with h.
//
// The request is as net/http would make it, but for two things that the format
// loses: values of a repeated header come as one, parted by commas, and the
// port of RemoteAddr is 0. The context is the invocation's. A panic of h is
// logged to [slog.Default] and answered 500, so that the environment lives on.
// The function fails only for an event that is not an HTTP request.
//
// An answer over 6 MB is refused by Lambda, not here.
//
// [lambda.Start]: https://pkg.go.dev/github.com/aws/aws-lambda-go/lambda#Start
func Handler(h http.Handler) func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
	return func(ctx context.Context, event events.APIGatewayV2HTTPRequest) (answer events.APIGatewayV2HTTPResponse, err error) {
		if event.Version != "2.0" || event.RequestContext.HTTP.Method == "" {
			return answer, fmt.Errorf("lambdahttp: event of version %q: want an HTTP request of payload format 2.0, from a Function URL or an HTTP API", event.Version)
		}
		r, err := request(ctx, event)
		if err != nil {
			slog.WarnContext(ctx, "bad HTTP event", "error", err)
			return plain(http.StatusBadRequest), nil
		}
		defer func() {
			if v := recover(); v != nil {
				slog.ErrorContext(ctx, "handler panicked", "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
				answer, err = plain(http.StatusInternalServerError), nil
			}
		}()
		w := &writer{header: http.Header{}, body: &bytes.Buffer{}}
		h.ServeHTTP(w, r)
		return w.answer(r.Method == http.MethodHead), nil
	}
}

func plain(status int) events.APIGatewayV2HTTPResponse {
	return events.APIGatewayV2HTTPResponse{
		StatusCode: status,
		Headers:    map[string]string{"Content-Type": "text/plain; charset=utf-8"},
		Body:       http.StatusText(status) + "\n",
	}
}
