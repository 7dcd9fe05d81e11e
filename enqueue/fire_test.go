package enqueue

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/dozequeue/doze/queue"
)

func TestFire_FailureKeepsTheJobAndClearsTheBell(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, fail := range map[string]func(){
		"error": func() { b.trigger.err = errors.New("no such function") },
		"panic": func() {
			b.trigger.before = func(context.Context, queue.Wake) { panic("nil map") }
		},
	} {
		fail()
		before := b.client.Stats()
		added, err := b.client.Add(b.ctx, greet{"s3cret"}, On(name))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := b.store.Get(b.ctx, b.pool, added.ID); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if b.bell(name) {
			t.Errorf("%s: the bell is still set, so the next enqueue would not ring", name)
		}
		if s := b.client.Stats(); s.FireErrors != before.FireErrors+1 || s.Fired != 0 {
			t.Errorf("%s: stats %+v", name, s)
		}
		if text := b.logs.String(); !strings.Contains(text, "fire failed") || !strings.Contains(text, "queue="+name) || strings.Contains(text, "s3cret") {
			t.Errorf("%s: logged %q", name, text)
		}
		b.trigger.err, b.trigger.before = nil, nil
	}
	b.trigger.take()
	if _, err := b.client.Add(b.ctx, greet{}, On("error")); err != nil {
		t.Fatal(err)
	}
	wantQueues(t, b.trigger.take(), "error")
}

func TestFire_HangsNoLongerThanItsTimeout(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.trigger.before = func(ctx context.Context, _ queue.Wake) { <-ctx.Done() }
	b.trigger.err = context.DeadlineExceeded
	client := b.newClient(b.pool, Config{FireTimeout: 50 * time.Millisecond})
	if _, err := client.Add(b.ctx, greet{}); err != nil {
		t.Fatal(err)
	}
	if b.bell("default") || client.Stats().FireErrors != 1 {
		t.Errorf("bell %v, stats %+v", b.bell("default"), client.Stats())
	}
}

func TestFire_HappensBeforeAddReturnsAndAfterTheCommit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	seen := 0
	b.trigger.before = func(ctx context.Context, wake queue.Wake) {
		// Another connection, so it sees what is committed.
		seen = b.jobs()
		if wake.Version != 1 || wake.Reason != queue.ReasonEnqueue || wake.Hop != 0 {
			t.Errorf("wake %+v", wake)
		}
	}
	if _, err := b.client.Add(b.ctx, greet{}); err != nil {
		t.Fatal(err)
	}
	if seen != 1 {
		t.Errorf("the trigger saw %d jobs, want the one that was added", seen)
	}
}

func TestFire_OnceForABurst(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for range 20 {
		if _, err := b.client.Add(b.ctx, greet{}); err != nil {
			t.Fatal(err)
		}
	}
	wantQueues(t, b.trigger.take(), "default") // by the first, whose bell stands
}

func TestFire_NotWhileASlotIsOpen(t *testing.T) {
	t.Parallel()
	b := setup(t)
	conn, err := b.pool.Acquire(b.ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if err := b.store.Configure(b.ctx, b.pool, "default", queue.Settings{Slots: 2}); err != nil {
		t.Fatal(err)
	}
	slot := queue.Slot{Queue: "default", Token: uuid.New(), Lease: time.Minute}
	if taken, err := b.store.Start(b.ctx, conn.Conn(), slot, "", 10); err != nil || !taken.Slot {
		t.Fatal(taken, err)
	}
	for range 5 {
		if _, err := b.client.Add(b.ctx, greet{}); err != nil {
			t.Fatal(err)
		}
	}
	wantQueues(t, b.trigger.take())
	if b.bell("default") {
		t.Error("the bell is set")
	}
	if _, _, err := b.store.Exit(b.ctx, conn.Conn(), slot, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := b.client.Add(b.ctx, greet{}); err != nil {
		t.Fatal(err)
	}
	wantQueues(t, b.trigger.take(), "default")
}

func TestFire_NotForDelayedJobs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	added, err := b.client.Add(b.ctx, greet{}, In(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if !value[bool](b, "SELECT run_at = created_at + interval '1 hour' FROM doze.jobs") {
		t.Error("it is not due in an hour")
	}
	if err := b.client.Fire(b.ctx, added, Added{}); err != nil {
		t.Fatal(err)
	}
	wantQueues(t, b.trigger.take())
}

func TestFire_WhenTheRingFails(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if _, err := b.client.Add(b.ctx, greet{}); err != nil {
		t.Fatal(err)
	}
	b.trigger.take()
	b.exec("ALTER TABLE doze.queues RENAME TO elsewhere")
	added, err := b.client.Add(b.ctx, greet{})
	if err != nil || added.Duplicate || b.jobs() != 2 {
		t.Fatalf("%+v, %v, %d jobs", added, err, b.jobs())
	}
	wantQueues(t, b.trigger.take(), "default")
	if err := b.client.Fire(b.ctx, added); err != nil {
		t.Fatal(err)
	}
	wantQueues(t, b.trigger.take(), "default")
	b.exec("ALTER TABLE doze.elsewhere RENAME TO queues")
}
