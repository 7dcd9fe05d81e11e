package handler_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dozequeue/doze/handler"
	"github.com/dozequeue/doze/internal/dbtest"
	"github.com/dozequeue/doze/queue"
)

type mail struct {
	To string `json:"to"`
	N  int64  `json:"n"`
}

func (mail) Kind() string { return "mail" }

func TestDrain_RunsDueJobsInTheirOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	late := w.add("mail", payload(`{"to":"later"}`), delayed(time.Hour))
	second := w.add("mail", payload(`{"to":"second","n":9007199254740993}`))
	third := w.add("mail", payload(`{"to":"third"}`))
	first := w.add("mail", payload(`{"to":"first"}`), priority(-1))
	var order []string
	var seen handler.Job[mail]
	mux := handler.NewMux()
	handler.Register(mux, func(_ context.Context, job *handler.Job[mail]) error {
		order = append(order, job.Args.To)
		if job.Args.N != 0 {
			seen = *job
		}
		return nil
	})
	report := w.drain(w.drainer(mux, handler.Config{Concurrency: 1}))
	if got := strings.Join(order, " "); got != "first second third" {
		t.Errorf("ran %s", got)
	}
	if report.Done != 3 || report.Claimed != 3 || report.NextMS <= 0 || report.NoSlot || report.More {
		t.Errorf("report %+v", report)
	}
	for _, id := range []uuid.UUID{first, second, third} {
		w.wants(id, queue.Done)
	}
	w.wants(late, queue.Queued)
	if seen.ID != second || seen.Attempts != 1 || seen.State != queue.Running || seen.Args.N != 9007199254740993 {
		t.Errorf("the handler saw %+v", seen)
	}
	if n := w.int(`SELECT count(*) FROM doze.slots WHERE state <> 'free'`); n != 0 {
		t.Errorf("%d slots are still held", n)
	}
}

func TestDrain_EachJobOfOneBatchEndsInItsOwnWay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var nilError *myError
	long := strings.Repeat("é", 1<<19)
	mux := kinds(map[string]handler.RawFunc{
		"ok":         nothing,
		"fails":      fails,
		"last":       fails,
		"discards":   func(context.Context, *queue.Job) error { return handler.Discard(errors.New("never")) },
		"snoozes":    func(context.Context, *queue.Job) error { return fmt.Errorf("wrapped: %w", handler.Snooze(time.Hour)) },
		"panics":     func(context.Context, *queue.Job) error { panic("at the disco") },
		"panics-nil": func(context.Context, *queue.Job) error { panic(nil) }, //nolint:govet // on purpose
		"exits":      func(context.Context, *queue.Job) error { runtime.Goexit(); return nil },
		"nul":        func(context.Context, *queue.Job) error { return errors.New("a\x00b") },
		"bytes":      func(context.Context, *queue.Job) error { return errors.New("a\xff\xfeb") },
		"long":       func(context.Context, *queue.Job) error { return errors.New(long) },
		"panics-bad": func(context.Context, *queue.Job) error { panic("\x00\xff" + long) },
		"nil-error":  func(context.Context, *queue.Job) error { return nilError },
		"cancelled":  func(context.Context, *queue.Job) error { return context.Canceled },
	})
	handler.Register(mux, func(context.Context, *handler.Job[mail]) error { t.Error("called without args"); return nil })
	for i := range 3 {
		mux.Handle(fmt.Sprintf("neighbour%d", i), nothing)
	}

	want := map[string]struct {
		state    queue.State
		failures int
		text     string // part of the last error
	}{
		"ok":         {queue.Done, 0, ""},
		"fails":      {queue.Queued, 1, "no luck"},
		"last":       {queue.Failed, 1, "no luck"},
		"discards":   {queue.Failed, 1, "never"},
		"snoozes":    {queue.Queued, 0, ""},
		"panics":     {queue.Queued, 1, "panic: at the disco"},
		"panics-nil": {queue.Queued, 1, "nil"},
		"exits":      {queue.Queued, 1, "Goexit"},
		"nul":        {queue.Queued, 1, `a\0b`},
		"bytes":      {queue.Queued, 1, "a\uFFFDb"},
		"long":       {queue.Queued, 1, "éé… (cut)"},
		"panics-bad": {queue.Queued, 1, `panic: \0` + "\uFFFD" + "éé"},
		"nil-error":  {queue.Queued, 1, "panicked when it was read"},
		"cancelled":  {queue.Queued, 1, "context canceled"},
		"mail":       {queue.Queued, 1, "n at offset 13 does not fit int"},
		"nobody":     {queue.Queued, 0, `no handler for kind "nobody"`},
		"neighbour0": {queue.Done, 0, ""},
		"neighbour1": {queue.Done, 0, ""},
		"neighbour2": {queue.Done, 0, ""},
	}
	jobs := map[string]uuid.UUID{}
	for kind := range want {
		changes := []change{payload(`{"n":"secret"}`)}
		if kind == "last" {
			changes = append(changes, maxAttempts(1))
		}
		jobs[kind] = w.add(kind, changes...)
	}
	var mu sync.Mutex
	hooked := map[string]handler.Failure{}
	report := w.drain(w.drainer(mux, handler.Config{Concurrency: 20, Backoff: later, OnFailure: func(_ context.Context, f handler.Failure) {
		mu.Lock()
		hooked[f.Job.Kind] = f
		mu.Unlock()
		if f.Job.Kind == "fails" {
			panic("the hook has a bug")
		}
	}}))
	for kind, id := range jobs {
		got, want := w.wants(id, want[kind].state), want[kind]
		if got.Failures != want.failures || got.Attempts != 1 || got.Reaps != 0 {
			t.Errorf("%s: %d failures, %d attempts, %d reaps", kind, got.Failures, got.Attempts, got.Reaps)
		}
		if !strings.Contains(got.LastError, want.text) || want.text == "" && got.LastError != "" || !utf8.ValidString(got.LastError) {
			t.Errorf("%s: last error %.200q, want %q", kind, got.LastError, want.text)
		}
		if len(got.LastError) > queue.MaxError || strings.Contains(got.LastError, "secret") {
			t.Errorf("%s: last error has %d bytes: %.100q", kind, len(got.LastError), got.LastError)
		}
		if hook, called := hooked[kind]; called != (want.failures > 0) || called && (hook.Err == nil || hook.Final != (want.state == queue.Failed)) {
			t.Errorf("%s: the failure hook got %v: %+v", kind, called, hook)
		}
	}
	var panicked *handler.PanicError
	if !errors.As(hooked["panics"].Err, &panicked) || panicked.Value != "at the disco" || !strings.Contains(panicked.Stack, "drain_test.go") {
		t.Errorf("the hook got %+v", hooked["panics"].Err)
	}
	if report.Done != 4 || report.Failed != 2 || report.Snoozed != 1 || report.Unknown != 1 || report.Retried != 11 {
		t.Errorf("report %+v", report)
	}
}

type myError struct{ text string }

func (e *myError) Error() string { return e.text } // a nil one panics

// A kind that this build does not know is another build's.
func TestDrain_GivesAnUnknownKindBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.add("of-tomorrow", maxAttempts(1))
	d := w.drainer(handler.NewMux(), handler.Config{})
	waits := make([]time.Duration, 3)
	for i := range waits {
		report := w.drain(d)
		if report.Unknown != 1 || report.NextMS <= 0 {
			t.Fatalf("report %+v", report)
		}
		waits[i] = time.Duration(report.NextMS) * time.Millisecond
		job := w.wants(id, queue.Queued)
		if job.Failures != 0 || job.Reaps != 0 || job.Attempts != i+1 {
			t.Errorf("failures %d, reaps %d, attempts %d", job.Failures, job.Reaps, job.Attempts)
		}
		w.exec(`UPDATE doze.jobs SET run_at = now()`)
	}
	if waits[1] < waits[0]+10*time.Second || waits[2] < waits[1]+20*time.Second {
		t.Errorf("it comes back after %v: not ever more rarely", waits)
	}
	w.drain(w.drainer(kinds(map[string]handler.RawFunc{"of-tomorrow": nothing}), handler.Config{}))
	w.wants(id, queue.Done)
}

func TestMux_TheLongestPatternWins(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var mu sync.Mutex
	got := map[string]string{}
	note := func(pattern string) handler.RawFunc {
		return func(_ context.Context, job *queue.Job) error {
			mu.Lock()
			defer mu.Unlock()
			got[job.Kind] = pattern
			return nil
		}
	}
	mux := handler.NewMux()
	for _, pattern := range []string{"*", "github.*", "github.push", "github.pull*"} {
		mux.Handle(pattern, note(pattern))
	}
	want := map[string]string{
		"github.push": "github.push", "github.pushed": "github.*", "github.pull_request": "github.pull*",
		"github.x": "github.*", "github": "*", "other": "*",
	}
	for kind := range want {
		w.add(kind)
	}
	w.drain(w.drainer(mux, handler.Config{}))
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if patterns := mux.Kinds(); len(patterns) != 4 || !slices.Contains(patterns, "github.*") {
		t.Errorf("Kinds %v", patterns)
	}
}

func TestMux_PanicsForAPatternThatIsNone(t *testing.T) {
	t.Parallel()
	mux := handler.NewMux()
	mux.Handle("taken", nothing)
	handler.Register(mux, func(context.Context, *handler.Job[mail]) error { return nil })
	for name, register := range map[string]func(){
		"empty":      func() { mux.Handle("", nothing) },
		"a space":    func() { mux.Handle("a b", nothing) },
		"star first": func() { mux.Handle("*a", nothing) },
		"twice":      func() { mux.Handle("taken", nothing) },
		"typed":      func() { handler.Register(mux, func(context.Context, *handler.Job[mail]) error { return nil }) },
		"nil":        func() { mux.Handle("fresh", nil) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			register()
		}()
	}
}

func TestMux_TheFirstMiddlewareIsOutermostAndSeesPanicsAsErrors(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var order []string
	around := func(name string) handler.Middleware {
		return func(next handler.RawFunc) handler.RawFunc {
			return func(ctx context.Context, job *queue.Job) error {
				order = append(order, name+">")
				err := next(ctx, job)
				order = append(order, "<"+name)
				return err
			}
		}
	}
	broken := func(next handler.RawFunc) handler.RawFunc {
		return func(ctx context.Context, job *queue.Job) error {
			if job.Kind == "b" {
				panic("in the middleware")
			}
			return next(ctx, job)
		}
	}
	mux := kinds(map[string]handler.RawFunc{"a": nothing, "b": nothing})
	mux.Use(around("one"), around("two"))
	mux.Use(broken)
	a, b := w.add("a", priority(-1)), w.add("b")
	w.drain(w.drainer(mux, handler.Config{Concurrency: 1, Backoff: later}))
	if got := strings.Join(order, " "); got != "one> two> <two <one one> two>" {
		t.Errorf("order %s", got)
	}
	w.wants(a, queue.Done)
	if job := w.wants(b, queue.Queued); !strings.Contains(job.LastError, "in the middleware") {
		t.Errorf("last error %q", job.LastError)
	}
}

func TestTimeout_OfAKindOrInheritedOrNone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var mu sync.Mutex
	cause := map[string]error{}
	end := func(ctx context.Context, job *queue.Job) error {
		<-ctx.Done()
		mu.Lock()
		defer mu.Unlock()
		cause[job.Kind] = context.Cause(ctx)
		return ctx.Err()
	}
	mux := handler.NewMux()
	mux.Handle("own", end, handler.Timeout(10*time.Millisecond))
	mux.Handle("inherits", end, handler.Timeout(0))
	mux.Handle("late-success", func(ctx context.Context, _ *queue.Job) error { <-ctx.Done(); return nil }, handler.Timeout(time.Millisecond))
	released := make(chan struct{})
	mux.Handle("none", func(ctx context.Context, _ *queue.Job) error {
		select {
		case <-ctx.Done():
			return errors.New("limited: " + context.Cause(ctx).Error())
		case <-released:
			return nil
		}
	}, handler.Timeout(-1))
	ids := map[string]uuid.UUID{}
	for _, kind := range mux.Kinds() {
		ids[kind] = w.add(kind)
	}
	wait := w.inBackground(w.ctx, w.drainer(mux, handler.Config{Timeout: 50 * time.Millisecond, Backoff: later}))
	// The one without a limit goes on after those with one have been recorded.
	w.until(`SELECT count(*) = 2 FROM doze.jobs WHERE failures = 1`)
	close(released)
	if report, err := wait(); err != nil || report.Done != 2 || report.Retried != 2 {
		t.Errorf("report %+v, %v", report, err)
	}
	for _, kind := range []string{"own", "inherits"} {
		if !errors.Is(cause[kind], handler.ErrTimeout) {
			t.Errorf("%s: cause %v", kind, cause[kind])
		}
		if job := w.wants(ids[kind], queue.Queued); !strings.Contains(job.LastError, "time limit is over") {
			t.Errorf("%s: last error %q", kind, job.LastError)
		}
	}
	w.wants(ids["none"], queue.Done)
	w.wants(ids["late-success"], queue.Done)
}

func TestRetry_OfAKindOrTheDrainers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	mux := handler.NewMux()
	mux.Handle("own", fails, handler.Retry(func(failures int) time.Duration { return time.Duration(failures) * 1000 * time.Hour }))
	mux.Handle("inherits", fails)
	mux.Handle("negative", fails, handler.Retry(func(int) time.Duration { return -time.Hour }))
	mux.Handle("panics", fails, handler.Retry(func(int) time.Duration { panic("no wait") }))
	for _, kind := range mux.Kinds() {
		w.add(kind, maxAttempts(2))
	}
	d := w.drainer(mux, handler.Config{Backoff: func(int) time.Duration { return 10 * time.Hour }})
	report := w.drain(d)
	if report.Retried != 4 || report.Failed != 1 { // the negative one came back at once, and failed for good
		t.Errorf("report %+v", report)
	}
	in := func(kind string) string {
		return w.text(`SELECT round(extract(epoch FROM run_at - now()) / 3600)::text FROM doze.jobs WHERE kind = $1`, kind)
	}
	if own, inherits, panics := in("own"), in("inherits"), in("panics"); own != "1000" || inherits != "10" || panics != "0" {
		t.Errorf("waits %s h, %s h, %s h", own, inherits, panics)
	}
	w.exec(`UPDATE doze.jobs SET run_at = now() WHERE kind = 'own'`)
	if report := w.drain(d); report.Failed != 1 {
		t.Errorf("the second attempt: %+v", report)
	}
}

func TestSnooze_CountsNoFailure(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var calls atomic.Int32
	id := w.add("k", maxAttempts(1))
	d := w.drainer(kinds(map[string]handler.RawFunc{"k": func(context.Context, *queue.Job) error {
		if calls.Add(1) < 4 {
			return handler.Snooze(-time.Hour)
		}
		return nil
	}}), handler.Config{})
	for range 3 {
		// Not at once: a job that always snoozes would keep its drain in a loop.
		if report := w.drain(d); report.Claimed != 1 || report.Snoozed != 1 || report.NextMS < 100 {
			t.Errorf("report %+v, want one attempt, and the next later", report)
		}
		w.exec(`UPDATE doze.jobs SET run_at = now()`)
	}
	if report := w.drain(d); report.Done != 1 {
		t.Errorf("report %+v", report)
	}
	if job := w.wants(id, queue.Done); job.Failures != 0 || job.Attempts != 4 {
		t.Errorf("failures %d, attempts %d", job.Failures, job.Attempts)
	}
	if handler.Discard(nil) != nil {
		t.Error("Discard(nil) is an error")
	}
}

func TestDrain_NeverRunsMoreHandlersThanConcurrency(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, c := range []handler.Config{
		{Concurrency: 1}, {Concurrency: 1, BatchSize: 1}, {Concurrency: 3, BatchSize: 1}, {Concurrency: 4, BatchSize: 7}, {Concurrency: 5},
	} {
		w.addMany(60, "k")
		var running, most atomic.Int32
		meet := make(chan struct{})
		d := w.drainer(kinds(map[string]handler.RawFunc{"k": func(ctx context.Context, _ *queue.Job) error {
			defer running.Add(-1)
			n := running.Add(1)
			for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
			}
			if int(n) == c.Concurrency { // all capacity is in use, even if a batch is smaller
				select {
				case <-meet:
				default:
					close(meet)
				}
			}
			select {
			case <-meet:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}}), c)
		report := w.drain(d)
		if report.Done != 60 || int(most.Load()) != c.Concurrency {
			t.Errorf("%+v: %d at once; report %+v", c, most.Load(), report)
		}
	}
}

// With one connection for the drain and its handlers, neither may keep it from the other.
func TestDrain_HoldsNoConnectionWhileHandlersRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one := dbtest.Pool(t, dbtest.MaxConns(1))
	w.addMany(50, "k")
	report := w.drain(w.drainerOn(one, kinds(map[string]handler.RawFunc{"k": func(ctx context.Context, _ *queue.Job) error {
		_, err := one.Exec(ctx, "SELECT 1")
		return err
	}}), handler.Config{Concurrency: 8}))
	if report.Done != 50 {
		t.Errorf("report %+v", report)
	}
}

func TestDrain_LeavesAPausedQueue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.addMany(30, "k")
	var calls atomic.Int32
	d := w.drainer(kinds(map[string]handler.RawFunc{"k": func(ctx context.Context, _ *queue.Job) error {
		if calls.Add(1) == 3 {
			return w.store.Pause(ctx, w.pool, "q")
		}
		return nil
	}}), handler.Config{Concurrency: 1, BatchSize: 1})
	report := w.drain(d)
	if report.Claimed < 3 || report.Claimed > 4 || report.Done != report.Claimed || report.More {
		t.Errorf("report %+v", report)
	}
	if report := w.drain(d); report.Claimed != 0 || report.NoSlot {
		t.Errorf("while paused: %+v", report)
	}
	w.must(w.store.Resume(w.ctx, w.pool, "q"))
	w.drain(d)
	if n := w.done(); n != 30 {
		t.Errorf("%d are done", n)
	}
}

func TestDrain_OfAnUnknownOrFullQueueDoesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.drainer(handler.NewMux(), handler.Config{})
	if report, err := d.Drain(w.ctx, queue.Wake{Queue: "nowhere"}); err != nil || !report.NoSlot {
		t.Errorf("unknown: %+v, %v", report, err)
	}
	for _, name := range []string{"", "a b", strings.Repeat("x", 65)} {
		if _, err := d.Drain(w.ctx, queue.Wake{Queue: name}); err == nil {
			t.Errorf("queue %q: no error", name)
		}
	}
	w.exec(`UPDATE doze.slots SET state = 'busy', token = gen_random_uuid(), locked_until = now() + interval '1 hour'`)
	w.add("k")
	if report := w.drain(d); !report.NoSlot || report.Claimed != 0 {
		t.Errorf("full: %+v", report)
	}
}

// A job that must run alone cannot be claimed beside others, so now and then the drain runs dry for it.
func TestDrain_ALoneJobIsNotKeptWaitingByABacklog(t *testing.T) {
	t.Parallel()
	for name, takes := range map[string]time.Duration{"of short jobs": 2 * time.Millisecond, "of long jobs": 200 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.configure(queue.Settings{Slots: 1})
			w.addMany(20, "k")
			lone := w.add("lone")
			var begun sync.Once
			var ran, beside atomic.Bool
			var running atomic.Int32
			count := func(job *queue.Job) func() {
				if running.Add(1) > 1 && job.ID == lone {
					beside.Store(true)
				}
				return func() { running.Add(-1) }
			}
			d := w.drainer(kinds(map[string]handler.RawFunc{
				"k": func(ctx context.Context, job *queue.Job) error {
					defer count(job)()
					begun.Do(func() { // after the start, which would take it first
						w.exec(`UPDATE doze.jobs SET reaps = 1 WHERE id = $1::text::uuid`, lone.String())
					})
					work, cancel := context.WithTimeout(ctx, takes) // so that others are in hand when it ends
					defer cancel()
					<-work.Done()
					if !ran.Load() { // a backlog that does not end before the lone job has run
						w.add("k")
					}
					return nil
				},
				"lone": func(_ context.Context, job *queue.Job) error {
					defer count(job)()
					ran.Store(true)
					return nil
				},
			}), handler.Config{Concurrency: 3, BatchSize: 2})
			w.drain(d)
			w.wants(lone, queue.Done)
			if beside.Load() {
				t.Error("it had company")
			}
		})
	}
}

// Jobs that must run alone take turns with the others.
func TestDrain_LoneJobsDoNotKeepOthersWaiting(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.configure(queue.Settings{Slots: 1})
	var order []string
	run := func(_ context.Context, job *queue.Job) error { order = append(order, job.Kind); return nil }
	w.addMany(6, "lone", priority(-1))
	w.exec(`UPDATE doze.jobs SET reaps = 1`)
	w.addMany(2, "k")
	if report := w.drain(w.drainer(kinds(map[string]handler.RawFunc{"k": run, "lone": run}), handler.Config{Concurrency: 1})); report.Done != 8 {
		t.Errorf("report %+v", report)
	}
	if got := strings.Join(order, " "); got != "lone k lone k lone lone lone lone" {
		t.Errorf("they ran as %s; want others in turn", got)
	}
}

// A row lock hides a due job from claims. Its drain must neither spin nor keep its slot.
func TestDrain_LeavesAJobThatSomebodyHasLocked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	locked, free := w.add("k"), w.add("k")
	tx, err := w.pool.Begin(w.ctx)
	w.must(err)
	defer tx.Rollback(w.ctx)
	_, err = tx.Exec(w.ctx, queue.Qualify(`SELECT FROM doze.jobs WHERE id = $1::text::uuid FOR UPDATE`, w.name), locked.String())
	w.must(err)
	alarm := &recorder{}
	d := w.drainer(kinds(map[string]handler.RawFunc{"k": nothing}), handler.Config{Alarm: alarm})
	report := w.drain(d)
	if report.Done != 1 || !report.More || report.Claims > 6 {
		t.Errorf("report %+v", report)
	}
	w.wants(free, queue.Done)
	if set := alarm.set(); len(set) != 1 || set[0] > time.Minute {
		t.Errorf("alarms %v, want one soon", set)
	}
	if n := w.int(`SELECT count(*) FROM doze.slots WHERE state <> 'free'`); n != 0 {
		t.Errorf("%d slots are kept", n)
	}
	w.must(tx.Rollback(w.ctx))
	w.drain(d)
	w.wants(locked, queue.Done)
}

func TestDrain_ErrorsSayWhatIsMissing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.drainer(kinds(map[string]handler.RawFunc{"k": nothing}), handler.Config{})
	id := w.add("k")
	w.exec(`UPDATE doze.migrations SET version = version - 1`)
	if _, err := d.Drain(w.ctx, wakeQ); !errors.Is(err, queue.ErrMisconfigured) {
		t.Errorf("old tables: %v", err)
	}
	if job := w.wants(id, queue.Queued); job.Attempts != 0 {
		t.Errorf("it used up %d attempts", job.Attempts)
	}
	lost, err := handler.New(w.pool, handler.NewMux(), handler.Config{Schema: "no_such_schema"})
	w.must(err)
	if _, err := lost.Drain(w.ctx, wakeQ); queue.Classify(err) != queue.Misconfigured {
		t.Errorf("no tables: %v", err)
	}
	for _, c := range []handler.Config{
		{Concurrency: -1}, {Concurrency: 10_001}, {BatchSize: -1}, {BatchSize: 10_001}, {MaxHops: -1}, {Lease: time.Millisecond},
		{Slack: -1}, {Margin: -1}, {Timeout: -1}, {Grace: -1}, {Bell: -1}, {Reconnect: -1}, {Schema: "a b"},
	} {
		if _, err := handler.New(w.pool, handler.NewMux(), c); err == nil {
			t.Errorf("%+v: no error", c)
		}
	}
}

// What the database refuses for one outcome must not keep the others of its batch.
func TestDrain_RecordsOutcomesSinglyIfTheBatchIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec(`CREATE FUNCTION doze.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF NEW.kind = 'refused' THEN RAISE EXCEPTION 'no' USING ERRCODE = '23514'; END IF; RETURN NEW; END $$`)
	w.exec(`CREATE TRIGGER refuse BEFORE INSERT ON doze.history FOR EACH ROW EXECUTE FUNCTION doze.refuse()`)
	w.addMany(4, "k")
	bad := w.add("refused")
	w.addMany(4, "k")
	report := w.drain(w.drainer(kinds(map[string]handler.RawFunc{"k": nothing, "refused": nothing}), handler.Config{}))
	if report.Done != 8 || report.Lost != 1 || w.done() != 8 {
		t.Errorf("report %+v", report)
	}
	w.wants(bad, queue.Running) // until its lease ends
}

func TestExecModes_AWholeDrain(t *testing.T) {
	t.Parallel()
	dbtest.ExecModes(t, func(t *testing.T, mode pgx.QueryExecMode) {
		w := newWorld(t)
		wholeDrain(w, dbtest.Pool(t, dbtest.Mode(mode)))
	})
}

func TestPgBouncer_AWholeDrain(t *testing.T) {
	t.Parallel()
	dbtest.ExecModes(t, func(t *testing.T, mode pgx.QueryExecMode) {
		w := newWorld(t)
		through := dbtest.PgBouncer(t, dbtest.URL(t))
		stop := otherClients(w, through)
		wholeDrain(w, dbtest.Pool(t, dbtest.At(through), dbtest.Mode(mode)))
		stop()
	})
}

// otherClients keep the pooler's server connections changing hands.
func otherClients(w *world, through string) (stop func()) {
	ctx, cancel := context.WithCancel(w.ctx)
	pool := dbtest.Pool(w.t, dbtest.At(through), dbtest.Mode(pgx.QueryExecModeExec))
	var clients sync.WaitGroup
	for range 3 {
		clients.Go(func() {
			for ctx.Err() == nil {
				_, _ = pool.Exec(ctx, "SELECT pg_sleep(0.001), $1::integer", 1)
			}
		})
	}
	return func() { cancel(); clients.Wait() }
}

// wholeDrain goes through every statement that a drain makes.
func wholeDrain(w *world, pool *pgxpool.Pool) {
	w.t.Helper()
	rec := &recorder{}
	w.addMany(40, "ok")
	w.addMany(3, "fails")
	w.addMany(2, "nobody")
	slow := w.add("slow", priority(-10))
	w.add("ok", delayed(time.Hour))
	started, release := make(chan struct{}), make(chan struct{})
	mux := kinds(map[string]handler.RawFunc{"ok": nothing, "fails": fails, "slow": func(ctx context.Context, _ *queue.Job) error {
		close(started)
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}})
	d := w.drainerOn(pool, mux, handler.Config{Lease: 3 * time.Second, Trigger: rec, Alarm: rec, Backoff: later, Concurrency: 4})
	wait := w.inBackground(w.ctx, d)
	receive(w, started)
	w.until(`SELECT count(*) = 40 FROM doze.history WHERE state = 'done'`)
	w.until(`SELECT locked_until > (SELECT min(finished_at) FROM doze.history) + interval '3.2 seconds' FROM doze.jobs WHERE id = $1::text::uuid`, slow.String()) // renewed
	close(release)
	report, err := wait()
	w.must(err)
	w.addsUp(report)
	if report.Done != 41 || report.Retried != 3 || report.Unknown != 2 || report.NextMS <= 0 || len(rec.set()) != 1 {
		w.t.Errorf("report %+v, alarms %v", report, rec.set())
	}
}

// A job that becomes due behind what a busy drain has claimed is not left until the drain ends.
func TestDrain_LooksBehindItsCursorNowAndThen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.configure(queue.Settings{Slots: 1})
	w.addMany(10, "k")
	var ran atomic.Bool
	var once sync.Once
	d := w.drainer(kinds(map[string]handler.RawFunc{
		"k": func(context.Context, *queue.Job) error {
			once.Do(func() { w.add("behind", func(j *queue.NewJob) { j.RunAt = time.Now().Add(-time.Hour) }) })
			if !ran.Load() { // so the drain does not end
				w.add("k")
				w.add("k")
			}
			return nil
		},
		"behind": func(context.Context, *queue.Job) error { ran.Store(true); return nil },
	}), handler.Config{Concurrency: 2, BatchSize: 4})
	w.drain(d)
	if !ran.Load() {
		t.Error("the drain ended without it")
	}
}
