package trigger

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/dozequeue/doze/internal/signature"
	"github.com/dozequeue/doze/queue"
	"github.com/dozequeue/doze/trigger/internal/wire"
)

// QStashConfig says where the QStash of Upstash sends wakes, and on whose account.
type QStashConfig struct {
	// URL of the drain, such as https://drain.example.org/drain, without a query. Required. It must be
	// https, except for loopback addresses, and reachable from the internet.
	URL string

	// Token of the account, QSTASH_TOKEN in its console. Required.
	Token string

	// Bearer is the token that the drain's receiver accepts, at least 16 bytes. QStash hands it on,
	// and is told not to show it. Required.
	Bearer string

	// Endpoint of the service. Default https://qstash.upstash.io; accounts of another region have
	// their own, QSTASH_URL in the console.
	Endpoint string

	// Retries is how often QStash delivers again what the drain did not answer with 2xx. Default 2;
	// negative for none.
	Retries int

	// Horizon is the longest delay that the account's plan allows. Default 7 days, that of the free
	// one; the paid ones have a year and more.
	Horizon time.Duration
}

// QStash gives the config of an [HTTPAlarm] at Upstash QStash: POST /v2/publish/<URL> with
// Upstash-Delay in seconds. The alarm's id is the message's deduplication id, so that a repeated
// request is taken for the same for some minutes; an alarm that was replaced is still delivered.
//
// Times are whole seconds. See https://upstash.com/docs/qstash/features/delay and
// https://upstash.com/docs/qstash/features/deduplication.
func QStash(c QStashConfig) (HTTPAlarmConfig, error) {
	none := HTTPAlarmConfig{}
	u, err := checkDrainURL(c.URL)
	if err != nil {
		return none, err
	}
	c.Endpoint = strings.TrimSuffix(cmp.Or(c.Endpoint, "https://qstash.upstash.io"), "/")
	switch {
	case u.RawQuery != "" || u.Fragment != "":
		return none, errors.New("trigger: URL: has a query or fragment, want none: QStash would read it as its own")
	case !headerText(c.Token):
		return none, errors.New("trigger: Token: want the QStash token of the account, without spaces")
	case c.Horizon < 0:
		return none, fmt.Errorf("trigger: Horizon: %s, want 0 for 7 days or more", c.Horizon)
	}
	if err := checkBearer(c.Bearer); err != nil {
		return none, err
	}
	if err := checkEndpoint(c.Endpoint); err != nil {
		return none, err
	}
	retries := "2"
	if c.Retries != 0 {
		retries = strconv.Itoa(max(c.Retries, 0))
	}
	return HTTPAlarmConfig{
		Grain:   time.Second,
		Horizon: cmp.Or(c.Horizon, 7*24*time.Hour),
		Request: func(ctx context.Context, wake queue.Wake, in time.Duration) (*http.Request, error) {
			body, err := wire.Encode(wake)
			if err != nil {
				return nil, err
			}
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.Endpoint+"/v2/publish/"+c.URL, bytes.NewReader(body))
			if err != nil {
				return nil, err
			}
			req.Header.Set("Authorization", "Bearer "+c.Token)
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("Upstash-Method", http.MethodPost)
			req.Header.Set("Upstash-Delay", strconv.FormatInt(int64(in/time.Second), 10)+"s")
			req.Header.Set("Upstash-Deduplication-Id", wake.Alarm)
			req.Header.Set("Upstash-Retries", retries)
			req.Header.Set("Upstash-Forward-Authorization", "Bearer "+c.Bearer)
			req.Header.Set("Upstash-Redact-Fields", "header[Authorization]")
			return req, nil
		},
	}, nil
}

// checkDrainURL wants https, as the request holds the receiver's token. It does not repeat the text,
// which may hold one.
func checkDrainURL(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil || u.Hostname() == "":
		return nil, errors.New("trigger: URL: want the drain's, such as https://drain.example.org/drain")
	case u.User != nil:
		return nil, errors.New("trigger: URL: holds a user or password, want none: the drain's receiver takes Bearer")
	case u.Scheme != "https" && !(u.Scheme == "http" && loopback(u.Hostname())):
		return nil, fmt.Errorf("trigger: URL: scheme %q to %q, want https", u.Scheme, u.Hostname())
	}
	return u, nil
}

// checkBearer holds a token against the rule of the drain's receiver.
func checkBearer(token string) error {
	if len(token) < signature.MinSecret || !headerText(token) {
		return fmt.Errorf("trigger: Bearer: want the token that the drain's receiver accepts, at least %d bytes without spaces", signature.MinSecret)
	}
	return nil
}

// checkEndpoint wants https, as requests hold tokens. It does not repeat the text, which may hold one.
func checkEndpoint(endpoint string) error {
	u, err := url.Parse(endpoint)
	if err != nil || u.Hostname() == "" || u.User != nil || u.RawQuery != "" ||
		u.Scheme != "https" && !(u.Scheme == "http" && loopback(u.Hostname())) {
		return errors.New("trigger: Endpoint: want an https URL without user and query")
	}
	return nil
}

// headerText is true for what can be part of a header and is not empty.
func headerText(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}
