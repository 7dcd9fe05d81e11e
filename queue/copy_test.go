package queue_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dozequeue/doze/internal/dbtest"
	"github.com/dozequeue/doze/migrations"
	"github.com/dozequeue/doze/queue"
)

// oddJobs are many jobs whose fields go to the bounds of what a copy must carry.
func oddJobs(n int) []queue.NewJob {
	jobs := newJobs(n)
	for i := range jobs {
		j := &jobs[i]
		j.Priority, j.MaxAttempts = i%21-10, 1+i%1000
		switch i % 4 {
		case 1:
			j.Payload = json.RawMessage(`{"text":"\\ \t \n \u00e9 é 🐘 \" , NULL \\N"}`)
		case 2:
			j.Payload = json.RawMessage(`"` + strings.Repeat("x", 70_000) + `"`) // more than is made at once
		case 3:
			j.Kind, j.Queue = strings.Repeat("k", 128), strings.Repeat("q", 64)
		}
	}
	return jobs
}

// A COPY must leave behind what the insert does.
func TestCopy_LeavesWhatAnInsertLeaves(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]dbtest.Option{"direct": nil, "behind PgBouncer": {dbtest.At("pooler")}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if opts != nil {
				opts = []dbtest.Option{dbtest.At(dbtest.PgBouncer(t, dbtest.URL(t)))}
			}
			w := newWorld(t, opts...)
			conn := w.conn()
			jobs := oddJobs(200)
			in, fire, err := w.store.InsertAndRing(w.ctx, conn, jobs, false, bell)
			w.must(err)
			if len(in) != 200 || len(fire) != 2 {
				t.Fatalf("%d inserted, to fire %v", len(in), fire)
			}
			for i := range in {
				if in[i].ID != jobs[i].ID || in[i].Duplicate {
					t.Errorf("job %d came to %+v", i, in[i])
				}
			}
			dump := func() string {
				return w.text(`SELECT queue || kind || priority || max_attempts || attempts || failures || (run_at = created_at) || coalesce(key, '-') || md5(payload::text)
					FROM doze.jobs ORDER BY id`)
			}
			copied := dump()
			w.exec(`DELETE FROM doze.jobs`)
			for i := range jobs { // one by one they are inserted
				w.insert(jobs[i])
			}
			if inserted := dump(); copied != inserted {
				t.Error("a copy and an insert differ")
			}
			// An id that is there: the insert takes over, and says so.
			in, _, err = w.store.InsertAndRing(w.ctx, conn, append(newJobs(150), jobs[7]), false, bell)
			w.must(err)
			if dup := in[150]; !dup.Duplicate || in[0].Duplicate || w.int(`SELECT count(*) FROM doze.jobs`) != 350 {
				t.Errorf("the job that was there came to %+v", dup)
			}
		})
	}
}

// In a caller's transaction, and as a role that may add jobs and read no payload.
func TestCopy_InATransactionOfTheEnqueueRole(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.must(migrations.Grant(w.ctx, w.conn(), w.name))
	pool := dbtest.Pool(t, dbtest.Configure(func(c *pgxpool.Config) {
		c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, "SET ROLE "+w.name+"_enqueue")
			return err
		}
	}))
	for _, commit := range []bool{false, true} {
		tx, err := pool.Begin(w.ctx)
		w.must(err)
		in, err := w.store.Insert(w.ctx, queue.Unnamed(tx), newJobs(300), false)
		w.must(err)
		if len(in) != 300 {
			t.Errorf("%d of 300", len(in))
		}
		if commit {
			w.must(tx.Commit(w.ctx))
		} else {
			w.must(tx.Rollback(w.ctx))
		}
	}
	if n := w.int(`SELECT count(*) FROM doze.jobs`); n != 300 {
		t.Errorf("%d jobs, want those of the transaction that was committed", n)
	}
}

// All or none: one job that the database refuses keeps all out.
func TestCopy_IsAllOrNone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conn := w.conn()
	jobs := newJobs(200)
	jobs[199].Kind = "not a kind"
	if in, fire, err := w.store.InsertAndRing(w.ctx, conn, jobs, false, bell); err == nil || in != nil || fire != nil {
		t.Errorf("%d inserted, to fire %v, %v; want only an error", len(in), fire, err)
	}
	ctx, cancel := context.WithTimeout(w.ctx, time.Nanosecond)
	defer cancel()
	<-ctx.Done()
	if _, _, err := w.store.InsertAndRing(ctx, w.conn(), newJobs(200), false, bell); err == nil {
		t.Error("it ignores the end of its context")
	}
	if n := w.int(`SELECT count(*) FROM doze.jobs`); n != 0 {
		t.Error(fmt.Sprint(n, " jobs, want none"))
	}
}
