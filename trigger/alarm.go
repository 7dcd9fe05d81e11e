package trigger

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/dozequeue/doze/queue"
	"github.com/dozequeue/doze/trigger/internal/wire"
)

// HTTPAlarm keeps alarms at a service that can send a request later. Make one with [NewHTTPAlarm].
//
// Such services do not replace what was asked of them, so an alarm that was set for a queue before still
// goes off. Its wake carries its own id: it starts a drain that finds nothing due and takes no other
// alarm down.
type HTTPAlarm struct {
	config HTTPAlarmConfig
	client *http.Client
}

var _ queue.Alarm = (*HTTPAlarm)(nil)

// NewHTTPAlarm checks the config and gives an alarm for it. Nothing is sent yet.
func NewHTTPAlarm(config HTTPAlarmConfig) (*HTTPAlarm, error) {
	if err := config.check(); err != nil {
		return nil, err
	}
	config = config.withDefaults()
	client := &http.Client{}
	if config.Client != nil {
		*client = *config.Client
	} else {
		own := http.DefaultTransport.(*http.Transport).Clone()
		own.DisableKeepAlives = true
		client.Transport = own
	}
	// A redirect would carry the drain's token to another place.
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	client.Timeout = 0
	return &HTTPAlarm{config: config, client: client}, nil
}

// Set asks the service to deliver the wake after in, which is rounded up to the grain, and is a grain
// at least and the horizon at most. It returns when the service has answered. A status of 429 or 5xx
// and a broken connection are tried again, three times in all, as long as ctx allows: the service may
// then have the alarm twice. The error holds neither the path, a token nor a body.
func (a *HTTPAlarm) Set(ctx context.Context, wake queue.Wake, in time.Duration) error {
	if _, err := wire.Encode(wake); err != nil {
		return err
	}
	if wake.Alarm == "" {
		return fmt.Errorf("trigger: alarm for queue %q: alarm: empty, want the alarm's id", wake.Queue)
	}
	if wake.Version == 0 {
		wake.Version = 1 // as wire.Encode does; Request encodes it
	}
	in = a.config.wait(in)
	for try := 1; ; try++ {
		err := a.ask(ctx, wake, in)
		if err == nil {
			return nil
		}
		var no *alarmRefusal
		again := ctx.Err() == nil && !errors.Is(err, errRequest)
		after := time.Duration(0)
		if errors.As(err, &no) {
			again = again && (no.status == http.StatusTooManyRequests || no.status >= http.StatusInternalServerError)
			after = no.after
		}
		if !again || try == maxTries || !pause(ctx, try, after) {
			return fmt.Errorf("trigger: set alarm for queue %q: %w", wake.Queue, err)
		}
	}
}

// errRequest marks a request that could not be made, which another try does not mend.
var errRequest = errors.New("request not made")

// ask makes one try.
func (a *HTTPAlarm) ask(ctx context.Context, wake queue.Wake, in time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, a.config.Timeout)
	defer cancel()
	req, err := a.config.Request(ctx, wake, in)
	if err != nil {
		return fmt.Errorf("%w: %w", errRequest, bare(err))
	}
	resp, err := a.client.Do(req.WithContext(ctx))
	if err != nil {
		return fmt.Errorf("%s %s: %w", req.Method, req.URL.Host, bare(err))
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10))
	if slices.Contains(a.config.Known, resp.StatusCode) {
		return nil
	}
	var no *refusal
	if errors.As(verdict(resp), &no) {
		return fmt.Errorf("%s %s: %w", req.Method, req.URL.Host, &alarmRefusal{*no})
	}
	return nil
}

// alarmRefusal is a refusal by the service, whose reasons are others than a drain's.
type alarmRefusal struct{ refusal }

func (r *alarmRefusal) Error() string {
	switch r.status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Sprintf("answer %d, want 2xx: check the token for the service and what it may do", r.status)
	case http.StatusNotFound:
		return fmt.Sprintf("answer %d, want 2xx: check the service's address, and that its queue exists", r.status)
	case http.StatusBadRequest:
		return fmt.Sprintf("answer %d, want 2xx: the service's log says what it did not take", r.status)
	}
	return fmt.Sprintf("answer %d, want 2xx", r.status)
}
