package resident

import (
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Config of [Run]. All but URL may be left out.
type Config struct {
	// URL of the database on a direct connection, to listen on. Required; it is never logged. It must lead to the
	// database of the pool, and not through a pooler in transaction mode: see [ErrDeaf].
	URL string
	// Schema of Doze's tables. Default [queue.DefaultSchema].
	Schema string
	// Fallback is how long between two looks for due work that no notification came for: one that got
	// lost, or the alarm of another process that died. So it is how late a job is then. Each look costs a
	// statement, and one more for each queue with live jobs. Default 5 min.
	Fallback time.Duration
	// Limit is how long one drain may take; then it hands over to the next. Jobs that take longer need
	// more. Unless handler.Config.Lease is set it is also how long the jobs of a process that was killed stay
	// with it: set that to a minute or so. Default 5 min.
	Limit time.Duration
	// Drains is how many drains of one queue notifications start at once in this process; wakes that
	// come while so many run start one together when the next of them has ended. More than the queue has slots are of no
	// use. Default 4.
	Drains int
	// ConnectTimeout is the longest time for one attempt to connect to URL. Default 15 s.
	ConnectTimeout time.Duration
	// Stop is how long drains may take to end once Run's context has ended. It should be more than
	// handler.Config.Grace, and less than the platform waits before it kills. Default 9 s.
	Stop time.Duration
	// Listening, if not nil, is called each time the process has begun to listen and has looked for what is due: for
	// a readiness probe. Be quick: it is waited for.
	Listening func()
	// Logger gets a line for each change and each fault. Default: silent.
	Logger *slog.Logger

	hear time.Duration // how long a probe may take
}

// WithDefaults returns a copy in which zero fields have their defaults.
func (c Config) WithDefaults() Config {
	for field, value := range map[*time.Duration]time.Duration{
		&c.Fallback: 5 * time.Minute, &c.Limit: 5 * time.Minute, &c.ConnectTimeout: 15 * time.Second, &c.Stop: 9 * time.Second, &c.hear: 10 * time.Second,
	} {
		if *field == 0 {
			*field = value
		}
	}
	if c.Drains == 0 {
		c.Drains = 4
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Validate returns an error that names the first field out of its range.
func (c Config) Validate() error {
	switch {
	case c.URL == "":
		return errors.New("resident: URL: empty, want that of a direct connection to listen on")
	case c.Drains < 0 || c.Drains > 1000:
		return fmt.Errorf("resident: Drains %d: want 1 to 1000, or 0 for 4", c.Drains)
	}
	for name, d := range map[string]time.Duration{"Fallback": c.Fallback, "Limit": c.Limit, "ConnectTimeout": c.ConnectTimeout, "Stop": c.Stop} {
		if d < 0 {
			return fmt.Errorf("resident: %s %v: want a positive duration, or 0 for the default", name, d)
		}
	}
	return nil
}
