package enqueue

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dozequeue/doze/queue"
)

// Client puts jobs into queues. Any number of goroutines may use one.
type Client struct {
	pool    *pgxpool.Pool // for whole connections and transactions
	db      queue.DB      // for single statements, the pool with each of them unnamed
	store   *queue.Store
	trigger queue.Trigger
	alarm   queue.Alarm // nil for none
	cfg     Config
	log     *slog.Logger
	count   struct{ added, duplicates, repeats, unknown, fired, fireErrors atomic.Int64 }
}

// New returns a client. It does not touch the database. The pool stays the caller's, who
// closes it; a call takes one of its connections, and none while the trigger is fired.
// Pool and trigger are required. Errors are [*queue.FieldError].
func New(pool *pgxpool.Pool, trigger queue.Trigger, cfg Config) (*Client, error) {
	switch {
	case pool == nil:
		return nil, &queue.FieldError{Index: -1, Field: "pool", Rule: "nil, want a *pgxpool.Pool"}
	case trigger == nil:
		return nil, &queue.FieldError{Index: -1, Field: "trigger", Rule: "nil, want one; to leave all to the sweep give one that does nothing"}
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.WithDefaults()
	store, err := queue.NewStore(cfg.Schema)
	if err != nil {
		return nil, err
	}
	c := &Client{pool: pool, db: queue.Unnamed(pool), store: store, trigger: trigger, cfg: cfg, log: cfg.Logger}
	if cfg.Alarm != nil {
		c.alarm = steadyAlarm{cfg.Alarm}
	}
	return c, nil
}

// Add stores one job and wakes its queue. When it returns nil the job is committed. It is
// one round trip to the database, and a call of the trigger if nobody is there or on the way.
//
// A try that met a conflict or a database out of reach is repeated, for [Config.Timeout] at most.
// Errors: [*queue.FieldError] before anything is sent, [*OutcomeError] if a commit may
// or may not have happened, and what pgx returns otherwise; then nothing was stored.
func (c *Client) Add(ctx context.Context, args queue.Args, opts ...Option) (Added, error) {
	entry, err := encodeOne(args, opts)
	if err != nil {
		return Added{}, err
	}
	return c.AddJob(ctx, entry.Kind, entry.Payload, entry.Options...)
}

// AddMany stores jobs, all or none, and wakes each of their queues once. It is as [Client.Add]
// otherwise. The result is in the order of entries; a [*queue.FieldError] names the index.
func (c *Client) AddMany(ctx context.Context, entries []Entry) ([]Added, error) {
	raw, err := encode(entries)
	if err != nil {
		return nil, err
	}
	return c.AddJobs(ctx, raw)
}

// AddJob is [Client.Add] for a payload that is JSON already, which is stored byte for byte. Empty: null.
func (c *Client) AddJob(ctx context.Context, kind string, payload json.RawMessage, opts ...Option) (Added, error) {
	b, err := c.one(RawEntry{Kind: kind, Payload: payload, Options: opts})
	if err != nil {
		return Added{}, err
	}
	added, err := c.add(ctx, b)
	if err != nil {
		return Added{}, err
	}
	return added[0], nil
}

// AddJobs is [Client.AddMany] for payloads that are JSON already.
func (c *Client) AddJobs(ctx context.Context, entries []RawEntry) ([]Added, error) {
	b, err := c.batch(entries)
	if err != nil || len(b.jobs) == 0 {
		return nil, err
	}
	return c.add(ctx, b)
}

// add commits a batch, trying again where that may help, and fires.
func (c *Client) add(ctx context.Context, b *batch) ([]Added, error) {
	within, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	unknown, repeat := false, b.repeat
	for try := 0; ; try++ {
		inserted, fire, err := c.insert(within, b.jobs, repeat)
		if inserted != nil {
			if err != nil {
				c.log.Warn("ring failed, firing anyway", "error", err)
			}
			added := b.added(inserted)
			c.counted(added)
			_ = c.fire(ctx, fire, queue.ReasonEnqueue) // logged and counted; the jobs are safe
			c.setAlarms(ctx, added, false)
			return added, nil
		}
		lost := maybeCommitted(err)
		unknown = unknown || lost
		if !(lost || repeatable(err)) || wait(within, try) != nil {
			return nil, c.giveUp(ctx, b, unknown, err)
		}
		c.count.repeats.Add(1)
		repeat = repeat || unknown
	}
}

// insert makes one try.
func (c *Client) insert(ctx context.Context, jobs []queue.NewJob, repeat bool) (inserted []queue.Inserted, fire []string, err error) {
	conn, err := c.pool.Acquire(ctx)
	if err != nil {
		return nil, nil, &unsentError{fmt.Errorf("connect: %w", err)}
	}
	defer conn.Release()
	return c.store.InsertAndRing(ctx, conn.Conn(), jobs, repeat, c.cfg.Bell)
}

// giveUp makes the error of a call that is not tried again.
func (c *Client) giveUp(ctx context.Context, b *batch, unknown bool, err error) error {
	if !unknown {
		return fmt.Errorf("enqueue: %w", err)
	}
	c.count.unknown.Add(1)
	c.fireUnknown(ctx, b.unknown())
	return &OutcomeError{IDs: b.ids(), Err: err}
}

func (c *Client) counted(added []Added) {
	for _, a := range added {
		if a.Duplicate {
			c.count.duplicates.Add(1)
		} else {
			c.count.added.Add(1)
		}
	}
}

// Stats counts what a client has done since it was made.
type Stats struct {
	// Added and Duplicates are jobs inserted and jobs found there. Those of a caller's
	// transaction count when they are inserted, not when they are committed.
	Added, Duplicates int64
	// Repeats are tries made after the first, Unknown the calls that ended with an [OutcomeError].
	Repeats, Unknown int64
	// Fired are wakes that the trigger took, FireErrors those that it did not.
	Fired, FireErrors int64
}

// Stats returns the counts as they are now.
func (c *Client) Stats() Stats {
	return Stats{
		Added:      c.count.added.Load(),
		Duplicates: c.count.duplicates.Load(),
		Repeats:    c.count.repeats.Load(),
		Unknown:    c.count.unknown.Load(),
		Fired:      c.count.fired.Load(),
		FireErrors: c.count.fireErrors.Load(),
	}
}
