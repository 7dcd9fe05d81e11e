package resident

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/dozequeue/doze/handler"
	"github.com/dozequeue/doze/queue"
	"github.com/dozequeue/doze/trigger/notify"
)

// ErrDeaf is returned where the connection to listen on does not hear what is sent through the pool: it goes through a
// pooler in transaction mode, or leads to another database.
var ErrDeaf = errors.New("resident: URL: what is notified through the pool does not arrive; want a direct connection to the same database, not one through a pooler in transaction mode")

const (
	firstWait = 100 * time.Millisecond
	lastWait  = 30 * time.Second
	patience  = 30 * time.Second // for a look
)

// directConfig is how to connect to listen.
func directConfig(cfg Config) (*pgx.ConnConfig, error) {
	c, err := pgx.ParseConfig(cfg.URL)
	if err != nil {
		// What pgx says may quote the connection string.
		return nil, errors.New("resident: URL: want postgres://user:password@host:port/database?sslmode=…, or key=value pairs")
	}
	c.ConnectTimeout = cfg.ConnectTimeout
	if c.RuntimeParams["application_name"] == "" {
		c.RuntimeParams["application_name"] = "doze resident" // so that one sees who keeps the database awake
	}
	return c, nil
}

// listen listens until ctx ends, and again after each fault that may pass.
func (p *process) listen(ctx context.Context) error {
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		begun := time.Now()
		err := p.session(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case !p.listened && (errors.Is(err, ErrDeaf) || queue.Classify(err) == queue.Misconfigured):
			return err
		case time.Since(begun) > lastWait:
			wait = firstWait
		}
		p.cfg.Logger.WarnContext(ctx, "not listening; trying again", "in", wait, "looks_every", p.cfg.Fallback, "error", err)
		if time.Now().After(p.lookAt) {
			_ = p.look(ctx) // it logs
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait/2 + rand.N(wait/2+1)):
		}
	}
}

// session listens on one connection until that breaks.
func (p *process) session(ctx context.Context) error {
	conn, err := pgx.ConnectConfig(ctx, p.direct)
	if err != nil {
		return fmt.Errorf("connect to listen: %w", err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		conn.Close(ctx)
	}()
	if err := p.subscribe(ctx, conn); err != nil {
		return err
	}
	// From here on each commit is heard of; what came before it is looked for. But first: does it hear?
	probe, until, err := p.probe(ctx)
	if err != nil {
		return err
	}
	for heard := false; ; {
		at := until
		if probe == "" {
			at = p.lookAt
		}
		message, err := receive(ctx, conn, at)
		switch {
		case err == nil:
			token, probed := notify.Probed(message)
			if !probed {
				p.hear(ctx, message)
			} else if token == probe && probe != "" {
				probe = ""
				if !heard {
					heard = true
					if err := p.begin(ctx); err != nil {
						return err
					}
				}
			}
		case ctx.Err() != nil || !errors.Is(err, errNothing):
			return err
		case probe != "":
			return ErrDeaf
		default:
			_ = p.look(ctx) // it logs
			// A connection may be dead without a word of it. A pool that cannot be reached says nothing about that.
			if probe, until, err = p.probe(ctx); err != nil {
				probe = ""
			}
		}
	}
}

// begin looks for what came while nobody listened. Of its faults only those that a person must see to are
// returned, and those only at the start.
func (p *process) begin(ctx context.Context) error {
	p.forgetful = true
	err := p.look(ctx)
	if one := (*queueError)(nil); err != nil && !p.listened && !errors.As(err, &one) && queue.Classify(err) == queue.Misconfigured {
		return err
	}
	p.listened = true
	p.cfg.Logger.InfoContext(ctx, "listening", "channel", notify.Channel(p.store.Schema()))
	if p.cfg.Listening != nil {
		p.cfg.Listening()
	}
	return nil
}

func (p *process) subscribe(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.ConnectTimeout)
	defer cancel()
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{notify.Channel(p.store.Schema())}.Sanitize()); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	return nil
}

// probe sends a message to this process, through the pool, and says until when it must be here.
func (p *process) probe(ctx context.Context) (token string, until time.Time, err error) {
	token = uuid.NewString()
	ctx, cancel := context.WithTimeout(ctx, p.cfg.hear)
	defer cancel()
	err = p.notify.Probe(ctx, token)
	return token, time.Now().Add(p.cfg.hear), err
}

// errNothing is returned by receive if nothing came in time.
var errNothing = errors.New("nothing came")

// receive waits for a message until a time.
func receive(ctx context.Context, conn *pgx.Conn, until time.Time) (string, error) {
	limited, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	n, err := conn.WaitForNotification(limited)
	switch {
	case n != nil:
		return n.Payload, nil
	case limited.Err() != nil && !conn.IsClosed():
		return "", errNothing
	}
	return "", fmt.Errorf("wait for a notification: %w", err)
}

// hear starts what a message asks for.
func (p *process) hear(ctx context.Context, message string) {
	wake, err := handler.ParseWake([]byte(message))
	if err != nil {
		p.cfg.Logger.WarnContext(ctx, "a notification is no wake", "error", err)
		return
	}
	p.wake(wake)
}

// look drains each queue that has due work, and sets the alarms of the others.
func (p *process) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := p.lookAround(ctx)
	if err == nil {
		p.lookWait = 0
		p.lookAt = time.Now().Add(p.cfg.Fallback - rand.N(p.cfg.Fallback/10+1)) // so that several processes drift apart
		return nil
	}
	p.cfg.Logger.WarnContext(ctx, "a look for due work failed", "error", err)
	p.lookWait = min(max(2*p.lookWait, time.Second), p.cfg.Fallback)
	p.lookAt = time.Now().Add(p.lookWait)
	return err
}

func (p *process) lookAround(ctx context.Context) error {
	if p.forgetful { // one that was kept in a process that ended, or was on its way here, stands in the way of others
		if err := p.store.Disarm(ctx, p.db); err != nil {
			return err
		}
		p.forgetful = false
	}
	due, err := look(ctx, p.db, p.store, func(name string, in time.Duration) error {
		_, err := p.store.SetAlarm(ctx, p.db, p.local, name, in)
		return err
	})
	for _, name := range due {
		p.wake(queue.Wake{Version: 1, Queue: name, Reason: queue.ReasonSweep})
	}
	return err
}
