package sweeper

import (
	"context"
	"net/http"
	"time"

	"github.com/dozequeue/doze/internal/receive"
)

// ReceiverConfig of the HTTP end of a sweep. One of Secrets, Bearers and Trusted must be set.
type ReceiverConfig struct {
	// Secrets with which calls are signed, the newest first.
	Secrets [][]byte
	// Bearers are tokens for schedulers that can send a header and cannot sign.
	Bearers []string
	// Trusted lets every call through, where the platform checks callers.
	Trusted bool
	// Process ends when the process is to stop: then sweeps under way end early. May be nil.
	Process context.Context
	// Limit is how long a sweep may take. Default 4 min 30 s.
	Limit time.Duration
}

// Receiver returns the handler of POST /sweep: it sweeps once, within the request, and answers
// with [Swept] as JSON. The body is not looked at. It returns an error if nobody could call.
func (s *Sweeper) Receiver(cfg ReceiverConfig) (http.Handler, error) {
	if cfg.Limit == 0 {
		cfg.Limit = 270 * time.Second
	}
	auth := receive.Auth{Secrets: cfg.Secrets, Bearers: cfg.Bearers, Trusted: cfg.Trusted}
	return receive.Handler(auth, cfg.Process, cfg.Limit, func(ctx context.Context, _ []byte) (any, error) { return s.Sweep(ctx) })
}
