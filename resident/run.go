package resident

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dozequeue/doze/handler"
	"github.com/dozequeue/doze/queue"
	"github.com/dozequeue/doze/trigger/notify"
)

// process is one call of Run.
type process struct {
	cfg      Config
	direct   *pgx.ConnConfig
	db       queue.DB
	store    *queue.Store
	notify   *notify.Trigger
	drainer  *handler.Drainer
	local    *handler.InProcess // keeps the alarms, and starts what drains ask for
	listened bool               // at least once

	lookAt    time.Time     // when the next look is due
	lookWait  time.Duration // after a look that failed
	forgetful bool          // alarms may have been lost: the next look sets them anew

	ctx context.Context // of the drains
	end context.CancelFunc

	mu      sync.Mutex
	queues  map[string]*busy
	running sync.WaitGroup
}

// Run listens on cfg.URL and drains with drainer until ctx ends. Then it ends the drains, whose jobs are queued
// again, waits for them, leaves what is due or alarmed to whoever else listens, and returns nil.
//
// Db is the drainer's pool. Run makes itself the drainer's trigger and alarm, whatever its config
// says, so give it a drainer of its own.
//
// At its start and whenever it has connected again it drains each queue that has due work, so nothing that came
// while it did not listen is left. A lost connection is opened again, after a tenth of a second at first and
// ever more rarely up to half a minute; meanwhile it looks for due work as often as Fallback says.
//
// It returns an error at once for a setting out of its range; [ErrDeaf], a wrong password or missing tables
// if it finds so before it has listened for the first time; [handler.ErrTainted] when a handler did not
// return, so that the process ends; and one if drains go on after Stop.
func Run(ctx context.Context, db queue.DB, drainer *handler.Drainer, cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	cfg = cfg.WithDefaults()
	store, err := queue.NewStore(cfg.Schema)
	if err != nil {
		return err
	}
	sender, err := notify.New(db, notify.Config{Schema: cfg.Schema})
	if err != nil {
		return err
	}
	direct, err := directConfig(cfg)
	if err != nil {
		return err
	}
	p := &process{
		cfg: cfg, direct: direct, db: queue.Unnamed(db), store: store, notify: sender, drainer: drainer,
		local: handler.NewInProcess(drainer, cfg.Limit).Bind(), queues: make(map[string]*busy),
		forgetful: true,
	}
	p.ctx, p.end = context.WithCancel(context.WithoutCancel(ctx))
	defer p.end()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go p.watch(ctx, stop)
	err = p.listen(ctx)
	if cause := context.Cause(ctx); errors.Is(cause, handler.ErrTainted) {
		err = cause
	}
	return errors.Join(err, p.stop(ctx))
}

// watch ends the process if a handler did not return.
func (p *process) watch(ctx context.Context, stop context.CancelCauseFunc) {
	tick := time.NewTicker(time.Second) // no signal tells, and this asks no database
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if p.drainer.Tainted() {
				stop(handler.ErrTainted)
				return
			}
		}
	}
}

// stop ends the drains, and passes on what this process would have seen to.
func (p *process) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.cfg.Stop)
	defer cancel()
	p.end()
	ended := make(chan struct{})
	go func() { p.running.Wait(); close(ended) }()
	err := p.local.Close(ctx)
	select {
	case <-ended:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("resident: drains go on %v after the stop; their jobs come back when their leases end: %w", p.cfg.Stop, err)
	}
	if p.listened {
		if err := p.passOn(ctx); err != nil {
			p.cfg.Logger.WarnContext(ctx, "nobody is told of what is left; another process finds it when it looks", "error", err)
		}
	}
	return nil
}

// passOn wakes each queue that has live jobs, elsewhere. The alarms that this process kept end with it, so
// they are forgotten: whoever comes sets its own.
func (p *process) passOn(ctx context.Context) error {
	if err := p.store.Disarm(ctx, p.db); err != nil {
		return err
	}
	fire := func(name string, _ time.Duration) error {
		return p.notify.Fire(ctx, queue.Wake{Version: 1, Queue: name, Reason: queue.ReasonHandoff})
	}
	due, err := look(ctx, p.db, p.store, fire)
	for _, name := range due {
		err = errors.Join(err, fire(name, 0))
	}
	return err
}
