package enqueue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/dozequeue/doze/queue"
)

// What a request can get wrong besides its fields and its credentials.
var (
	errJSON      = errors.New("not valid JSON")
	errMediaType = errors.New("unsupported media type")
	errRoute     = errors.New("no such path")
	errMethod    = errors.New("no such method here")
)

// A problem is what an error becomes over HTTP.
type problem struct {
	is     func(error) bool
	status int
	code   string // stable: clients rely on it
}

// problems is the one table from errors to answers. The first that fits counts.
var problems = []problem{
	{is(ErrTooLarge), http.StatusRequestEntityTooLarge, "too_large"},
	{as[*queue.FieldError], http.StatusBadRequest, "invalid_field"},
	{is(errJSON), http.StatusBadRequest, "invalid_json"},
	{is(ErrUnauthorized), http.StatusUnauthorized, "unauthorized"},
	{is(ErrForbidden), http.StatusForbidden, "forbidden"},
	{is(errRoute), http.StatusNotFound, "not_found"},
	{is(queue.ErrNotFound), http.StatusNotFound, "not_found"},
	{is(errMethod), http.StatusMethodNotAllowed, "method_not_allowed"},
	{as[*queue.StateError], http.StatusConflict, "wrong_state"},
	{is(errMediaType), http.StatusUnsupportedMediaType, "unsupported_media_type"},
	{as[*RateError], http.StatusTooManyRequests, "too_many_requests"},
	{is(ErrOutcomeUnknown), http.StatusServiceUnavailable, "outcome_unknown"},
	{unavailable, http.StatusServiceUnavailable, "unavailable"},
	{func(error) bool { return true }, http.StatusInternalServerError, "internal"},
}

func is(target error) func(error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}

func as[E error](err error) bool {
	var target E
	return errors.As(err, &target)
}

func unavailable(err error) bool {
	class := queue.Classify(err)
	return class == queue.Unavailable || class == queue.Conflict || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// Fixed texts, where the error's own must not leave the process.
var details = map[string]string{
	"outcome_unknown": "the answer of the database was lost; send the request again with the same key, which stores it once",
	"unavailable":     "the database is out of reach or waking up; nothing was stored, try again",
	"internal":        "something went wrong on the server's side; see its log",
}

// retryAfter is for answers of 503. A suspended database takes about this long to wake.
const retryAfter = 2 * time.Second

// WriteProblem answers a request with an error of this package or of package queue as
// application/problem+json, as [Routes] does, and returns the status. Of
// statuses from 500 up the text says nothing about the error: log it.
func WriteProblem(w http.ResponseWriter, err error) (status int) {
	var found problem
	for _, found = range problems {
		if found.is(err) {
			break
		}
	}
	body := struct {
		Type   string `json:"type"`
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
		Code   string `json:"code"`
		Field  string `json:"field,omitempty"`
		Index  *int   `json:"index,omitempty"`
	}{Type: "about:blank", Title: http.StatusText(found.status), Status: found.status, Detail: details[found.code], Code: found.code}
	if body.Detail == "" {
		body.Detail = err.Error()
	}
	var field *queue.FieldError
	if errors.As(err, &field) {
		body.Field = field.Field
		if field.Index >= 0 {
			body.Index = &field.Index
		}
	}
	var in *indexError
	if errors.As(err, &in) {
		body.Index = &in.index
	}

	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	harden(h)
	var rate *RateError
	switch {
	case errors.As(err, &rate):
		h.Set("Retry-After", seconds(rate.After))
	case found.status == http.StatusServiceUnavailable:
		h.Set("Retry-After", seconds(retryAfter))
	case found.status == http.StatusUnauthorized:
		h.Set("WWW-Authenticate", `Bearer realm="doze"`)
	}
	w.WriteHeader(found.status)
	text, _ := json.Marshal(body) // of strings and numbers
	_, _ = w.Write(append(text, '\n'))
	return found.status
}

func seconds(d time.Duration) string {
	return strconv.Itoa(max(1, int(math.Ceil(d.Seconds()))))
}

func harden(h http.Header) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
}

// indexError says which job of a batch an error is about.
type indexError struct {
	index int
	err   error
}

func (e *indexError) Error() string { return fmt.Sprintf("job %d: %v", e.index, e.err) }
func (e *indexError) Unwrap() error { return e.err }
