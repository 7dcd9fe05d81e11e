// Package receive is the receiving end of the calls that start a drain or a sweep over HTTP:
// who may call, and how long the work may go on.
package receive

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/dozequeue/doze/internal/signature"
)

// maxBody is far more than a wake needs.
const maxBody = 64 << 10

// Auth says who may call. At least one of its fields must be set.
type Auth struct {
	// Secrets with which calls are signed, the newest first; several while they are rotated.
	Secrets [][]byte
	// Bearers are tokens for schedulers that can send a header and cannot sign.
	Bearers []string
	// Trusted lets every call through, where the platform has checked it (IAM, an
	// identity-aware proxy) or the listener is on loopback.
	Trusted bool
}

// Validate returns an error if nobody could call, or a secret is too short.
func (a Auth) Validate() error {
	if len(a.Secrets) == 0 && len(a.Bearers) == 0 && !a.Trusted {
		return errors.New("receiver: no secret and no bearer token; set one, or trust the platform to check callers")
	}
	for _, s := range a.Secrets {
		if err := signature.CheckSecret(s); err != nil {
			return fmt.Errorf("receiver: %w", err)
		}
	}
	for _, b := range a.Bearers {
		if len(b) < signature.MinSecret {
			return fmt.Errorf("receiver: bearer token: want at least %d bytes", signature.MinSecret)
		}
	}
	return nil
}

func (a Auth) allows(r *http.Request, body []byte) bool {
	if a.Trusted {
		return true
	}
	if token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		given := sha256.Sum256([]byte(token))
		for _, b := range a.Bearers {
			want := sha256.Sum256([]byte(b))
			if subtle.ConstantTimeCompare(given[:], want[:]) == 1 {
				return true
			}
		}
	}
	return len(a.Secrets) > 0 && signature.Verify(a.Secrets, r.Header, body, time.Now(), signature.Tolerance) == nil
}

// Handler answers POSTs by callers that auth allows with what do returns, as JSON. Do gets a context
// that does not end with the caller's connection, since whoever fires a trigger does not wait,
// and does end after limit, or with process, which may be nil.
func Handler(auth Auth, process context.Context, limit time.Duration, do func(ctx context.Context, body []byte) (any, error)) (http.Handler, error) {
	if err := auth.Validate(); err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			problem(w, http.StatusMethodNotAllowed, "method_not_allowed", "use POST")
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
			problem(w, http.StatusRequestEntityTooLarge, "too_large", fmt.Sprintf("want at most %d bytes", maxBody))
			return
		}
		if err != nil {
			problem(w, http.StatusBadRequest, "invalid", "the body could not be read")
			return
		}
		if !auth.allows(r, body) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="doze"`)
			problem(w, http.StatusUnauthorized, "unauthorized", "sign the request, or send a bearer token")
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), limit)
		defer cancel()
		if process != nil {
			defer context.AfterFunc(process, cancel)()
			if process.Err() != nil {
				cancel() // at once: what AfterFunc calls comes a little later
			}
		}
		answer, err := do(ctx, body)
		var bad *BadRequest
		switch {
		case errors.As(err, &bad):
			problem(w, http.StatusBadRequest, "invalid", bad.Detail)
		case err != nil: // details are in the log; a failure lets the platform call again
			w.Header().Set("Retry-After", "5")
			problem(w, http.StatusServiceUnavailable, "unavailable", "the work could not be done now")
		default:
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(answer)
		}
	}), nil
}

// BadRequest is an error that is the caller's.
type BadRequest struct{ Detail string }

func (e *BadRequest) Error() string { return e.Detail }

func problem(w http.ResponseWriter, status int, code, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{
		"type": "about:blank", "title": http.StatusText(status), "status": status, "code": code, "detail": detail,
	})
}
