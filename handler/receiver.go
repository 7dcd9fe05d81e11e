package handler

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/dozequeue/doze/internal/receive"
	"github.com/dozequeue/doze/queue"
)

// ReceiverConfig of the HTTP end of a drain. One of Secrets, Bearers and Trusted must be set.
type ReceiverConfig struct {
	// Secrets with which the HTTP trigger signs, the newest first.
	Secrets [][]byte
	// Bearers are tokens for schedulers that can send a header and cannot sign.
	Bearers []string
	// Trusted lets every call through, where the platform checks callers.
	Trusted bool
	// Process ends when the process is to stop: then drains under way end early. May be nil.
	Process context.Context
	// Limit is how long a drain may take. Set it below the platform's own limit for a
	// request. Default 4 min 30 s: below the 5 min that platforms commonly allow.
	Limit time.Duration
}

// Receiver returns the handler of POST /drain: it drains the queue that the wake in the body
// names, within the request, and answers with [Drained] as JSON. The call is idempotent and
// grants nothing: the database decides what there is to do. A caller that hangs up does
// not stop the drain. It returns an error if nobody could call.
func (d *Drainer) Receiver(cfg ReceiverConfig) (http.Handler, error) {
	if cfg.Limit == 0 {
		cfg.Limit = 270 * time.Second
	}
	auth := receive.Auth{Secrets: cfg.Secrets, Bearers: cfg.Bearers, Trusted: cfg.Trusted}
	return receive.Handler(auth, cfg.Process, cfg.Limit, func(ctx context.Context, body []byte) (any, error) {
		wake, err := ParseWake(body)
		if err != nil {
			return nil, err
		}
		return d.Drain(ctx, wake)
	})
}

// ParseWake reads a wake that came from outside. An empty body wakes the default queue.
func ParseWake(body []byte) (queue.Wake, error) {
	wake := queue.Wake{Queue: queue.DefaultQueue}
	if len(body) > 0 {
		if err := json.Unmarshal(body, &wake); err != nil {
			return wake, &receive.BadRequest{Detail: "the body is no wake: want JSON such as {\"queue\":\"default\"}"}
		}
	}
	if wake.Version > 1 {
		return wake, &receive.BadRequest{Detail: "v: want 1; this is an older build than the caller's"}
	}
	if err := queue.CheckQueue(wake.Queue); err != nil {
		return wake, &receive.BadRequest{Detail: err.Error()}
	}
	wake.Hop = max(wake.Hop, 0)
	return wake, nil
}
