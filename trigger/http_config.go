package trigger

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/dozequeue/doze/internal/signature"
)

// HTTPConfig says where and how [HTTP] sends a wake.
type HTTPConfig struct {
	// URL of the drain, such as https://drain.example.org/drain. Required. It
	// must be https, except for localhost and other loopback addresses.
	URL string

	// Secret signs each request, with the scheme of the drain's receiver:
	// headers Doze-Timestamp and Doze-Signature. At least 16 bytes; required
	// unless Unsigned is set.
	Secret []byte

	// Unsigned sends requests without a signature, for a drain whose platform
	// checks the caller. Give a Client that adds what the platform wants.
	Unsigned bool

	// AllowInsecure accepts a plain http URL on any host. The wake holds
	// nothing secret, but whoever sees it can repeat it for five minutes.
	AllowInsecure bool

	// Client sends the requests; its Timeout and CheckRedirect are not used.
	// The default opens a connection for each wake: a function that was frozen
	// may hold a dead one, and a write to it still succeeds.
	Client *http.Client

	// SendTimeout bounds one try, up to the moment the request is written. A
	// sleeping platform may take its time to accept. Default 10 s.
	SendTimeout time.Duration

	// AnswerWait is how long Fire waits for an answer once the request is
	// written. It is for errors to arrive in; a drain that works does not
	// answer before it is done, so an enqueue that fires takes this much
	// longer. Default 250 ms.
	AnswerWait time.Duration

	// Hold is how long a request stays open after Fire has returned, since
	// some platforms give a program time only while its request is open.
	// Default 5 min; negative closes it as soon as Fire returns.
	Hold time.Duration
}

// withDefaults fills in what is not set.
func (c HTTPConfig) withDefaults() HTTPConfig {
	if c.SendTimeout == 0 {
		c.SendTimeout = 10 * time.Second
	}
	if c.AnswerWait == 0 {
		c.AnswerWait = 250 * time.Millisecond
	}
	if c.Hold == 0 {
		c.Hold = 5 * time.Minute
	}
	return c
}

// check refuses a config that cannot work or is not safe. It returns the URL.
func (c HTTPConfig) check() (*url.URL, error) {
	u, err := url.Parse(c.URL)
	if err != nil {
		// The text may hold a token, so it is not repeated.
		return nil, errors.New("trigger: URL: cannot be parsed, want one such as https://drain.example.org/drain")
	}
	switch {
	case c.URL == "":
		return nil, errors.New("trigger: URL: empty, want the drain's, such as https://drain.example.org/drain")
	case u.Scheme != "https" && u.Scheme != "http":
		return nil, fmt.Errorf("trigger: URL: scheme %q, want https", u.Scheme)
	case u.Hostname() == "":
		return nil, errors.New("trigger: URL: no host, want one such as https://drain.example.org/drain")
	case u.User != nil:
		return nil, errors.New("trigger: URL: holds a user or password, want none: sign with Secret")
	case u.Scheme == "http" && !c.AllowInsecure && !loopback(u.Hostname()):
		return nil, fmt.Errorf("trigger: URL: http to %q, want https (or set AllowInsecure)", u.Hostname())
	}
	switch {
	case c.Unsigned && len(c.Secret) > 0:
		return nil, errors.New("trigger: Secret: set together with Unsigned, want one of the two")
	case !c.Unsigned:
		if err := signature.CheckSecret(c.Secret); err != nil {
			return nil, fmt.Errorf("trigger: Secret: %w", err)
		}
	}
	for _, d := range []struct {
		field string
		value time.Duration
	}{{"SendTimeout", c.SendTimeout}, {"AnswerWait", c.AnswerWait}} {
		if d.value < 0 {
			return nil, fmt.Errorf("trigger: %s: %s, want 0 for the default or more", d.field, d.value)
		}
	}
	return u, nil
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
