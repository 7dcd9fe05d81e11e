package handler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dozequeue/doze/queue"
)

// Config of a [Drainer]. The zero value is ready.
type Config struct {
	// Schema of Doze's tables. Default [queue.DefaultSchema].
	Schema string
	// Trigger starts further drains: one more where this one is saturated, and a
	// successor where its time is up. Default: none, so that the next enqueue or sweep does.
	Trigger queue.Trigger
	// Alarm wakes the queue for its next due time. One that is a [queue.Clearer] is set at a drain's start
	// too, for when its lease has ended, and taken back at its end: then no sweep is needed
	// for drains that vanish. Default: none, so that the sweep does all that.
	Alarm queue.Alarm
	// Concurrency is how many handlers run at once. Default 10.
	Concurrency int
	// BatchSize is the most jobs claimed at once, and with Concurrency the most held in
	// memory, twice over. A drain begins with as many as run at once, and takes
	// more only while they end quickly. Default 1000.
	BatchSize int
	// BatchBytes is about how many bytes of payloads are claimed at once: a claim is sized by
	// those of the one before it. Default 16 MiB.
	BatchBytes int
	// Lease is how long jobs are held before they must be renewed; they are renewed at a third
	// of it. Default: until the context's deadline plus Slack, without renewing, or a
	// minute where there is no deadline.
	Lease time.Duration
	// Slack is how long after the deadline a lease without renewing ends. Default 10 s.
	Slack time.Duration
	// Margin is how long before the context's deadline the drain stops claiming; at half of it
	// the handlers' contexts end. Default 5 s, or a fifth of the time if that is less.
	Margin time.Duration
	// Wait is how near the next due time must be for a drain to wait for it, without its slot and without
	// touching the database, rather than leave it to the alarm. For services whose alarms are precise to a
	// minute, at the price of the function's time. Default 0: never.
	Wait time.Duration
	// Timeout limits an attempt of a kind that has no limit of its own. Default 0: none but
	// the deadline.
	Timeout time.Duration
	// Grace is how long a handler may go on after its context has ended. One that takes
	// longer is given up on: see [Drained.Stuck]. Default 5 s.
	Grace time.Duration
	// Backoff is how long a failed attempt waits. Default 20 s, doubled for each failure up to an hour.
	Backoff queue.Backoff
	// Bell is how long a ring waits for its drain to come. Default 15 s.
	Bell time.Duration
	// MaxHops is how many drains may hand over to each other in a row; one that got nothing done
	// counts for a tenth of them. Then the chain ends, and the alarm begins another a minute
	// later. Default 1000.
	MaxHops int
	// Reconnect is how long to keep trying to reach a database that is asleep, starting or
	// full. Default 60 s.
	Reconnect time.Duration
	// OnFailure is called after each failed attempt has been recorded, one call at a time for a
	// drain, which waits for it: be quick. A panic in it is logged.
	OnFailure func(ctx context.Context, failure Failure)
	// Logger gets a line for each drain and each fault. Default: silent. Payloads and what
	// handlers return are never logged.
	Logger *slog.Logger
}

// Failure is a failed attempt.
type Failure struct {
	Job queue.Job
	// Err that the handler returned, a [*PanicError] if it panicked.
	Err error
	// Final is true if the job has failed for good.
	Final bool
}

// WithDefaults returns a copy in which zero fields have their defaults.
func (c Config) WithDefaults() Config {
	if c.Concurrency == 0 {
		c.Concurrency = 10
	}
	if c.BatchSize == 0 {
		c.BatchSize = 1000
	}
	if c.BatchBytes == 0 {
		c.BatchBytes = 16 << 20
	}
	for field, value := range map[*time.Duration]time.Duration{
		&c.Slack: 10 * time.Second, &c.Grace: 5 * time.Second, &c.Bell: 15 * time.Second, &c.Reconnect: time.Minute,
	} {
		if *field == 0 {
			*field = value
		}
	}
	if c.Backoff == nil {
		c.Backoff = defaultBackoff
	}
	if c.MaxHops == 0 {
		c.MaxHops = 1000
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Validate returns an error that names the first field out of its range.
func (c Config) Validate() error {
	switch {
	case c.Concurrency < 0 || c.Concurrency > 10_000:
		return fmt.Errorf("handler: Concurrency %d: want 1 to 10000, or 0 for 10", c.Concurrency)
	case c.BatchSize < 0 || c.BatchSize > 10_000:
		return fmt.Errorf("handler: BatchSize %d: want 1 to 10000, or 0 for 1000", c.BatchSize)
	case c.BatchBytes < 0:
		return fmt.Errorf("handler: BatchBytes %d: want 1 or more, or 0 for 16 MiB", c.BatchBytes)
	case c.MaxHops < 0:
		return fmt.Errorf("handler: MaxHops %d: want 1 or more, or 0 for 1000", c.MaxHops)
	case c.Lease != 0 && c.Lease < time.Second:
		return fmt.Errorf("handler: Lease %v: want 1s or more, or 0", c.Lease)
	}
	for name, d := range map[string]time.Duration{"Slack": c.Slack, "Margin": c.Margin, "Wait": c.Wait, "Timeout": c.Timeout, "Grace": c.Grace, "Bell": c.Bell, "Reconnect": c.Reconnect} {
		if d < 0 {
			return fmt.Errorf("handler: %s %v: want a positive duration, or 0 for the default", name, d)
		}
	}
	return nil
}

// Drainer drains queues. Any number of drains may run at once on one Drainer.
type Drainer struct {
	pool    *pgxpool.Pool
	store   *queue.Store
	mux     *Mux
	cfg     Config
	tainted atomic.Bool
}

// New returns a Drainer. The pool needs one connection for each drain that runs at once, and
// none is held while handlers run. It returns an error for a setting out of its range.
func New(pool *pgxpool.Pool, mux *Mux, cfg Config) (*Drainer, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	store, err := queue.NewStore(cfg.Schema)
	if err != nil {
		return nil, err
	}
	return &Drainer{pool: pool, store: store, mux: mux, cfg: cfg.WithDefaults()}, nil
}

// Drained says what a drain did.
type Drained struct {
	// Queue that was drained.
	Queue string `json:"queue"`
	// NoSlot is true if as many drains as may were running, or the queue is unknown:
	// nothing was done.
	NoSlot bool `json:"no_slot,omitempty"`
	// Claimed jobs. Each is in one of the counts below, or lost.
	Claimed int `json:"claimed"`
	Done    int `json:"done"`
	// Retried failed and are queued again; Failed are so for good.
	Retried int `json:"retried"`
	Failed  int `json:"failed"`
	Snoozed int `json:"snoozed"`
	// Interrupted were cut off, by the deadline or because their lease could not be renewed; Released
	// were not begun. Both are queued again as they were.
	Interrupted int `json:"interrupted"`
	Released    int `json:"released"`
	// Unknown had no handler here and were given back.
	Unknown int `json:"unknown"`
	// Lost had been taken away: cancelled, or claimed by another drain. What their
	// handlers reported was refused.
	Lost int `json:"lost"`
	// Reaped leases of other drains had expired.
	Reaped int `json:"reaped"`
	// Ticked jobs were made by schedules that were due.
	Ticked int `json:"ticked"`
	// Stuck handlers did not return. Their goroutines live on, so end the process.
	Stuck int `json:"stuck"`
	// Claims is how many times the database was asked for jobs.
	Claims int `json:"claims"`
	// More is true if there is due work left that this drain did not get to.
	More bool `json:"more"`
	// HandedOver is true if a successor was asked for it.
	HandedOver bool `json:"handed_over,omitempty"`
	// NextMS is the milliseconds until the next due time or end of a lease; -1 if none is known.
	NextMS int64 `json:"next_ms"`
}

// ErrTainted is returned by a drain that begins after a handler did not return: see
// [Drainer.Tainted].
var ErrTainted = errors.New("handler: a handler did not return; end this process")

// Tainted reports whether a handler of this process did not return. Such a process should
// end: the handler's goroutine may go on in a later drain. Drains under way claim no more, and
// further ones return [ErrTainted].
func (d *Drainer) Tainted() bool { return d.tainted.Load() }

// patience is how long one call to the database may take before its connection is given up:
// a lock that somebody holds must not hold the drain for ever.
const patience = 30 * time.Second

// conn runs fn on a connection of the pool, trying again to get one while the database is
// asleep or full, for as long as Config.Reconnect and the context allow.
func (d *Drainer) conn(ctx context.Context, fn func(context.Context, *pgx.Conn) error) error {
	giveUp := time.Now().Add(d.cfg.Reconnect)
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		c, err := d.pool.Acquire(ctx)
		if err == nil {
			defer c.Release()
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			return fn(ctx, c.Conn())
		}
		if queue.Classify(err) != queue.Unavailable || time.Now().After(giveUp) || ctx.Err() != nil {
			return fmt.Errorf("connect: %w", err)
		}
		if sleep(ctx, jitter(wait)) != nil {
			return fmt.Errorf("connect: %w", err)
		}
	}
}

// again runs fn on a connection, and once more for as long as the fault may pass. Fn is told
// whether there was an earlier try, all or part of which may have been carried out: of
// several transactions in one round trip, the first may be committed and the next in conflict.
func (d *Drainer) again(ctx context.Context, fn func(ctx context.Context, conn *pgx.Conn, repeat bool) error) error {
	giveUp := time.Now().Add(d.cfg.Reconnect)
	tries := 0
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		err := d.conn(ctx, func(ctx context.Context, conn *pgx.Conn) error {
			tries++
			return fn(ctx, conn, tries > 1)
		})
		class := queue.Classify(err)
		if err == nil || class != queue.Unavailable && class != queue.Conflict || time.Now().After(giveUp) {
			return err
		}
		d.cfg.Logger.DebugContext(ctx, "trying again", "error", err)
		if sleep(ctx, jitter(wait)) != nil {
			return err
		}
	}
}

func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// fire fires the trigger for a ring, or takes the ring back: a bell that nobody answers would
// keep enqueues from ringing until it ends. It reports whether the trigger was fired.
func (d *Drainer) fire(ctx context.Context, wake queue.Wake) bool {
	if d.cfg.Trigger != nil {
		limited, cancel := context.WithTimeout(ctx, patience)
		err := d.cfg.Trigger.Fire(limited, wake)
		cancel()
		if err == nil {
			return true
		}
		d.cfg.Logger.WarnContext(ctx, "trigger not fired; the next enqueue or sweep will", "queue", wake.Queue, "reason", wake.Reason, "error", err)
	}
	if err := d.conn(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		return d.store.Unring(ctx, queue.Unnamed(conn), wake.Queue)
	}); err != nil {
		d.cfg.Logger.WarnContext(ctx, "ring not taken back; it ends by itself", "queue", wake.Queue, "error", err)
	}
	return false
}

// errNoQueue is returned for a wake without a valid queue.
var errNoQueue = errors.New("drain: the wake names no valid queue")
