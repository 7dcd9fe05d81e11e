package handler_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dozequeue/doze/handler"
	"github.com/dozequeue/doze/internal/dbtest"
	"github.com/dozequeue/doze/queue"
)

// near is a deadline: claims stop after half a second, handlers end after one, and there is
// another one for what is left.
func near(w *world) (context.Context, handler.Config) {
	ctx, cancel := context.WithTimeout(w.ctx, 2*time.Second)
	w.t.Cleanup(cancel)
	return ctx, handler.Config{Margin: 1500 * time.Millisecond, Grace: 100 * time.Millisecond, Concurrency: 1, Backoff: later}
}

// ended drains until the deadline is near, and checks that it left in time.
func (w *world) ended(ctx context.Context, d *handler.Drainer) handler.Drained {
	w.t.Helper()
	report, err := d.Drain(ctx, wakeQ)
	w.must(err)
	if ctx.Err() != nil {
		w.t.Error("it returned after its deadline")
	}
	w.addsUp(report)
	if n := w.int(`SELECT count(*) FROM doze.slots WHERE token IS NOT NULL`) + w.int(`SELECT count(*) FROM doze.jobs WHERE token IS NOT NULL`); n != 0 {
		w.t.Errorf("%d slots and jobs are still held", n)
	}
	return report
}

func TestDeadline_WhatWasNotBegunIsGivenBackUntouched(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.configure(queue.Settings{Slots: 1})
	w.addMany(60, "quick", priority(-1)) // so that the drain claims ahead
	ids := w.addMany(40, "k")
	before := w.text(`SELECT run_at::text FROM doze.jobs WHERE kind = 'k' ORDER BY id`)
	h := newWaiter()
	ctx, cfg := near(w)
	fire := &recorder{}
	cfg.Trigger = fire
	report := w.ended(ctx, w.drainer(kinds(map[string]handler.RawFunc{"quick": nothing, "k": h.run}), cfg))
	if report.Done != 60 || report.Released == 0 || report.Retried+report.Interrupted != 1 || !report.More || !report.HandedOver {
		t.Errorf("report %+v", report)
	}
	if n := w.int(`SELECT count(*) FROM doze.jobs WHERE failures = 0 AND reaps = 0`); n < len(ids)-1 {
		t.Errorf("%d jobs are untouched", n)
	}
	if report.Interrupted == 1 && w.text(`SELECT run_at::text FROM doze.jobs WHERE kind = 'k' ORDER BY id`) != before {
		t.Error("due times have changed")
	}
	if wakes := fire.fired(); len(wakes) != 1 || wakes[0] != (queue.Wake{Version: 1, Queue: "q", Reason: queue.ReasonHandoff, Hop: 1}) {
		t.Errorf("fired %+v", wakes)
	}
}

func TestDeadline_AJobThatHadItsTurnFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, cfg := near(w)
	h := newWaiter()
	id := w.add("k")
	report := w.ended(ctx, w.drainer(kinds(map[string]handler.RawFunc{"k": h.run}), cfg))
	if cause := receive(w, h.cause); !errors.Is(cause, handler.ErrTimeUp) {
		t.Errorf("cause %v", cause)
	}
	if job := w.wants(id, queue.Queued); job.Failures != 1 || report.Retried != 1 {
		t.Errorf("%+v; report %+v", job, report)
	}
}

// With Concurrency 1 the second begins when the first returns, after two thirds of the time.
func TestDeadline_AJobThatBeganLateIsInterrupted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, cfg := near(w)
	cfg.Margin = 800 * time.Millisecond // claims stop at 1.2 s, handlers at 1.6 s
	first, late := w.add("first"), newWaiter()
	second := w.add("late", maxAttempts(1))
	report := w.ended(ctx, w.drainer(kinds(map[string]handler.RawFunc{
		"first": func(ctx context.Context, _ *queue.Job) error {
			busy, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			<-busy.Done()
			return handler.Discard(errors.New("what fails does not say how long jobs usually take"))
		},
		"late": late.run,
	}), cfg))
	w.wants(first, queue.Failed)
	if cause := receive(w, late.cause); !errors.Is(cause, handler.ErrTimeUp) {
		t.Errorf("cause %v", cause)
	}
	if job := w.wants(second, queue.Queued); job.Failures != 0 || job.LastError != "" || report.Interrupted != 1 || report.Failed != 1 {
		t.Errorf("%+v; report %+v", job, report)
	}
}

func TestDeadline_AHandlerThatIgnoresItIsLeftBehind(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, cfg := near(w)
	cfg.Concurrency = 3
	stuck := make(chan struct{})
	t.Cleanup(func() { close(stuck) })
	id, good := w.add("stuck"), newWaiter()
	w.add("good")
	d := w.drainer(kinds(map[string]handler.RawFunc{"stuck": func(context.Context, *queue.Job) error { <-stuck; return nil }, "good": good.run}), cfg)
	good.proceed <- nil
	report := w.ended(ctx, d)
	if report.Stuck != 1 || report.Done != 1 || report.Retried != 1 || !d.Tainted() {
		t.Errorf("tainted %v; report %+v", d.Tainted(), report)
	}
	if job := w.wants(id, queue.Queued); job.Failures != 1 || job.LastError != "the handler did not return after its context had ended" {
		t.Errorf("%+v", job)
	}
	w.add("good")
	if report, err := d.Drain(w.ctx, wakeQ); !errors.Is(err, handler.ErrTainted) || report.Claimed != 0 {
		t.Errorf("a later drain of this process: %+v, %v", report, err)
	}
}

// One stuck handler takes the only place there is. What waits behind it is given back, and the drain ends
// although it has no deadline.
func TestTimeout_AHandlerThatIgnoresItIsLeftBehind(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stuck := make(chan struct{})
	t.Cleanup(func() { close(stuck) })
	w.addMany(60, "quick", priority(-1))
	w.addMany(20, "stuck")
	mux := handler.NewMux()
	mux.Handle("quick", nothing)
	mux.Handle("stuck", func(context.Context, *queue.Job) error { <-stuck; return nil }, handler.Timeout(20*time.Millisecond))
	d := w.drainer(mux, handler.Config{Concurrency: 1, Grace: 20 * time.Millisecond, Backoff: later})
	report := w.drain(d)
	if report.Stuck != 1 || report.Retried != 1 || report.Done != 60 || report.Released == 0 || !d.Tainted() || !report.More {
		t.Errorf("report %+v", report)
	}
	if n := w.int(`SELECT count(*) FROM doze.jobs WHERE token IS NOT NULL`); n != 0 {
		t.Errorf("%d jobs are held", n)
	}
}

// The drain must not wait for ever for a connection that a handler keeps until its context ends.
func TestDeadline_AHandlerThatKeepsTheOnlyConnection(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one := dbtest.Pool(t, dbtest.MaxConns(1))
	ctx, cfg := near(w)
	id := w.add("k")
	d := w.drainerOn(one, kinds(map[string]handler.RawFunc{"k": func(ctx context.Context, _ *queue.Job) error {
		c, err := one.Acquire(ctx)
		if err != nil {
			return err
		}
		defer c.Release()
		<-ctx.Done()
		return ctx.Err()
	}}), cfg)
	report := w.ended(ctx, d)
	if report.Retried != 1 {
		t.Errorf("report %+v", report)
	}
	w.wants(id, queue.Queued)
}

// The same, without a deadline: the caller stops the drain.
func TestStop_AHandlerThatKeepsTheOnlyConnection(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one := dbtest.Pool(t, dbtest.MaxConns(1))
	id := w.add("k", maxAttempts(1))
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	begun := make(chan struct{})
	wait := w.inBackground(ctx, w.drainerOn(one, kinds(map[string]handler.RawFunc{"k": func(ctx context.Context, _ *queue.Job) error {
		c, err := one.Acquire(ctx)
		if err != nil {
			return err
		}
		defer c.Release()
		close(begun)
		<-ctx.Done()
		return context.Cause(ctx)
	}}), handler.Config{}))
	receive(w, begun)
	waits, stop := context.WithTimeout(w.ctx, 150*time.Millisecond) // by then the drain wants it, to say that it is busy
	defer stop()
	<-waits.Done()
	cancel()
	report, err := wait()
	w.must(err)
	if job := w.wants(id, queue.Queued); job.Failures != 0 || report.Interrupted != 1 {
		t.Errorf("%+v; report %+v", job, report)
	}
}

func TestDrain_WithoutTimeClaimsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.add("k")
	d := w.drainer(kinds(map[string]handler.RawFunc{"k": nothing}), handler.Config{})
	cancelled, cancel := context.WithCancel(w.ctx)
	cancel()
	past, cancel := context.WithDeadline(w.ctx, time.Now().Add(-time.Hour))
	defer cancel()
	for _, ctx := range []context.Context{cancelled, past} {
		report, err := d.Drain(ctx, wakeQ)
		if !errors.Is(err, ctx.Err()) || report.Claimed != 0 {
			t.Errorf("%+v, %v; want %v", report, err, ctx.Err())
		}
	}
	if job := w.wants(id, queue.Queued); job.Attempts != 0 {
		t.Errorf("%d attempts", job.Attempts)
	}
}

// stopped runs a drain, as hop number hop, that gets so many jobs done and is interrupted in one more.
func (w *world) stopped(hop, progress int, cfg handler.Config) handler.Drained {
	w.t.Helper()
	w.addMany(progress, "done", priority(-1))
	w.add("k", maxAttempts(1))
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	cfg.Concurrency = 1
	d := w.drainer(kinds(map[string]handler.RawFunc{"done": nothing, "k": func(ctx context.Context, _ *queue.Job) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	}}), cfg)
	report, err := d.Drain(ctx, queue.Wake{Version: 1, Queue: "q", Reason: queue.ReasonHandoff, Hop: hop})
	w.must(err)
	w.addsUp(report)
	if report.Interrupted != 1 || !report.More || report.Done != progress {
		w.t.Errorf("report %+v", report)
	}
	return report
}

func TestHandOver_FiresOneSuccessorOfTheNextHop(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rec := &recorder{}
	if report := w.stopped(2, 1, handler.Config{Trigger: rec}); !report.HandedOver {
		t.Errorf("report %+v", report)
	}
	if wakes := rec.fired(); len(wakes) != 1 || wakes[0] != (queue.Wake{Version: 1, Queue: "q", Reason: queue.ReasonHandoff, Hop: 3}) {
		t.Errorf("fired %+v", wakes)
	}
	if n := w.int(`SELECT count(*) FROM doze.jobs WHERE failures = 0 AND token IS NULL`); n != 1 {
		t.Errorf("%d jobs wait untouched", n)
	}
	// The bell stands for it: nobody else fires meanwhile.
	if rang, err := w.store.Ring(w.ctx, w.pool, "q", time.Time{}, bell); err != nil || rang {
		t.Errorf("rang %v, %v", rang, err)
	}
}

// A chain ends after so many hops, and one that gets nothing done much sooner; a new one begins after a pause.
func TestHandOver_EndsAChain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		hop      int
		progress int
		trigger  bool
		fails    bool
	}{
		{"too many hops", 30, 1, true, false},
		{"no progress", 27, 0, true, false},
		{"no trigger", 0, 1, false, false},
		{"the trigger fails", 0, 1, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			rec := &recorder{fail: c.fails}
			cfg := handler.Config{Alarm: rec, MaxHops: 30}
			if c.trigger {
				cfg.Trigger = rec
			}
			if report := w.stopped(c.hop, c.progress, cfg); report.HandedOver {
				t.Errorf("report %+v", report)
			}
			if wakes, alarms := rec.fired(), rec.set(); len(wakes) != 0 || len(alarms) != 1 {
				t.Errorf("fired %v, alarms %v", wakes, alarms)
			}
			// No bell is left that nobody answers.
			if rang, err := w.store.Ring(w.ctx, w.pool, "q", time.Time{}, bell); err != nil || !rang {
				t.Errorf("the next enqueue does not ring: %v, %v", rang, err)
			}
		})
	}
}

func TestHandOver_AChainOfShortDrainsGetsABacklogDone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const n = 120
	w.addMany(n, "k")
	var runs atomic.Int32
	d := w.drainer(kinds(map[string]handler.RawFunc{"k": func(ctx context.Context, _ *queue.Job) error {
		runs.Add(1)
		work, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
		defer cancel()
		<-work.Done()
		return ctx.Err()
	}}), handler.Config{Concurrency: 1, Backoff: soon})
	w.configure(queue.Settings{Slots: 1})
	p := handler.NewInProcess(d, 200*time.Millisecond).Bind()
	w.must(p.Fire(w.ctx, wakeQ))
	w.must(p.Wait(w.ctx))
	starts, most := p.Starts()
	if w.done() != n || starts < 4 || most > 2 { // one hands over while it ends
		t.Errorf("%d done in %d runs, by %d drains, %d at once", w.done(), runs.Load(), starts, most)
	}
	t.Logf("%d jobs of 10 ms in %d drains of 200 ms, %d runs", n, starts, runs.Load())
}

func TestDeadline_NothingIsClaimedThatUsuallyTakesLonger(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.addMany(20, "k")
	d := w.drainer(kinds(map[string]handler.RawFunc{"k": func(ctx context.Context, _ *queue.Job) error {
		work, cancel := context.WithTimeout(ctx, 400*time.Millisecond)
		defer cancel()
		<-work.Done()
		return ctx.Err()
	}}), handler.Config{Concurrency: 1, Margin: 200 * time.Millisecond})
	ctx, cancel := context.WithTimeout(w.ctx, 1500*time.Millisecond)
	defer cancel()
	report, err := d.Drain(ctx, wakeQ)
	if err != nil || report.Done == 0 || report.Interrupted+report.Retried+report.Failed != 0 {
		t.Errorf("%+v, %v; want some done, and none begun that could not end", report, err)
	}
}
