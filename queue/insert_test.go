package queue_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dozequeue/doze/internal/dbtest"
	"github.com/dozequeue/doze/queue"
)

func code(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// One job and many go through different statements. What they write must not differ.
func TestInsert_OneAndManyWriteTheSameRow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	at := time.Date(2031, 5, 6, 7, 8, 9, 123456000, time.FixedZone("", -5*3600))
	for name, change := range map[string]func(*queue.NewJob){
		"plain":    func(*queue.NewJob) {},
		"priority": func(j *queue.NewJob) { j.Priority = -10 },
		"delay":    func(j *queue.NewJob) { j.Delay = 1500 * time.Millisecond },
		"run at":   func(j *queue.NewJob) { j.RunAt = at },
		"both":     func(j *queue.NewJob) { j.RunAt, j.Delay = at, time.Hour },
		"attempts": func(j *queue.NewJob) { j.MaxAttempts = 1000 },
		"queue":    func(j *queue.NewJob) { j.Queue = "image-worker.v2_x" },
	} {
		one := newJob(change)
		two := newJobs(2, change)
		tx, err := w.pool.Begin(w.ctx) // one now() for both
		w.must(err)
		_, err = w.store.Insert(w.ctx, tx, []queue.NewJob{one}, false)
		w.must(err)
		_, err = w.store.Insert(w.ctx, tx, two, false)
		w.must(err)
		w.must(tx.Commit(w.ctx))
		got := w.text(`SELECT (to_jsonb(j) - 'id')::text FROM doze.jobs j WHERE id = ANY($1::uuid[]) GROUP BY 1`,
			[]uuid.UUID{one.ID, two[0].ID, two[1].ID})
		if strings.Count(got, `"queue"`) != 1 {
			t.Errorf("%s: rows differ: %s", name, got)
		}
	}
	if got := w.get(func() uuid.UUID {
		j := newJob(func(j *queue.NewJob) { j.RunAt = at })
		w.insert(j)
		return j.ID
	}()); !got.RunAt.Equal(at) {
		t.Errorf("run_at came back as %v, want the same instant as %v", got.RunAt, at)
	}
}

// A client's clock decides nothing: the zero time and a delay count from the database's now, and
// a time in the past is simply due.
func TestInsert_UsesTheClockOfTheDatabase(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	past := newJob(func(j *queue.NewJob) { j.RunAt = time.Now().Add(-10 * time.Minute) })
	zero, late := newJob(), newJob(after(time.Hour))
	far := newJob(func(j *queue.NewJob) { j.RunAt = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC) })
	w.insert(past, zero, late, far)
	got := w.text(`SELECT CASE WHEN run_at < created_at THEN 'past' WHEN run_at = created_at THEN 'now'
		WHEN run_at = created_at + interval '1 hour' THEN 'in an hour' ELSE run_at::date::text END AS said
		FROM doze.jobs ORDER BY run_at`)
	if want := "past,now,in an hour,9999-12-31"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestInsert_KeepsThePayloadByteForByte(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	payloads := []string{
		`{"id":9007199254740993}`,
		`{"b":1,"a":2,"b":3}`,
		` { "spaced" : [ 1.0, 1e400, -0 ] } `,
		`{"nul":"\u0000","lone":"\ud800","slash":"\/"}`,
		`{"snowman":"☃","emoji":"😀"}`,
		`null`, `"text"`, `0`, `[]`,
		`"` + strings.Repeat("x", 8001) + `"`,
		`"` + strings.Repeat("y", 1<<20) + `"`,
		strings.Repeat("[", queue.MaxDepth) + strings.Repeat("]", queue.MaxDepth),
	}
	dbtest.ExecModes(t, func(t *testing.T, mode pgx.QueryExecMode) {
		pool := dbtest.Pool(t, dbtest.Mode(mode))
		for _, many := range []bool{false, true} {
			var jobs []queue.NewJob
			for _, p := range payloads {
				j := newJob(func(j *queue.NewJob) { j.Payload = json.RawMessage(p) })
				if err := j.Check(0); err != nil {
					t.Fatalf("%.40s: %v", p, err)
				}
				jobs = append(jobs, j)
			}
			if many {
				_, err := w.store.Insert(w.ctx, pool, jobs, false)
				w.must(err)
			}
			for i, j := range jobs {
				if !many {
					_, err := w.store.Insert(w.ctx, pool, []queue.NewJob{j}, false)
					w.must(err)
				}
				got, err := w.store.Get(w.ctx, pool, j.ID)
				w.must(err)
				if string(got.Payload) != payloads[i] {
					t.Errorf("%.60s came back as %.60s", payloads[i], got.Payload)
				}
			}
		}
	})
}

func TestInsert_AllOrNone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	jobs := newJobs(3)
	jobs[1].Priority = 99 // let through by a caller that did not Check
	if _, err := w.store.Insert(w.ctx, w.pool, jobs, false); code(err) != "23514" {
		t.Fatalf("got %v, want a check violation", err)
	}
	jobs[1] = newJob(keyed("k", 0), func(j *queue.NewJob) { j.Kind = "no good" })
	if _, err := w.store.Insert(w.ctx, w.pool, jobs, false); code(err) != "23514" {
		t.Fatalf("got %v, want a check violation", err)
	}
	if n := w.int(`SELECT (SELECT count(*) FROM doze.jobs) + (SELECT count(*) FROM doze.keys)`); n != 0 {
		t.Errorf("%d rows were left", n)
	}
}

// The client that lost the answer to its COMMIT sends the same job again.
func TestInsert_RepeatFindsWhatIsThereAndWhatHasFinished(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conn := w.conn()
	for _, key := range []string{"", "a-key"} {
		name := "q" + key
		job := newJob(inQueue(name), keyed(key, 0))
		w.queue(name)
		w.insert(job)
		again := func(when string) {
			t.Helper()
			for _, jobs := range [][]queue.NewJob{{job}, {job, newJob(inQueue("other"))}} {
				got, err := w.store.Insert(w.ctx, w.pool, jobs, true)
				w.must(err)
				if got[0].ID != job.ID || !got[0].Duplicate {
					t.Errorf("%s, key %q: got %+v, want a duplicate of %s", when, key, got[0], job.ID)
				}
			}
			if n := w.int(`SELECT count(*) FROM doze.job_list WHERE id = $1`, job.ID); n != 1 {
				t.Errorf("%s, key %q: %d rows", when, key, n)
			}
		}
		again("queued")
		slot, taken := w.start(conn, name, 1)
		again("running")
		w.finish(outcome(taken.Claimed[0], queue.Done))
		again("done")
		_, _, err := w.store.Exit(w.ctx, conn, slot, nil)
		w.must(err)
	}
}

func TestInsert_SameIDTwiceIsOneRow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	job := newJob()
	if got := w.insert(job); got[0].Duplicate {
		t.Errorf("the first insert: %+v", got[0])
	}
	if got := w.insert(job); !got[0].Duplicate {
		t.Errorf("the second insert: %+v", got[0])
	}
	if got := w.insert(newJob(), job); got[0].Duplicate || !got[1].Duplicate {
		t.Errorf("with a new one: %+v", got)
	}
	if n := w.int(`SELECT count(*) FROM doze.jobs`); n != 2 {
		t.Errorf("%d rows, want 2", n)
	}
}

// Ids that a caller chose may come again after their job is done. The second run ends as
// any other does, and its batch with it.
func TestFinish_OfAnIDThatIsInHistoryAlready(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conn := w.conn()
	w.queue("q")
	job := newJob()
	for range 3 {
		neighbour := newJob()
		w.insert(job, neighbour)
		slot, taken := w.start(conn, "q", 10)
		if len(taken.Claimed) != 2 {
			t.Fatalf("claimed %d jobs, want 2", len(taken.Claimed))
		}
		held, _, err := w.store.Exit(w.ctx, conn, slot, []queue.Outcome{outcome(taken.Claimed[0], queue.Done), outcome(taken.Claimed[1], queue.Done)})
		w.must(err)
		if len(held) != 2 || w.state(neighbour.ID) != queue.Done {
			t.Errorf("held %v; neighbour is %s", held, w.state(neighbour.ID))
		}
	}
	w.insert(job)
	if got, err := w.store.Cancel(w.ctx, w.pool, job.ID); err != nil || got.State != queue.Cancelled || got.FinishedAt.IsZero() {
		t.Errorf("cancelled: %+v, %v", got, err)
	}
	if n := w.int(`SELECT count(*) FROM doze.jobs`); n != 0 {
		t.Errorf("%d live jobs left", n)
	}
}

func TestInsertAndRing_SeesItsOwnCommit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conn := w.conn()
	jobs := []queue.NewJob{newJob(inQueue("a")), newJob(inQueue("b")), newJob(inQueue("a")), newJob(inQueue("later"), after(time.Hour))}
	in, fire, err := w.store.InsertAndRing(w.ctx, conn, jobs, false, bell)
	w.must(err)
	if len(in) != 4 || !same(fire, []string{"a", "b"}) {
		t.Fatalf("inserted %d, fire %v; want 4 and [a b]", len(in), fire)
	}
	_, fire, err = w.store.InsertAndRing(w.ctx, conn, newJobs(2, inQueue("a")), false, bell)
	w.must(err)
	if len(fire) != 0 {
		t.Errorf("the bell is set, and yet fire %v", fire)
	}
	// The ring is a transaction of its own, begun after the job's commit.
	if n := w.int(`SELECT count(*) FROM doze.jobs j JOIN doze.queues q ON q.queue = j.queue WHERE j.xmin = q.xmin`); n != 0 {
		t.Errorf("%d jobs share their ring's transaction", n)
	}
}

// A ring that fails takes no job with it, and a failed insert is never taken for a
// job that was there already.
func TestInsertAndRing_TellsAFailedInsertFromAFailedRing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conn := w.conn()
	w.queue("q")
	for _, n := range []int{1, 3} {
		bad := newJobs(n, func(j *queue.NewJob) { j.Kind = "no good" })
		in, fire, err := w.store.InsertAndRing(w.ctx, conn, bad, false, bell)
		if code(err) != "23514" || in != nil || fire != nil {
			t.Errorf("%d bad jobs: inserted %v, fire %v, error %v; want only a check violation", n, in, fire, err)
		}
	}
	// The commit itself fails, after the statement did not.
	w.exec(`CREATE FUNCTION doze.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'refused' USING ERRCODE = '40001'; END $$`)
	w.exec(`CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON doze.jobs DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION doze.refuse()`)
	for _, n := range []int{1, 3} {
		in, fire, err := w.store.InsertAndRing(w.ctx, conn, newJobs(n), false, bell)
		if code(err) != "40001" || in != nil || fire != nil {
			t.Errorf("%d jobs refused at commit: inserted %v, fire %v, error %v; want only the error", n, in, fire, err)
		}
	}
	w.exec(`DROP TRIGGER refuse ON doze.jobs`)
	if n := w.int(`SELECT count(*) FROM doze.jobs`); n != 0 {
		t.Fatalf("%d jobs came in", n)
	}

	w.exec(`ALTER TABLE doze.queues RENAME TO gone`)
	for _, n := range []int{1, 3} {
		jobs := newJobs(n)
		in, _, err := w.store.InsertAndRing(w.ctx, conn, jobs, false, bell)
		if code(err) != "42P01" || len(in) != n || in[0].Duplicate {
			t.Errorf("%d jobs without a ring: inserted %v, error %v; want the jobs and the error", n, in, err)
		}
		for _, j := range jobs {
			if w.int(`SELECT count(*) FROM doze.jobs WHERE id = $1`, j.ID) != 1 {
				t.Errorf("job %s is not there", j.ID)
			}
		}
	}
	w.exec(`ALTER TABLE doze.gone RENAME TO queues`)
}

// A duplicate key, or a repeat of an insert that was committed, asks for a drain all the same:
// whoever inserted it first may not have lived to ring.
func TestInsertAndRing_RingsForADuplicateToo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.queue("q")
	job := newJob(keyed("k", 0))
	w.insert(job)
	in, fire, err := w.store.InsertAndRing(w.ctx, w.conn(), []queue.NewJob{job}, true, bell)
	w.must(err)
	if !in[0].Duplicate || !same(fire, []string{"q"}) {
		t.Errorf("got %+v, fire %v", in, fire)
	}
}

// One round trip: all messages are written before the first answer is awaited.
func TestInsertAndRing_IsOneRoundTrip(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.queue("q")
	cfg := w.pool.Config().ConnConfig
	var trips roundTrips
	cfg.DialFunc = trips.dial(cfg.DialFunc)
	conn, err := pgx.ConnectConfig(w.ctx, cfg)
	w.must(err)
	defer conn.Close(context.Background())
	job := newJob()
	for what, call := range map[string]func() error{
		"insert and ring": func() error {
			_, _, err := w.store.InsertAndRing(w.ctx, conn, newJobs(3), false, bell)
			return err
		},
		"start": func() error {
			_, err := w.store.Start(w.ctx, conn, newSlot("q"), "", 10)
			return err
		},
		"exit": func() error {
			_, _, err := w.store.Exit(w.ctx, conn, newSlot("q"), []queue.Outcome{{ID: job.ID, Token: uuid.New(), State: queue.Done}})
			return err
		},
	} {
		trips.reset()
		w.must(call())
		if n := trips.count(); n != 1 {
			t.Errorf("%s took %d round trips", what, n)
		}
	}
}

// Bulk inserts of the same keys and ids in opposite order wait for each other in one order.
func TestInsert_OfOverlappingBatchesNeverDeadlocks(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.MaxConns(9))
	conn := w.conn()
	w.queue("q")
	const keys, rounds = 10, 60
	var stop, inserts sync.WaitGroup
	done := make(chan struct{})
	stop.Add(1)
	go func() { // a drain that finishes them all the while
		defer stop.Done()
		slot, err := queue.Slot{Queue: "q", Token: uuid.New(), Lease: time.Minute}, error(nil)
		if _, err = w.store.Start(w.ctx, conn, slot, "", 1); err != nil {
			t.Error(err)
			return
		}
		var outcomes []queue.Outcome
		for {
			select {
			case <-done:
				return
			default:
			}
			taken, err := w.store.Step(w.ctx, conn, slot, outcomes, 50, false, "")
			if err != nil {
				t.Error("finish and claim:", err)
				return
			}
			outcomes = nil
			for _, c := range taken.Claimed {
				outcomes = append(outcomes, outcome(c, queue.Done))
			}
		}
	}()
	for worker := range 4 {
		inserts.Add(1)
		go func() {
			defer inserts.Done()
			for round := range rounds {
				jobs := make([]queue.NewJob, keys)
				for i := range jobs {
					n := i
					if worker%2 == 1 {
						n = keys - 1 - i
					}
					jobs[i] = newJob(keyed(fmt.Sprintf("key-%d", n), 0))
				}
				if worker >= 2 { // ids in the order of their keys, or against it
					for i := range keys / 2 {
						jobs[i].ID, jobs[keys-1-i].ID = jobs[keys-1-i].ID, jobs[i].ID
					}
				}
				in, err := w.store.Insert(w.ctx, w.pool, jobs, round%2 == 0)
				if err != nil {
					t.Error("insert:", err)
					return
				}
				for i := range in {
					if in[i].ID == uuid.Nil || !in[i].Duplicate && in[i].ID != jobs[i].ID {
						t.Errorf("job %d: %+v", i, in[i])
					}
				}
			}
		}()
	}
	inserts.Wait()
	close(done)
	stop.Wait()
}

// The same jobs, inserted by two clients in opposite order.
func TestInsert_OfTheSameIDsInOppositeOrderNeverDeadlocks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for range 30 {
		jobs := newJobs(50)
		back := make([]queue.NewJob, len(jobs))
		for i := range jobs {
			back[len(jobs)-1-i] = jobs[i]
		}
		var both sync.WaitGroup
		for _, list := range [][]queue.NewJob{jobs, back} {
			both.Add(1)
			go func() {
				defer both.Done()
				if _, err := w.store.Insert(w.ctx, w.pool, list, false); err != nil {
					t.Error(err)
				}
			}()
		}
		both.Wait()
	}
	if n := w.int(`SELECT count(*) FROM doze.jobs`); n != 30*50 {
		t.Errorf("%d jobs, want %d", n, 30*50)
	}
}
