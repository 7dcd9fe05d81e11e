package trigger

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/dozequeue/doze/queue"
)

// HTTPAlarmConfig says how [HTTPAlarm] asks a service to deliver a wake later. [QStash] and
// [CloudTasks] make one; for a service of your own set Request.
//
// What the service delivers must pass at the drain's receiver, so Request puts a bearer token, one that
// the receiver accepts, where the service will hand it on. A signature would not do: it holds the time
// it was made at, and is too old when the alarm goes off. The service sees and keeps the token; use one
// that opens nothing else. What it opens is only a drain, which finds no work if none is due.
type HTTPAlarmConfig struct {
	// Request makes the request that asks for a POST of the wake to the drain after in. The wake names
	// its queue and its alarm, and in is a whole number of grains, at least one and within Horizon. It
	// is called for each try. The body of the POST is the wake as JSON, which json.Marshal makes of it.
	// Give the service the alarm's id as a key where it takes one, so that a second try does nothing.
	// Errors reach logs and must hold no secret. Required.
	Request func(ctx context.Context, wake queue.Wake, in time.Duration) (*http.Request, error)

	// Known lists statuses besides 2xx which say that the service has the alarm already. Default: none.
	Known []int

	// Grain of the service's times: in is rounded up to a multiple of it. Default 1 s.
	Grain time.Duration

	// Horizon is the longest wait that the service takes. A later alarm goes off then, and the drain
	// that it wakes sets it anew. Default: no limit.
	Horizon time.Duration

	// Client sends the requests and, where the service asks for it, adds credentials. It follows no
	// redirect, and its Timeout is not used. The default opens a connection for each request: a
	// function that was frozen may hold a dead one.
	Client *http.Client

	// Timeout of one try. Default 5 s.
	Timeout time.Duration
}

// withDefaults fills in what is not set.
func (c HTTPAlarmConfig) withDefaults() HTTPAlarmConfig {
	if c.Grain == 0 {
		c.Grain = time.Second
	}
	if c.Timeout == 0 {
		c.Timeout = 5 * time.Second
	}
	c.Known = slices.Clone(c.Known)
	return c
}

func (c HTTPAlarmConfig) check() error {
	switch {
	case c.Request == nil:
		return errors.New("trigger: Request: nil, want the func that asks the service: see QStash and CloudTasks")
	case c.Grain < 0:
		return fmt.Errorf("trigger: Grain: %s, want 0 for a second or more", c.Grain)
	case c.Timeout < 0:
		return fmt.Errorf("trigger: Timeout: %s, want 0 for the default or more", c.Timeout)
	case c.Horizon != 0 && c.Horizon < c.withDefaults().Grain:
		return fmt.Errorf("trigger: Horizon: %s, want 0 for no limit, or at least the grain, %s", c.Horizon, c.withDefaults().Grain)
	}
	return nil
}

// wait is the duration to ask for.
func (c HTTPAlarmConfig) wait(in time.Duration) time.Duration {
	if c.Horizon > 0 {
		in = min(in, c.Horizon/c.Grain*c.Grain)
	}
	in = max(in, c.Grain)
	if rest := in % c.Grain; rest > 0 {
		in += c.Grain - rest
	}
	return in
}
