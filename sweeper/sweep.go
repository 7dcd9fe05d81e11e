package sweeper

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/dozequeue/doze/queue"
	"github.com/dozequeue/doze/schedule"
)

// Config of a [Sweeper]. The zero value is ready.
type Config struct {
	// Schema of Doze's tables. Default [queue.DefaultSchema].
	Schema string
	// Trigger is fired for each queue with due work. Default: none; then only [Swept.Due] tells.
	Trigger queue.Trigger
	// Alarm is set for queues whose next due time has none. Default: none.
	Alarm queue.Alarm
	// Keep is how long done and cancelled jobs are kept, in whole days: a day goes once all
	// of it is older. Default 24 h, at most [queue.MaxKeep]; negative: for no time at all.
	Keep time.Duration
	// KeepFailed is how long failed jobs are kept. Default 30 days.
	KeepFailed time.Duration
	// Batch is the most rows that one statement changes. Default 1000.
	Batch int
	// Budget is how long reaping and pruning may take, each. What is left goes on in the next
	// sweep. Default 10 s.
	Budget time.Duration
	// Bell is how long a ring waits for its drain to come. Default 15 s.
	Bell time.Duration
	// Logger gets a line for each sweep and each fault. Default: silent.
	Logger *slog.Logger
}

// WithDefaults returns a copy in which zero fields have their defaults.
func (c Config) WithDefaults() Config {
	for field, value := range map[*time.Duration]time.Duration{
		&c.Keep: 24 * time.Hour, &c.KeepFailed: 30 * 24 * time.Hour, &c.Budget: 10 * time.Second, &c.Bell: 15 * time.Second,
	} {
		if *field == 0 {
			*field = value
		}
	}
	if c.Batch == 0 {
		c.Batch = 1000
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Validate returns an error that names the first field out of its range.
func (c Config) Validate() error {
	switch {
	case c.Keep > queue.MaxKeep:
		return fmt.Errorf("sweeper: Keep %v: want at most %v; copy what you need for longer", c.Keep, queue.MaxKeep)
	case c.KeepFailed < 0:
		return fmt.Errorf("sweeper: KeepFailed %v: want a positive duration, or 0 for 30 days", c.KeepFailed)
	case c.Batch < 0 || c.Batch > 100_000:
		return fmt.Errorf("sweeper: Batch %d: want 1 to 100000, or 0 for 1000", c.Batch)
	case c.Budget < 0 || c.Bell < 0:
		return fmt.Errorf("sweeper: Budget %v, Bell %v: want positive durations, or 0 for the defaults", c.Budget, c.Bell)
	}
	return nil
}

// Swept says what a sweep did.
type Swept struct {
	// Reaped jobs were taken back from drains whose lease had expired.
	Reaped int `json:"reaped"`
	// Ticked jobs were made by schedules that were due.
	Ticked int `json:"ticked"`
	// Due are the queues that had due work; Fired those of them whose trigger was fired. The others had
	// a drain on its way.
	Due   []string `json:"due"`
	Fired []string `json:"fired"`
	// Armed are the queues whose alarm was set.
	Armed []string `json:"armed"`
	// PrunedDays of done and cancelled jobs, PrunedFailed jobs and PrunedKeys were forgotten.
	PrunedDays   int `json:"pruned_days"`
	PrunedFailed int `json:"pruned_failed"`
	PrunedKeys   int `json:"pruned_keys"`
}

// Sweeper makes passes over all queues. It holds no state between them, so any number
// may run at once.
type Sweeper struct {
	db    queue.DB
	store *queue.Store
	cfg   Config
}

// New returns a Sweeper, or an error for a setting out of its range.
func New(db queue.DB, cfg Config) (*Sweeper, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	store, err := queue.NewStore(cfg.Schema)
	if err != nil {
		return nil, err
	}
	return &Sweeper{db: queue.Unnamed(db), store: store, cfg: cfg.WithDefaults()}, nil
}

// Sweep makes one pass. A trigger that cannot be fired does not stop it; an error of the
// database does, and what was done until then stays done.
func (s *Sweeper) Sweep(ctx context.Context) (Swept, error) {
	swept := Swept{Due: []string{}, Fired: []string{}, Armed: []string{}}
	err := s.sweep(ctx, &swept)
	level := s.cfg.Logger.InfoContext
	if err != nil {
		level = s.cfg.Logger.ErrorContext
	}
	level(ctx, "swept", "reaped", swept.Reaped, "due", len(swept.Due), "fired", len(swept.Fired), "armed", len(swept.Armed),
		"pruned_days", swept.PrunedDays, "pruned_failed", swept.PrunedFailed, "pruned_keys", swept.PrunedKeys, "error", err)
	return swept, err
}

func (s *Sweeper) sweep(ctx context.Context, swept *Swept) error {
	err := s.repeat(ctx, &swept.Reaped, func() (int, error) {
		ids, err := s.store.Reap(ctx, s.db, s.cfg.Batch)
		return len(ids), err
	})
	if err != nil {
		return err
	}
	if err := s.tick(ctx, swept); err != nil {
		return err
	}
	if err := s.wake(ctx, swept); err != nil {
		return err
	}
	if err := s.arm(ctx, swept); err != nil {
		return err
	}
	return s.prune(ctx, swept)
}

// tick makes the jobs of schedules that are due.
func (s *Sweeper) tick(ctx context.Context, swept *Swept) error {
	due, now, err := s.store.DueSchedules(ctx, s.db, "")
	if err != nil || len(due) == 0 {
		return err
	}
	made, err := schedule.Tick(ctx, s.db, s.store, due, now)
	if err != nil {
		s.cfg.Logger.ErrorContext(ctx, "a schedule could not be evaluated", "error", err)
	}
	swept.Ticked += len(made)
	return nil
}

// wake rings each queue that has due work, and fires for those rings.
func (s *Sweeper) wake(ctx context.Context, swept *Swept) error {
	due, err := s.store.Due(ctx, s.db)
	if err != nil {
		return err
	}
	swept.Due = append(swept.Due, due...)
	for _, name := range due {
		// Nobody may have rung for what is due, so it may lie below the floor.
		if s.cfg.Trigger == nil {
			if err := s.store.Lower(ctx, s.db, name, time.Time{}); err != nil {
				return err
			}
			continue
		}
		rang, err := s.store.Ring(ctx, s.db, name, time.Time{}, s.cfg.Bell)
		if err != nil {
			return err
		}
		if !rang {
			continue
		}
		if err := s.cfg.Trigger.Fire(ctx, queue.Wake{Version: 1, Queue: name, Reason: queue.ReasonSweep}); err != nil {
			s.cfg.Logger.WarnContext(ctx, "trigger not fired; the next sweep tries again", "queue", name, "error", err)
			if err := s.store.Unring(ctx, s.db, name); err != nil {
				return err
			}
			continue
		}
		swept.Fired = append(swept.Fired, name)
	}
	return nil
}

// arm sets the alarm of each queue that has a next due time and no alarm for it.
func (s *Sweeper) arm(ctx context.Context, swept *Swept) error {
	if s.cfg.Alarm == nil {
		return nil
	}
	waiting, err := s.store.Waiting(ctx, s.db)
	if err != nil {
		return err
	}
	for _, name := range waiting {
		if slices.Contains(swept.Fired, name) { // its drain sets it as it leaves
			continue
		}
		// Without a row it has no place for an alarm.
		err := s.store.EnsureQueue(ctx, s.db, name)
		set := false
		if err == nil {
			set, err = s.store.SetNextAlarm(ctx, s.db, s.cfg.Alarm, name)
		}
		if err != nil {
			s.cfg.Logger.WarnContext(ctx, "alarm not set; the next sweep tries again", "queue", name, "error", err)
		}
		if set {
			swept.Armed = append(swept.Armed, name)
		}
	}
	return ctx.Err()
}

func (s *Sweeper) prune(ctx context.Context, swept *Swept) (err error) {
	if swept.PrunedDays, err = s.store.PruneHistory(ctx, s.db, max(s.cfg.Keep, 0)); err != nil {
		return err
	}
	if err = s.repeat(ctx, &swept.PrunedFailed, func() (int, error) {
		return s.store.PruneFailed(ctx, s.db, s.cfg.KeepFailed, s.cfg.Batch)
	}); err != nil {
		return err
	}
	if err = s.repeat(ctx, &swept.PrunedKeys, func() (int, error) { return s.store.PruneKeys(ctx, s.db, s.cfg.Batch) }); err != nil {
		return err
	}
	const remembered = 30 * 24 * time.Hour // longer than any tick is evaluated late
	return s.repeat(ctx, new(int), func() (int, error) { return s.store.PruneTicks(ctx, s.db, remembered, s.cfg.Batch) })
}

// repeat runs a statement that changes at most Batch rows until it changes fewer, or the budget is
// used up.
func (s *Sweeper) repeat(ctx context.Context, total *int, change func() (int, error)) error {
	for until := time.Now().Add(s.cfg.Budget); ; {
		n, err := change()
		if err != nil {
			return err
		}
		*total += n
		if n < s.cfg.Batch || time.Now().After(until) {
			return ctx.Err()
		}
	}
}
