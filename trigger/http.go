package trigger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"time"

	"github.com/dozequeue/doze/internal/signature"
	"github.com/dozequeue/doze/queue"
	"github.com/dozequeue/doze/trigger/internal/wire"
)

// HTTP sends a wake to the URL of a drain. Make one with [NewHTTP].
//
// Scale-to-zero platforms run a program only while it has a request, so a drain
// answers when it is done and not before. Fire therefore does not wait for it:
// it returns once the request is written and a short time has passed in which
// an error would have come back. The drain must not stop when its client goes
// away.
type HTTP struct {
	config HTTPConfig
	client *http.Client
	target string // of errors: the URL without its query

	closed context.Context
	close  context.CancelFunc
}

var _ queue.Trigger = (*HTTP)(nil)

// NewHTTP checks the config and gives a trigger for it. Nothing is sent yet.
func NewHTTP(config HTTPConfig) (*HTTP, error) {
	u, err := config.check()
	if err != nil {
		return nil, err
	}
	config = config.withDefaults()
	config.Secret = slices.Clone(config.Secret)

	client := &http.Client{}
	if config.Client != nil {
		*client = *config.Client
	} else {
		own := http.DefaultTransport.(*http.Transport).Clone()
		own.DisableKeepAlives = true
		client.Transport = own
	}
	// A redirect would carry the signature to another place.
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	client.Timeout = 0

	closed, cancel := context.WithCancel(context.Background())
	return &HTTP{
		config: config,
		client: client,
		target: u.Scheme + "://" + u.Host + u.Path,
		closed: closed,
		close:  cancel,
	}, nil
}

// Fire sends the wake. It fails when the request could not be written, or when
// an answer other than 2xx came while it waited; 429 and 503 are tried again,
// three times in all, as long as ctx allows. The error never holds the secret,
// the query of the URL or a body.
func (h *HTTP) Fire(ctx context.Context, wake queue.Wake) error {
	body, err := wire.Encode(wake)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("trigger: post to %s: %w", h.target, err)
	}
	if h.closed.Err() != nil {
		return fmt.Errorf("trigger: post to %s: %w", h.target, ErrClosed)
	}
	for try := 1; ; try++ {
		err := h.post(ctx, body)
		if err == nil {
			return nil
		}
		var refused *refusal
		if !errors.As(err, &refused) || !refused.again() || try == maxTries || !pause(ctx, try, refused.after) {
			return fmt.Errorf("trigger: post to %s: %w", h.target, err)
		}
	}
}

// Close ends the requests that are still open; see HTTPConfig.Hold. Drains that
// were started go on. After it Fire returns [ErrClosed].
func (h *HTTP) Close() { h.close() }

// ErrClosed is returned by a trigger that was closed.
var ErrClosed = errors.New("trigger is closed")

// post makes one try. The request outlives it, so it gets a context of its own.
func (h *HTTP) post(ctx context.Context, body []byte) error {
	wrote := make(chan struct{}, 1)
	reqCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(h.closed, cancel)
	trace := &httptrace.ClientTrace{WroteRequest: func(info httptrace.WroteRequestInfo) {
		if info.Err == nil {
			select {
			case wrote <- struct{}{}:
			default: // the transport tried twice
			}
		}
	}}
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(reqCtx, trace), http.MethodPost, h.config.URL, bytes.NewReader(body))
	if err != nil {
		stop()
		cancel()
		return bare(err)
	}
	req.Header.Set("Content-Type", "application/json")
	// Not sent, but lets the transport repeat the request on a connection that
	// the server had just closed: a second wake is harmless.
	req.Header["Idempotency-Key"] = nil
	if !h.config.Unsigned {
		signature.Sign(h.config.Secret, body, time.Now()).Set(req.Header)
	}

	answer := make(chan error, 1)
	go func() {
		defer cancel()
		defer stop()
		resp, err := h.client.Do(req)
		if err != nil {
			answer <- bare(err)
			return
		}
		answer <- verdict(resp)
		// The headers may come long before the drain is done.
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}()

	send := time.NewTimer(h.config.SendTimeout)
	defer send.Stop()
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		cancel()
		return ctx.Err()
	case <-send.C:
		cancel()
		return fmt.Errorf("not sent within %s", h.config.SendTimeout)
	case <-wrote:
	}

	wait := time.NewTimer(h.config.AnswerWait)
	defer wait.Stop()
	select {
	case err := <-answer:
		return err
	case <-wait.C:
	case <-ctx.Done():
	}
	if h.config.Hold < 0 {
		cancel()
		return nil
	}
	hold := time.AfterFunc(h.config.Hold, cancel)
	context.AfterFunc(reqCtx, func() { hold.Stop() })
	return nil
}

// bare strips the URL that net/http puts into its errors: its query may hold a
// token.
func bare(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}
