package queue_test

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/dozequeue/doze/queue"
)

// One batch, each job ending in its own way.
func TestFinish_MixedOutcomesInOneBatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conn := w.conn()
	w.queue("q")
	jobs := newJobs(7, func(j *queue.NewJob) { j.RunAt = time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC) })
	w.insert(jobs...)
	_, taken := w.start(conn, "q", 10)
	c := taken.Claimed
	outcomes := []queue.Outcome{
		outcome(c[0], queue.Done),
		outcome(c[1], queue.Queued, func(o *queue.Outcome) { o.Delay, o.Failed, o.Error = 20*time.Second, true, "first" }),
		outcome(c[2], queue.Failed, func(o *queue.Outcome) { o.Failed, o.Error = true, "last" }),
		outcome(c[3], queue.Cancelled),
		outcome(c[4], queue.Queued, func(o *queue.Outcome) { o.Delay = time.Hour }),                            // snooze
		outcome(c[5], queue.Queued, func(o *queue.Outcome) { o.Delay = -1 }),                                   // release
		outcome(c[6], queue.Queued, func(o *queue.Outcome) { o.Delay, o.Failed = 300*time.Microsecond, true }), // rounds up, not to none
	}
	if n := w.finish(outcomes...); n != 7 {
		t.Fatalf("%d outcomes were accepted, want 7", n)
	}
	want := []string{
		"done 1 0 due -", "queued 1 1 in 00:00:20 first", "failed 1 1 due last", "cancelled 1 0 due -",
		"queued 1 0 in 01:00:00 -", "queued 1 0 due -", "queued 1 1 in 00:00:00.001 -",
	}
	for i, j := range jobs {
		// A snoozed or released job's attempt is counted, its failures are not.
		got := w.text(`SELECT concat_ws(' ', l.state, l.attempts, l.failures,
			CASE WHEN l.run_at = '2020-01-02 03:04:05Z' THEN 'due' ELSE 'in ' || (l.run_at - f.finished_at) END, coalesce(l.last_error, '-'))
			FROM doze.job_list l, (SELECT finished_at FROM doze.history LIMIT 1) f WHERE l.id = $1`, j.ID)
		if got != want[i] {
			t.Errorf("job %d: %s, want %s", i, got, want[i])
		}
	}
	if n := w.finish(outcomes...); n != 0 {
		t.Errorf("the same batch again was accepted for %d jobs, want none", n)
	}
	if n := w.int(`SELECT count(*) FROM doze.job_list`); n != 7 {
		t.Errorf("%d jobs after the second time, want 7", n)
	}
}

// A handler's error can hold anything. It must hurt neither its own job nor its batch.
func TestFinish_AnyErrorTextIsStored(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conn := w.conn()
	w.queue("q")
	texts := map[string]string{
		"bad \x00 byte":                          `bad \0 byte`,
		"latin \xe9 and \xff\xfe":                "latin \uFFFD and \uFFFD",
		strings.Repeat("a", 10<<10):              "",
		strings.Repeat("€", 4<<10):               "",
		strings.Repeat("\x00", 10<<10):           "",
		strings.Repeat("\xff", 10<<10) + "\x00x": "\uFFFD\\0x",
		"\\x00 is not a NUL":                     "\\x00 is not a NUL",
		`{"quotes":"' \" $1 @x"}`:                `{"quotes":"' \" $1 @x"}`,
	}
	for _, state := range []queue.State{queue.Queued, queue.Failed} {
		jobs := newJobs(len(texts)+1, inQueue("q"))
		w.insert(jobs...)
		slot, taken := w.start(conn, "q", 100)
		want := map[uuid.UUID]string{}
		var outcomes []queue.Outcome
		i := 0
		for text, stored := range texts {
			outcomes = append(outcomes, outcome(taken.Claimed[i], state, func(o *queue.Outcome) { o.Failed, o.Error, o.Delay = true, text, time.Hour }))
			want[taken.Claimed[i].ID] = stored
			i++
		}
		neighbour := taken.Claimed[i]
		outcomes = append(outcomes, outcome(neighbour, queue.Done))
		if n := w.finish(outcomes...); n != len(outcomes) {
			t.Errorf("%d of %d outcomes were accepted", n, len(outcomes))
		}
		for id, stored := range want {
			got := w.get(id).LastError
			switch {
			case stored != "" && got != stored:
				t.Errorf("stored %q, want %q", got, stored)
			case stored == "" && (len(got) < queue.MaxError-12 || len(got) > queue.MaxError || !utf8.ValidString(got) || !strings.HasSuffix(got, "… (cut)")):
				t.Errorf("stored %d bytes ending in %q", len(got), got[max(0, len(got)-20):])
			}
		}
		if s := w.state(neighbour.ID); s != queue.Done {
			t.Errorf("the neighbour is %s", s)
		}
		w.must(w.store.Abandon(w.ctx, conn, slot))
	}
}

// An attempt without an error keeps what the last one left.
func TestFinish_KeepsTheLastError(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conn := w.conn()
	slot, c := w.claim(conn)
	again := func(change ...func(*queue.Outcome)) {
		t.Helper()
		taken, err := w.store.Step(w.ctx, conn, slot, []queue.Outcome{outcome(c, queue.Queued, change...)}, 1, true, "")
		w.must(err)
		if len(taken.Claimed) != 1 {
			t.Fatalf("claimed %d", len(taken.Claimed))
		}
		c = taken.Claimed[0]
	}
	again(func(o *queue.Outcome) { o.Error, o.Failed = "one", true })
	if c.LastError != "one" || c.Failures != 1 || c.Attempts != 2 {
		t.Errorf("claimed with %+v", c.Job)
	}
	again()
	if c.LastError != "one" || c.Failures != 1 || c.Attempts != 3 {
		t.Errorf("claimed with %+v", c.Job)
	}
	w.finish(outcome(c, queue.Done))
	if got := w.get(c.ID).LastError; got != "one" {
		t.Errorf("in history with %q", got)
	}
}

// Done jobs are kept or not, as the queue says. Failed and cancelled ones always are.
func TestFinish_HistoryIsAsTheQueueSays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conn := w.conn()
	for _, history := range []string{"on", "off"} {
		name := "q" + history
		w.must(w.store.Configure(w.ctx, w.pool, name, queue.Settings{History: history}))
		w.insert(newJobs(3, inQueue(name))...)
		_, taken := w.start(conn, name, 3)
		c := taken.Claimed
		w.finish(outcome(c[0], queue.Done), outcome(c[1], queue.Failed), outcome(c[2], queue.Cancelled))
		want := "cancelled,done,failed"
		if history == "off" {
			want = "cancelled,failed"
		}
		if got := w.text(`SELECT state FROM doze.history WHERE queue = $1 ORDER BY state`, name); got != want {
			t.Errorf("history %s: %s, want %s", history, got, want)
		}
		if n := w.int(`SELECT count(*) FROM doze.jobs WHERE queue = $1`, name); n != 0 {
			t.Errorf("history %s: %d live jobs left", history, n)
		}
	}
	// A queue whose row is gone keeps them, to be on the safe side.
	_, c := w.claim(conn, inQueue("gone"))
	w.exec(`DELETE FROM doze.queues WHERE queue = 'gone'`)
	w.finish(outcome(c, queue.Done))
	if s := w.state(c.ID); s != queue.Done {
		t.Errorf("of a queue without a row: %s", s)
	}
}

// A batch in which all are done has a statement of its own, which must do what the other one does.
func TestFinish_DoneIsTheSameByBothStatements(t *testing.T) {
	t.Parallel()
	for _, history := range []string{"on", "off"} {
		t.Run(history, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			conn := w.conn()
			w.must(w.store.Configure(w.ctx, w.pool, "q", queue.Settings{History: history}))
			left := func(finish func(queue.Slot, []queue.Outcome) ([]uuid.UUID, error)) string {
				jobs := newJobs(3, func(j *queue.NewJob) { j.RunAt, j.Priority = time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC), 3 })
				jobs[0].Key, jobs[0].Hold = "held", time.Hour
				jobs[1].Key = "free"
				w.insert(jobs...)
				w.exec(`UPDATE doze.jobs SET last_error = 'once', failures = 2`)
				slot, taken := w.start(conn, "q", 10)
				var all []queue.Outcome
				for _, c := range taken.Claimed {
					all = append(all, outcome(c, queue.Done))
				}
				held, err := finish(slot, all)
				w.must(err)
				if len(held) != 3 || w.int(`SELECT count(*) FROM doze.jobs`) != 0 {
					t.Errorf("%d of 3 were taken", len(held))
				}
				w.must(w.store.Abandon(w.ctx, conn, slot))
				text := w.text(`SELECT (to_jsonb(h) - 'id' - 'created_at' - 'finished_at')::text || (finished_at > now() - interval '1 minute') FROM doze.history h ORDER BY key`) +
					w.text(`SELECT key || ' ' || hold || ' ' || (expires_at - now() > interval '59 minutes') || ' ' || (expires_at < 'infinity') FROM doze.keys ORDER BY key`)
				w.exec(`DELETE FROM doze.keys`)
				w.exec(`DELETE FROM doze.history`)
				return text
			}
			general := left(func(_ queue.Slot, all []queue.Outcome) ([]uuid.UUID, error) {
				return w.store.Finish(w.ctx, w.pool, all)
			})
			done := left(func(slot queue.Slot, all []queue.Outcome) ([]uuid.UUID, error) {
				taken, err := w.store.Step(w.ctx, conn, slot, all, 0, false, "")
				return taken.Held, err
			})
			if general != done {
				t.Errorf("finish.sql leaves\n%s\nfinish_done.sql leaves\n%s", general, done)
			}
			if kept := strings.Contains(general, `"state": "done"`); kept != (history == "on") || !strings.Contains(general, "held 01:00:00 true true") {
				t.Errorf("it leaves %s", general)
			}
		})
	}
}
