package enqueue

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/dozequeue/doze/queue"
)

// Defaults of a [Config].
const (
	DefaultBell        = 15 * time.Second
	DefaultMaxPayload  = 1 << 20
	DefaultMaxAttempts = 10
	DefaultKeyHold     = 24 * time.Hour
	DefaultFireTimeout = 2 * time.Second
	DefaultTimeout     = 30 * time.Second
)

// MaxBatch is the most bytes that the payloads of one call may have together, 256 MiB.
// They travel in one message, for which PostgreSQL has a limit of its own.
const MaxBatch = 256 << 20

// Config of a [Client]. The zero value is ready for use.
type Config struct {
	// Schema of Doze's tables. Empty: [queue.DefaultSchema].
	Schema string
	// Bell is how long a ring waits for its drain to come before another enqueue
	// rings again. Zero: 15 s. It should be longer than a function takes to start: if it is
	// shorter, a burst starts more drains than it needs; the longer it is, the longer a
	// lost wake goes unnoticed on a busy queue. From 1 s to 1 h.
	Bell time.Duration
	// MaxPayload is the most bytes of one payload. Zero: 1 MiB. At most [MaxBatch].
	MaxPayload int
	// MaxAttempts of a job that does not say otherwise. Zero: 10. At most 1000.
	MaxAttempts int
	// KeyHold is how long the key of a job stays taken after the job has finished: see
	// [Key]. Zero: 24 h. It should outlast the retries of whoever sends the job.
	KeyHold time.Duration
	// FireTimeout is how long each step may take that follows once the jobs are committed: to ring, to
	// set an alarm, to fire the trigger. Zero: 2 s. A call may outlast its context by these
	// steps, since a committed job should not wait because its caller has left.
	FireTimeout time.Duration
	// Timeout is how long one call may take with its tries to reach the database.
	// Zero: 30 s, which is enough for a suspended database to wake up. It does
	// not apply in a transaction of the caller's.
	Timeout time.Duration
	// Alarm wakes queues for jobs that are due later. One that is a [queue.Clearer] is also set when a
	// trigger is fired, and taken back by the drain: so a wake that is lost is made up for
	// without a sweep, at the price of a call to the service for each wake. Nil: none, and
	// such jobs wait for a drain or sweep that comes by.
	Alarm queue.Alarm
	// Logger gets a warning for each queue that could not be woken, and never a payload. Nil: silent.
	Logger *slog.Logger
}

// WithDefaults returns c with its zero values replaced.
func (c Config) WithDefaults() Config {
	if c.Schema == "" {
		c.Schema = queue.DefaultSchema
	}
	if c.Bell == 0 {
		c.Bell = DefaultBell
	}
	if c.MaxPayload == 0 {
		c.MaxPayload = DefaultMaxPayload
	}
	if c.MaxAttempts == 0 {
		c.MaxAttempts = DefaultMaxAttempts
	}
	if c.KeyHold == 0 {
		c.KeyHold = DefaultKeyHold
	}
	if c.FireTimeout == 0 {
		c.FireTimeout = DefaultFireTimeout
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Validate returns a [*queue.FieldError] for the first setting that is out of its range.
// Zero values are in theirs.
func (c Config) Validate() error {
	c = c.WithDefaults()
	if err := queue.CheckSchema(c.Schema); err != nil {
		return err
	}
	switch {
	case c.Bell < time.Second || c.Bell > time.Hour:
		return settingError("Bell", c.Bell, "want 1s to 1h, or 0 for 15s")
	case c.MaxPayload < 1 || c.MaxPayload > MaxBatch:
		return settingError("MaxPayload", c.MaxPayload, fmt.Sprintf("want 1 to %d bytes, or 0 for 1 MiB", MaxBatch))
	case c.MaxAttempts < 1 || c.MaxAttempts > queue.MaxMaxAttempts:
		return settingError("MaxAttempts", c.MaxAttempts, fmt.Sprintf("want 1 to %d, or 0 for 10", queue.MaxMaxAttempts))
	case c.KeyHold < 0 || c.KeyHold > queue.MaxDelay:
		return settingError("KeyHold", c.KeyHold, fmt.Sprintf("want at most %v, or 0 for 24h", queue.MaxDelay))
	case c.FireTimeout < 0 || c.FireTimeout > time.Minute:
		return settingError("FireTimeout", c.FireTimeout, "want at most 1m, or 0 for 2s")
	case c.Timeout < 0:
		return settingError("Timeout", c.Timeout, "want more than 0, or 0 for 30s")
	}
	return nil
}

func settingError(field string, value any, rule string) error {
	return &queue.FieldError{Index: -1, Field: field, Value: fmt.Sprint(value), Rule: rule}
}
