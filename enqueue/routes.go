package enqueue

import (
	"errors"
	"fmt"
	"log/slog"
	"mime"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/dozequeue/doze/queue"
)

// RoutesConfig of [Routes].
type RoutesConfig struct {
	// Auth finds out who asks. Required: there is no anonymous default. [Keys] for
	// producers elsewhere, [HMAC] for those that sign, [Any] of them, [Open] for
	// this machine only.
	Auth Auth
	// MaxJobs is the most jobs of one batch. Zero: 1000.
	MaxJobs int
	// MaxBatchBody is the most bytes of a batch's body. Zero: 16 MiB. A single job's body
	// may have 64 KiB more than [Config.MaxPayload].
	MaxBatchBody int64
	// Logger gets what is answered with 500 or 503, without anything of the request's
	// body. Nil: the client's.
	Logger *slog.Logger
}

// slack is what a body may have besides its payload.
const slack = 64 << 10

// Routes returns the HTTP API.
//
//	POST /v1/jobs                    {"kind", "payload", "queue", "delay" or "run_at", "key", "priority", "max_attempts"}
//	POST /v1/jobs/batch              a JSON array of such jobs, or one a line as application/x-ndjson; all or none
//	GET  /v1/jobs/{id}               the job, live or finished
//	POST /v1/jobs/{id}/cancel        ends a live job
//	POST /v1/jobs/{id}/retry         queues a failed or cancelled job again, or makes a waiting one due
//	GET  /v1/queues                  the queues and their counts
//	POST /v1/queues/{queue}/pause    stops claims
//	POST /v1/queues/{queue}/resume   and lets them go on
//	GET  /healthz                    200 if the process serves; never touches the database, needs no credentials
//
// An enqueue is answered with 201, or 200 if the job was there already, and with the id.
// The header Idempotency-Key stands for a key of a single job, but not for a caller who is
// [Caller.Signed]. Errors are application/problem+json with a stable "code", and "field" and
// "index" where they apply.
//
// The server around it sets the time limits: an enqueue takes [Config.Timeout] at most.
func Routes(c *Client, cfg RoutesConfig) (http.Handler, error) {
	switch {
	case c == nil:
		return nil, wrong("client", "nil, want a *Client")
	case cfg.Auth == nil:
		return nil, wrong("Auth", "nil, want one: Keys, HMAC, or Open for this machine only")
	case cfg.MaxJobs < 0:
		return nil, settingError("MaxJobs", cfg.MaxJobs, "want more than 0, or 0 for 1000")
	case cfg.MaxBatchBody < 0 || cfg.MaxBatchBody > MaxBatch:
		return nil, settingError("MaxBatchBody", cfg.MaxBatchBody, fmt.Sprintf("want 1 to %d bytes, or 0 for 16 MiB", MaxBatch))
	}
	if cfg.MaxJobs == 0 {
		cfg.MaxJobs = 1000
	}
	if cfg.MaxBatchBody == 0 {
		cfg.MaxBatchBody = 16 << 20
	}
	if cfg.Logger == nil {
		cfg.Logger = c.log
	}
	a := &api{client: c, cfg: cfg, log: cfg.Logger}

	r := chi.NewRouter()
	r.Use(a.recoverer, middleware.GetHead, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			harden(w.Header())
			next.ServeHTTP(w, r)
		})
	})
	r.NotFound(func(w http.ResponseWriter, r *http.Request) { a.fail(w, r, errRoute) })
	r.MethodNotAllowed(a.methodNotAllowed)

	r.Get("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		respond(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	r.Method(http.MethodPost, "/v1/jobs", a.door(int64(c.cfg.MaxPayload)+slack, a.addJob))
	r.Method(http.MethodPost, "/v1/jobs/batch", a.door(cfg.MaxBatchBody, a.addBatch))
	r.Method(http.MethodGet, "/v1/jobs/{id}", a.door(slack, a.trusted(a.getJob)))
	r.Method(http.MethodPost, "/v1/jobs/{id}/cancel", a.door(slack, a.trusted(a.bodiless(a.cancelJob))))
	r.Method(http.MethodPost, "/v1/jobs/{id}/retry", a.door(slack, a.trusted(a.bodiless(a.retryJob))))
	r.Method(http.MethodGet, "/v1/queues", a.door(slack, a.trusted(a.listQueues)))
	r.Method(http.MethodPost, "/v1/queues/{queue}/pause", a.door(slack, a.trusted(a.bodiless(a.pauseQueue))))
	r.Method(http.MethodPost, "/v1/queues/{queue}/resume", a.door(slack, a.trusted(a.bodiless(a.resumeQueue))))
	return r, nil
}

// api answers requests.
type api struct {
	client *Client
	cfg    RoutesConfig
	log    *slog.Logger
}

// route answers a request of a caller who is known. What it returns goes through the table of problems.
type route func(w http.ResponseWriter, r *http.Request, caller *Caller) error

// door bounds the body, then asks who is there, then lets in.
func (a *api) door(limit int64, next route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, limit)
		caller, err := a.cfg.Auth.Authenticate(r)
		if err == nil {
			err = next(w, r, &caller)
		}
		if err != nil {
			a.fail(w, r, err)
		}
	})
}

// trusted refuses callers whose request could be a copy of another.
func (a *api) trusted(next route) route {
	return func(w http.ResponseWriter, r *http.Request, caller *Caller) error {
		if caller.Signed {
			return fmt.Errorf("%w: a signed request may only enqueue; use an API key", ErrForbidden)
		}
		return next(w, r, caller)
	}
}

// bodiless is for requests that say all in their path.
func (a *api) bodiless(next route) route {
	return func(w http.ResponseWriter, r *http.Request, caller *Caller) error {
		body, err := readBody(r)
		if err != nil {
			return err
		}
		if len(body) > 0 {
			if _, err := mediaType(r, "application/json"); err != nil {
				return err
			}
			if text := strings.TrimSpace(string(body)); text != "" && text != "{}" {
				return fmt.Errorf("%w of the right shape: want no body", errJSON)
			}
		}
		return next(w, r, caller)
	}
}

// fail answers with an error. Only what is our own fault, or the database's, is logged.
func (a *api) fail(w http.ResponseWriter, r *http.Request, err error) {
	status := WriteProblem(w, err)
	if status < 500 || r.Context().Err() != nil {
		return
	}
	level := slog.LevelError
	if status == http.StatusServiceUnavailable {
		level = slog.LevelWarn
	}
	a.log.Log(r.Context(), level, "request failed", "route", routeOf(r), "status", status, "error", err)
}

func routeOf(r *http.Request) string {
	if c := chi.RouteContext(r.Context()); c != nil {
		return r.Method + " " + c.RoutePattern()
	}
	return r.Method
}

// recoverer keeps one panic from ending the process where the server does not. What was
// panicked with may hold a payload, so only its type is logged.
func (a *api) recoverer(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(p) // asks the server to drop the connection
			}
			a.log.Error("request panicked", "route", routeOf(r), "panic", fmt.Sprintf("%T", p), "stack", string(debug.Stack()))
			WriteProblem(w, fmt.Errorf("panic"))
		}()
		next.ServeHTTP(w, r)
	})
}

func (a *api) methodNotAllowed(w http.ResponseWriter, r *http.Request) {
	routes := chi.RouteContext(r.Context()).Routes
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		if routes.Match(chi.NewRouteContext(), method, r.URL.Path) {
			allowed = append(allowed, method)
		}
	}
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	a.fail(w, r, fmt.Errorf("%w: want %s", errMethod, strings.Join(allowed, " or ")))
}

// mediaType returns which of the wanted types the body has.
func mediaType(r *http.Request, want ...string) (string, error) {
	bad := fmt.Errorf("%w: want Content-Type %s in UTF-8", errMediaType, strings.Join(want, " or "))
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return "", fmt.Errorf("%w: want no Content-Encoding", errMediaType)
	}
	values := r.Header.Values("Content-Type")
	if len(values) != 1 {
		return "", bad
	}
	found, parameters, err := mime.ParseMediaType(values[0])
	if err != nil || !slices.Contains(want, found) {
		return "", bad
	}
	if charset, ok := parameters["charset"]; ok && !strings.EqualFold(charset, "utf-8") {
		return "", bad
	}
	return found, nil
}

// allowed returns an error unless the caller may enqueue this job. What it goes by must stand in the
// body: the rest of a request is not signed.
func allowed(caller *Caller, job *jobBody) error {
	switch {
	case queue.CheckQueue(job.queue) == nil && !caller.mayQueue(job.queue):
		return fmt.Errorf("%w: this key may not use queue %q", ErrForbidden, job.queue)
	case queue.CheckKind(job.kind) == nil && !caller.mayKind(job.kind):
		return fmt.Errorf("%w: this key may not use kind %q", ErrForbidden, job.kind)
	case caller.Signed && !job.keyed:
		return wrong("key", "missing; a signed request can be sent again by whoever has seen it, so each of its jobs needs one in the body")
	}
	job.signed = caller.Signed
	return nil
}
