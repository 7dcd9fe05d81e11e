package queue_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/dozequeue/doze/internal/dbtest"
	"github.com/dozequeue/doze/queue"
)

// Each clause of the ring, alone: bell, slots, pause.
func TestRing_RingsOnlyIfNobodyWillCome(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.must(w.store.Configure(w.ctx, w.pool, "q", queue.Settings{Slots: 2}))
	token := "gen_random_uuid()"
	slots := func(states ...string) string {
		var set []string
		for i, s := range states {
			state, until := s, "now() + interval '1 minute'"
			if rest, expired := strings.CutPrefix(s, "expired "); expired {
				state, until = rest, "now() - interval '1 second'"
			}
			holder := token
			if state == "free" {
				holder, until = "NULL", "NULL"
			}
			set = append(set, fmt.Sprintf("(%d, '%s', %s::uuid, (%s)::timestamptz)", i+1, state, holder, until))
		}
		return `UPDATE doze.slots s SET state = v.state, token = v.token, locked_until = v.until
			FROM (VALUES ` + strings.Join(set, ", ") + `) v(slot, state, token, until) WHERE s.slot = v.slot`
	}
	for _, c := range []struct {
		bell  string
		slots []string
		rings bool
		why   string
	}{
		{"NULL", []string{"free", "free"}, true, "nobody is there"},
		{"now() + interval '1 second'", []string{"free", "free"}, false, "somebody has been asked to come"},
		{"now() - interval '1 second'", []string{"free", "free"}, true, "who was asked did not come"},
		{"NULL", []string{"open", "free"}, false, "an open drain will look"},
		{"NULL", []string{"expired open", "free"}, true, "an open drain that has vanished will not"},
		{"NULL", []string{"busy", "free"}, true, "a busy drain promises nothing"},
		{"NULL", []string{"busy", "busy"}, false, "every slot is held"},
		{"NULL", []string{"busy", "open"}, false, "every slot is held, one is open"},
		{"NULL", []string{"busy", "expired busy"}, true, "a slot has expired"},
		{"NULL", []string{"expired open", "expired open"}, true, "both have expired"},
		{"now() + interval '1 second'", []string{"busy", "free"}, false, "busy, and somebody has been asked"},
	} {
		w.exec(`UPDATE doze.bells SET bell_until = ` + c.bell)
		w.exec(slots(c.slots...))
		before := w.text(`SELECT coalesce(bell_until::text, '-') FROM doze.bells`)
		got, err := w.store.Ring(w.ctx, w.pool, "q", time.Time{}, bell)
		w.must(err)
		if got != c.rings {
			t.Errorf("bell %s, slots %v: rang %v, want %v, as %s", c.bell, c.slots, got, c.rings, c.why)
		}
		if after := w.text(`SELECT coalesce(bell_until::text, '-') FROM doze.bells`); !got && after != before {
			t.Errorf("bell %s, slots %v: it did not ring and yet changed the bell", c.bell, c.slots)
		}
		if set := w.text(`SELECT ((bell_until - clock_timestamp() BETWEEN interval '10 s' AND interval '15 s') IS TRUE)::text FROM doze.bells`); got && set != "true" {
			t.Errorf("bell %s, slots %v: it does not last as long as asked", c.bell, c.slots)
		}
	}
	w.must(w.store.Pause(w.ctx, w.pool, "q"))
	if rang, err := w.store.Ring(w.ctx, w.pool, "q", time.Time{}, bell); err != nil || rang {
		t.Errorf("paused: rang %v, %v", rang, err)
	}
}

// A queue exists from its first ring on, whoever comes first.
func TestRing_MakesTheQueue(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.MaxConns(8))
	rang := make(chan bool, 8)
	inParallel(8, func(int) error {
		r, err := w.store.Ring(w.ctx, w.pool, "new", time.Time{}, bell)
		rang <- r
		return err
	}, func(err error) { t.Error(err) })
	close(rang)
	n := 0
	for r := range rang {
		if r {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d of 8 rings at once rang, want 1", n)
	}
	if got := w.text(`SELECT string_agg(slot::text, ' ' ORDER BY slot) FROM doze.slots WHERE queue = 'new'`); got != "1 2 3 4" {
		t.Errorf("slots %q, want 1 2 3 4", got)
	}
}

func TestUnring_LetsTheNextEnqueueRing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ring := func() bool {
		t.Helper()
		r, err := w.store.Ring(w.ctx, w.pool, "q", time.Time{}, bell)
		w.must(err)
		return r
	}
	if !ring() || ring() {
		t.Error("want one ring and then none")
	}
	w.must(w.store.Unring(w.ctx, w.pool, "q"))
	if !ring() {
		t.Error("it did not ring again")
	}
}

// A start answers the bell whether or not it gets a slot: a bell that nobody answers silences
// every later ring.
func TestStart_AnswersTheBellEvenWithoutASlot(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conn := w.conn()
	w.must(w.store.Configure(w.ctx, w.pool, "q", queue.Settings{Slots: 1}))
	w.start(conn, "q", 1)
	w.exec(`UPDATE doze.bells SET bell_until = now() + interval '1 minute'`)
	taken, err := w.store.Start(w.ctx, conn, newSlot("q"), "", 1)
	w.must(err)
	if taken.Slot || w.int(`SELECT count(*) FROM doze.bells WHERE bell_until IS NOT NULL`) != 0 {
		t.Errorf("slot %v; want none, and the bell answered", taken.Slot)
	}
}

// The three steps of a start are three transactions: the bell is answered and committed
// before the slots are looked at. In one transaction a job can be lost (docs/wake.md).
func TestStart_CommitsTheBellBeforeItLooksForASlot(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.queue("q")
	w.insert(newJob())
	w.start(w.conn(), "q", 1)
	if n := w.int(`SELECT count(DISTINCT x) FROM (SELECT xmin::text AS x FROM doze.queues UNION ALL
		SELECT xmin::text FROM doze.slots WHERE state = 'open' UNION ALL SELECT xmin::text FROM doze.jobs) t`); n != 3 {
		t.Errorf("bell, slot and claim were written by %d transactions, want 3", n)
	}
}

// An alarm is taken down by its id only: one that goes off early must not be taken for a later one.
func TestStart_TakesDownOnlyTheAlarmThatBroughtIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conn := w.conn()
	w.queue("q")
	mine, other := uuid.New(), uuid.New()
	armed, err := w.store.Arm(w.ctx, w.pool, "q", time.Hour, mine, time.Minute)
	w.must(err)
	if !armed {
		t.Fatal("not armed")
	}
	for _, c := range []struct {
		alarm string
		left  int
	}{{"", 1}, {other.String(), 1}, {"'; DROP SCHEMA x", 1}, {strings.ToUpper(mine.String()), 0}} {
		slot := newSlot("q")
		_, err := w.store.Start(w.ctx, conn, slot, c.alarm, 1)
		w.must(err)
		w.must(w.store.Abandon(w.ctx, conn, slot))
		if n := w.int(`SELECT count(*) FROM doze.bells WHERE armed_id IS NOT NULL AND armed_at IS NOT NULL`); n != c.left {
			t.Errorf("started by alarm %q: %d alarms are set, want %d", c.alarm, n, c.left)
		}
	}
}

// Nor does one stay whose time has passed: it was lost, or its wake is late, and this drain sees to what it was
// for. Left there, it would keep a later one from being set.
func TestStart_TakesDownAnAlarmThatIsOverdue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.queue("q")
	w.exec(`UPDATE doze.bells SET armed_id = gen_random_uuid(), armed_at = now() - interval '1 millisecond'`)
	w.start(w.conn(), "q", 1)
	if n := w.int(`SELECT count(*) FROM doze.bells WHERE armed_at IS NOT NULL`); n != 0 {
		t.Error("an overdue alarm is still set")
	}
}

// A clock that was set back leaves a bell that would silence rings for as long.
func TestRing_TakesABellFarAheadForNone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.queue("q")
	w.insert(newJob())
	for _, c := range []struct {
		ahead string
		rings bool
	}{{"10 seconds", false}, {"1 minute", false}, {"2 hours", true}} {
		set := func() { w.exec(`UPDATE doze.bells SET bell_until = now() + $1::text::interval`, c.ahead) }
		set()
		rang, err := w.store.Ring(w.ctx, w.pool, "q", time.Time{}, bell)
		w.must(err)
		conn := w.conn()
		slot, _ := w.start(conn, "q", 0)
		set()
		more, err := w.store.Saturated(w.ctx, conn, slot, bell)
		w.must(err)
		w.must(w.store.Abandon(w.ctx, conn, slot))
		if rang != c.rings || more != c.rings {
			t.Errorf("a bell %s ahead: rang %v, and if saturated %v; want %v", c.ahead, rang, more, c.rings)
		}
	}
}

func TestNext_OfAFarTimeIsTenYears(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.queue("q")
	for _, at := range []string{"9999-12-31", "infinity"} {
		j := newJob()
		w.insert(j)
		w.exec(`UPDATE doze.jobs SET run_at = $1::text::timestamptz`, at)
		next, err := w.store.Next(w.ctx, w.pool, "q")
		w.must(err)
		if years := next.In.Hours() / 24 / 365; next.Due || years < 9.9 || years > 10.1 {
			t.Errorf("due at %s: next %+v, want some ten years", at, next)
		}
		w.exec(`DELETE FROM doze.jobs`)
	}
}

// What a claim took whose answer was lost is given back, and nothing else is.
func TestGiveBack_ReturnsWhatALostClaimTook(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conn := w.conn()
	w.queue("q")
	w.insert(newJobs(5)...)
	slot, first := w.start(conn, "q", 2)
	second, err := w.store.Step(w.ctx, conn, slot, nil, 2, false, "")
	w.must(err)
	w.must(w.store.GiveBack(w.ctx, w.pool, "q", second.Tokens))
	w.must(w.store.GiveBack(w.ctx, w.pool, "q", []uuid.UUID{uuid.New()}))
	if got := w.text(`SELECT count(*) FILTER (WHERE token IS NOT NULL) || ' held, ' || sum(reaps) || ' reaped, ' || sum(attempts) || ' attempts' FROM doze.jobs`); got != "2 held, 0 reaped, 4 attempts" {
		t.Errorf("after giving the second claim back: %s", got)
	}
	w.must(w.store.Abandon(w.ctx, conn, slot, first.Tokens...))
	if got := w.text(`SELECT count(*) FILTER (WHERE token IS NOT NULL) || ' held, ' || (SELECT count(*) FROM doze.slots WHERE state <> 'free') || ' slots' FROM doze.jobs`); got != "0 held, 0 slots" {
		t.Errorf("after abandoning: %s", got)
	}
}

func TestSlotFreeIn_IsWhenTheFirstLeaseEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	in := func() time.Duration {
		t.Helper()
		d, err := w.store.SlotFreeIn(w.ctx, w.pool, "q")
		w.must(err)
		return d
	}
	if d := in(); d >= 0 {
		t.Errorf("unknown queue: %v", d)
	}
	w.must(w.store.Configure(w.ctx, w.pool, "q", queue.Settings{Slots: 2}))
	w.start(w.conn(), "q", 1)
	if d := in(); d >= 0 {
		t.Errorf("one of two held: %v", d)
	}
	w.exec(`UPDATE doze.slots SET state = 'open', token = gen_random_uuid(), locked_until = now() + interval '5 seconds' WHERE state = 'free'`)
	if d := in(); d < 3*time.Second || d > 5*time.Second {
		t.Errorf("both held: %v, want a little less than 5 s", d)
	}
}

func TestWaiting_NamesQueuesWithJobsOrSchedules(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, name := range []string{"empty", "paused", "scheduled"} {
		w.queue(name)
	}
	w.must(w.store.Pause(w.ctx, w.pool, "paused"))
	w.insert(newJob(inQueue("paused")), newJob(inQueue("later"), after(time.Hour)), newJob(inQueue("due")))
	w.must(w.store.PutSchedule(w.ctx, w.pool, queue.Schedule{Name: "s", Queue: "scheduled", Kind: "k", MaxAttempts: 1, Payload: []byte("1"),
		Cron: "* * * * *", TimeZone: "UTC", CatchUp: queue.CatchUpLatest, CatchUpLimit: 1, NextAt: time.Now().Add(time.Hour)}))
	got, err := w.store.Waiting(w.ctx, w.pool)
	w.must(err)
	if !same(got, []string{"due", "later", "scheduled"}) {
		t.Errorf("waiting %v", got)
	}
}

func TestArm_KeepsTheEarliestAlarm(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.queue("q")
	for _, c := range []struct {
		in   time.Duration
		want bool
		why  string
	}{
		{time.Hour, true, "none was set"},
		{2 * time.Hour, false, "an earlier one is set"},
		{time.Hour + time.Second, false, "an earlier one is set"},
		{time.Minute, true, "it is earlier"},
	} {
		got, err := w.store.Arm(w.ctx, w.pool, "q", c.in, uuid.New(), time.Minute)
		w.must(err)
		if got != c.want {
			t.Errorf("in %v: %v, want %v, as %s", c.in, got, c.want, c.why)
		}
	}
	overdue := func(by string) bool {
		t.Helper()
		w.exec(`UPDATE doze.bells SET armed_at = now() - $1::text::interval`, by)
		got, err := w.store.Arm(w.ctx, w.pool, "q", time.Hour, uuid.New(), time.Minute)
		w.must(err)
		return got
	}
	if overdue("30 seconds") {
		t.Error("an alarm that is late, but within its grace, was replaced")
	}
	if !overdue("61 seconds") {
		t.Error("an alarm that was missed was not replaced")
	}
	w.must(w.store.Disarm(w.ctx, w.pool))
	if got, err := w.store.Arm(w.ctx, w.pool, "q", 3*time.Hour, uuid.New(), time.Minute); err != nil || !got {
		t.Errorf("after Disarm: %v, %v", got, err)
	}
	if got, err := w.store.Arm(w.ctx, w.pool, "nowhere", time.Hour, uuid.New(), time.Minute); err != nil || got {
		t.Errorf("a queue without a row: %v, %v", got, err)
	}
}

// A drain that has all it can run stops promising and, if there is more, asks for another drain.
func TestSaturated_MarksTheSlotAndRingsIfThereIsMore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conn := w.conn()
	slot, c := w.claim(conn)
	state := func() string { return w.text(`SELECT state FROM doze.slots WHERE token = $1`, slot.Token) }
	ring := func() bool {
		t.Helper()
		r, err := w.store.Saturated(w.ctx, conn, slot, bell)
		w.must(err)
		return r
	}
	if ring() || state() != "busy" {
		t.Errorf("with no job due it rang, or the slot is %s", state())
	}
	w.insert(newJob(after(time.Hour)))
	if ring() {
		t.Error("a job that is due later rang")
	}
	w.insert(newJob())
	if !ring() || ring() {
		t.Error("want one ring for the due job, and then none while the bell is set")
	}
	w.must(w.store.Unring(w.ctx, w.pool, "q"))
	w.exec(`UPDATE doze.slots SET state = 'busy', token = gen_random_uuid(), locked_until = now() + interval '1 minute' WHERE state = 'free'`)
	if ring() {
		t.Error("it rang with no slot free")
	}
	_, err := w.store.Step(w.ctx, conn, slot, []queue.Outcome{outcome(c, queue.Done)}, 1, true, queue.Open)
	w.must(err)
	if state() != "open" {
		t.Errorf("the slot is %s after the next claim, want open", state())
	}
}

func TestExit_LooksAgainAfterGivingUpItsSlot(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conn, other := w.conn(), w.conn()
	exit := func(slot queue.Slot) queue.Next {
		t.Helper()
		_, next, err := w.store.Exit(w.ctx, conn, slot, nil)
		w.must(err)
		if n := w.int(`SELECT count(*) FROM doze.slots WHERE token = $1`, slot.Token); n != 0 {
			t.Error("the slot is still held")
		}
		return next
	}
	w.queue("q")
	slot, _ := w.start(conn, "q", 1)
	if next := exit(slot); next.Due || next.In >= 0 {
		t.Errorf("of an empty queue: %+v", next)
	}

	slot, _ = w.start(conn, "q", 1)
	job := newJob()
	w.insert(job) // after the last claim
	if next := exit(slot); !next.Due {
		t.Errorf("a job came between the last claim and the exit: %+v", next)
	}

	// A stranger's lock hides a job from a claim. From the last look it must not.
	tx, err := other.Begin(w.ctx)
	w.must(err)
	_, err = tx.Exec(w.ctx, queue.Qualify("SELECT FROM doze.jobs FOR UPDATE", w.name))
	w.must(err)
	slot, taken := w.start(conn, "q", 1)
	if next := exit(slot); len(taken.Claimed) != 0 || !next.Due {
		t.Errorf("locked by a stranger: claimed %d, %+v; want none, and due", len(taken.Claimed), next)
	}
	w.must(tx.Rollback(w.ctx))

	// Running: the end of its lease counts. With a later job beside it the earlier of both.
	slot, taken = w.start(conn, "q", 1)
	w.insert(newJob(after(time.Hour)))
	if next := exit(slot); next.Due || next.In < 50*time.Second || next.In > time.Minute {
		t.Errorf("with a running job: %+v, want the end of its lease in a minute", next)
	}
	w.insert(newJob(after(10*time.Second), func(j *queue.NewJob) { j.Priority = 10 }))
	if next, err := w.store.Next(w.ctx, w.pool, "q"); err != nil || next.Due || next.In > 10*time.Second || next.In < 5*time.Second {
		t.Errorf("with a job in 10 s: %+v, %v", next, err)
	}
	w.expire(job.ID)
	if next, err := w.store.Next(w.ctx, w.pool, "q"); err != nil || !next.Due {
		t.Errorf("with an expired lease: %+v, %v; want due", next, err)
	}
	if next, err := w.store.Next(w.ctx, w.pool, "nowhere"); err != nil || next.Due || next.In >= 0 {
		t.Errorf("of a queue without a row: %+v, %v", next, err)
	}
}

// What the last look finds in milliseconds is never zero for a job that is not due: a drain
// that waits for it must not spin.
func TestNext_RoundsUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.queue("q")
	w.insert(newJob(after(time.Hour)))
	tx, err := w.pool.Begin(w.ctx) // one now()
	w.must(err)
	_, err = tx.Exec(w.ctx, queue.Qualify(`UPDATE doze.jobs SET run_at = now() + interval '300 microseconds'`, w.name))
	w.must(err)
	if next, err := w.store.Next(w.ctx, tx, "q"); err != nil || next.Due || next.In != time.Millisecond {
		t.Errorf("%+v, %v; want a millisecond", next, err)
	}
	_, err = tx.Exec(w.ctx, queue.Qualify(`UPDATE doze.jobs SET run_at = now()`, w.name))
	w.must(err)
	if next, err := w.store.Next(w.ctx, tx, "q"); err != nil || !next.Due {
		t.Errorf("%+v, %v; want due: the bounds of the claim and of the last look must meet", next, err)
	}
	w.must(tx.Rollback(w.ctx))
}

// A drain out of time gives its slot up and rings for its successor, if there is work.
func TestHandOver_RingsForASuccessor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conn := w.conn()
	slot, c := w.claim(conn)
	held, rang, err := w.store.HandOver(w.ctx, conn, slot, []queue.Outcome{outcome(c, queue.Queued, func(o *queue.Outcome) { o.Delay = -1 })}, bell)
	w.must(err)
	if len(held) != 1 || !rang {
		t.Errorf("held %d, rang %v; want its own job given back, and a ring for it", len(held), rang)
	}
	slot, taken := w.start(conn, "q", 1)
	_, rang, err = w.store.HandOver(w.ctx, conn, slot, []queue.Outcome{outcome(taken.Claimed[0], queue.Done)}, bell)
	w.must(err)
	if rang {
		t.Error("it rang with nothing left")
	}
	if n := w.int(`SELECT count(*) FROM doze.slots WHERE state <> 'free'`); n != 0 {
		t.Errorf("%d slots are held", n)
	}
}

// A start whose answer was lost may have taken a slot; with its token the slot can be given back.
func TestAbandon_GivesBackAStartThatWasLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conn := w.conn()
	w.must(w.store.Configure(w.ctx, w.pool, "q", queue.Settings{Slots: 1}))
	slot, _ := w.start(conn, "q", 1)
	w.must(w.store.Abandon(w.ctx, conn, newSlot("q"))) // not its token
	if taken, err := w.store.Retake(w.ctx, conn, newSlot("q"), 1); err != nil || taken.Slot {
		t.Fatalf("somebody else's slot was given back: %v", err)
	}
	w.must(w.store.Abandon(w.ctx, conn, slot))
	if taken, err := w.store.Retake(w.ctx, conn, slot, 1); err != nil || !taken.Slot {
		t.Errorf("the slot is not free: %v", err)
	}
}

// A drain that could claim jobs but not finish them would use up their attempts.
func TestStart_RefusesTablesThatAreOlderThanItsBuild(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conn := w.conn()
	w.queue("q")
	w.insert(newJob())
	w.exec(`UPDATE doze.migrations SET version = -version`)
	taken, err := w.store.Start(w.ctx, conn, newSlot("q"), "", 1)
	if !errors.Is(err, queue.ErrMisconfigured) || queue.Classify(err) != queue.Misconfigured || taken.Slot || len(taken.Claimed) != 0 {
		t.Errorf("got %+v, %v; want only ErrMisconfigured", taken, err)
	}
	w.exec(`UPDATE doze.migrations SET version = -version`)
	w.start(conn, "q", 1)
}

// Nothing of the protocol lives in the session, so each of its transactions may meet another
// server connection.
func TestProtocol_SurvivesAChangeOfConnectionBetweenItsSteps(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.queue("q")
	jobs := newJobs(6)
	fresh := func() *pgx.Conn { return w.conn() } // the pool hands out another one each time, since none is given back
	conn := fresh()
	_, fire, err := w.store.InsertAndRing(w.ctx, conn, jobs, false, bell)
	w.must(err)
	if len(fire) != 1 {
		t.Fatalf("fire %v", fire)
	}
	slot, taken := w.start(fresh(), "q", 3)
	taken, err = w.store.Step(w.ctx, fresh(), slot, []queue.Outcome{outcome(taken.Claimed[0], queue.Done), outcome(taken.Claimed[1], queue.Done), outcome(taken.Claimed[2], queue.Done)}, 3, true, "")
	w.must(err)
	held, next, err := w.store.Exit(w.ctx, conn, slot, []queue.Outcome{outcome(taken.Claimed[0], queue.Done), outcome(taken.Claimed[1], queue.Done), outcome(taken.Claimed[2], queue.Done)})
	w.must(err)
	if len(held) != 3 || next.Due || next.In >= 0 {
		t.Errorf("held %d, next %+v", len(held), next)
	}
}
