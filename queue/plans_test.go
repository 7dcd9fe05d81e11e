package queue_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/dozequeue/doze/queue"
)

// The head of a queue, as claim.sql is given it.
var head, ids0 = make([]time.Time, 21), slices.Repeat([]string{uuid.Nil.String()}, 21)

// plan is what EXPLAIN tells of one statement.
type plan struct {
	text string
	// indexes that are read, and tables that are read from end to end.
	indexes, scanned []string
}

func (w *world) explain(conn *pgx.Conn, file string, args ...any) plan {
	w.t.Helper()
	var text string
	sql := "EXPLAIN (FORMAT JSON) " + w.statement(file)
	if err := conn.QueryRow(w.ctx, sql, append([]any{pgx.QueryExecModeExec}, args...)...).Scan(&text); err != nil {
		w.t.Fatalf("explain %s: %v", file, err)
	}
	return w.plan(text)
}

// explainGeneric is the plan that serves any arguments, which PostgreSQL may choose for a
// statement that a connection has prepared.
func (w *world) explainGeneric(conn *pgx.Conn, file string, args int) plan {
	w.t.Helper()
	sql := "PREPARE s AS " + w.statement(file) + ";SET plan_cache_mode = force_generic_plan; EXPLAIN (FORMAT JSON) EXECUTE s"
	if args > 0 {
		sql += "(NULL" + strings.Repeat(", NULL", args-1) + ")"
	}
	results, err := conn.PgConn().Exec(w.ctx, sql+"; DEALLOCATE s; RESET plan_cache_mode").ReadAll()
	if err != nil {
		w.t.Fatalf("explain %s: %v", file, err)
	}
	return w.plan(string(results[2].Rows[0][0]))
}

func (w *world) plan(text string) plan {
	w.t.Helper()
	var roots []struct {
		Plan map[string]any
	}
	w.must(json.Unmarshal([]byte(text), &roots))
	p := plan{text: text}
	p.walk(roots[0].Plan)
	return p
}

func (p *plan) walk(node map[string]any) {
	if name, ok := node["Index Name"].(string); ok && !slices.Contains(p.indexes, name) {
		p.indexes = append(p.indexes, name)
	}
	if node["Node Type"] == "Seq Scan" {
		p.scanned = append(p.scanned, node["Relation Name"].(string))
	}
	children, _ := node["Plans"].([]any)
	for _, child := range children {
		p.walk(child.(map[string]any))
	}
}

// fill makes a busy installation: live jobs in many queues and all priorities, most of them due
// later, some running, a few reaped; and history.
func (w *world) fill(jobs int) {
	w.exec(`INSERT INTO doze.queues (queue) SELECT 'q' || g FROM generate_series(0, 999) g`)
	w.exec(`INSERT INTO doze.bells (queue) SELECT queue FROM doze.queues`)
	w.exec(`INSERT INTO doze.slots (queue, slot) SELECT queue, generate_series(1, slots) FROM doze.queues`)
	w.exec(`INSERT INTO doze.jobs (id, queue, kind, priority, run_at, payload, token, locked_until, attempts, reaps)
		SELECT gen_random_uuid(), 'q' || g % 50, 'k', g % 21 - 10,
		       now() + CASE WHEN g % 10 = 0 THEN -1 ELSE 1 END * make_interval(secs => g), '{"n":1}',
		       CASE WHEN g % 100 = 0 THEN gen_random_uuid() END,
		       CASE WHEN g % 100 = 0 THEN now() + interval '1 minute' ELSE '-infinity' END, (g % 100 = 0)::int, (g % 1000 = 10)::int
		  FROM generate_series(1, $1::integer) g`, jobs)
	w.exec(`INSERT INTO doze.history (id, bucket, queue, kind, state, priority, run_at, attempts, failures, max_attempts, reaps, created_at, finished_at, payload)
		SELECT gen_random_uuid(), CASE WHEN g % 20 = 0 THEN -1 ELSE g % 8 END, 'q' || g % 50, 'k', CASE WHEN g % 20 = 0 THEN 'failed' ELSE 'done' END,
		       0, now(), 1, 0, 10, 0, now(), now() - make_interval(secs => g), '{"n":1}'
		  FROM generate_series(1, $1::integer / 2) g`, jobs)
	w.exec(`INSERT INTO doze.keys (kind, key, job_id, hold, expires_at)
		SELECT 'k', g::text, gen_random_uuid(), '0', CASE WHEN g % 10 = 0 THEN now() ELSE 'infinity' END FROM generate_series(1, $1::integer / 10) g`, jobs)
}

// pages is how many a statement touches, and how many rows it returns.
func (w *world) pages(conn *pgx.Conn, file string, args ...any) (touched, rows int) {
	w.t.Helper()
	var text string
	sql := "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) " + w.statement(file)
	w.must(conn.QueryRow(w.ctx, sql, append([]any{pgx.QueryExecModeExec}, args...)...).Scan(&text))
	var roots []struct {
		Plan struct {
			Hit  int     `json:"Shared Hit Blocks"`
			Read int     `json:"Shared Read Blocks"`
			Rows float64 `json:"Actual Rows"`
		}
	}
	w.must(json.Unmarshal([]byte(text), &roots))
	p := roots[0].Plan
	return p.Hit + p.Read, int(p.Rows)
}

// outcomes as finish and extend get them, for running jobs.
func (w *world) fences(n int) (ids []string, attempts []int32, tokens, states []string, delays []int64, failed []int32, errs []string) {
	for i := range n {
		ids = append(ids, uuid.NewString())
		attempts = append(attempts, 1)
		tokens = append(tokens, uuid.NewString())
		states = append(states, []string{"done", "queued", "failed"}[i%3])
		delays = append(delays, 0)
		failed = append(failed, 0)
		errs = append(errs, "")
	}
	return
}

// Each statement is served by the index that its file names, and none reads all jobs; with
// statistics, and on tables that were filled since they were last analyzed.
func TestPlans_UseTheirIndexes(t *testing.T) {
	t.Parallel()
	for _, analyzed := range []bool{true, false} {
		w := newWorld(t)
		w.exec(`ALTER TABLE doze.jobs SET (autovacuum_enabled = off)`) // or it would analyze them under us
		w.fill(200_000)                                                // where the planner has no reason to read them all
		if analyzed {
			w.exec(`ANALYZE doze.jobs, doze.history, doze.keys, doze.slots, doze.bells, doze.queues`)
		}
		conn := w.conn()
		token, q := uuid.NewString(), "q20"
		type statement struct {
			file    string
			indexes []string
			args    []any
		}
		all := []statement{
			{"claim", []string{"jobs_ready", "jobs_pkey"}, []any{q, token, token, int64(1000), int32(100), "", head, ids0}},
			{"claim", []string{"jobs_ready", "jobs_pkey"}, []any{q, token, token, int64(1000), int32(1000), token, head, ids0}},
			{"claim_alone", []string{"jobs_alone", "jobs_pkey"}, []any{q, token, token, int64(1000)}},
			{"due", []string{"jobs_ready"}, nil},
			{"reap", []string{"jobs_ready", "jobs_pkey"}, []any{int32(100)}},
			{"next", []string{"jobs_ready"}, []any{q}},
			{"get", []string{"jobs_pkey", "history_0_pkey", "history_failed_pkey"}, []any{token}},
			{"list", []string{"jobs_pkey", "history_0_pkey", "history_failed_pkey"}, []any{"", "", "", "", int32(100)}},
			{"list", []string{"jobs_pkey", "history_0_pkey", "history_failed_pkey"}, []any{"", "", "", token, int32(100)}},
			{"ring_if_due", []string{"jobs_ready"}, []any{q, int64(1000)}},
			{"ring", []string{"queues_pkey", "bells_pkey", "slots_pkey"}, []any{q, int64(1000)}},
			{"answer_bell", []string{"queues_pkey", "bells_pkey"}, []any{q, token}},
			{"take_slot", []string{"bells_pkey", "slots_pkey"}, []any{q, token, int64(1000), int32(queue.SchemaVersion)}},
			{"mark_slot", []string{"slots_pkey"}, []any{q, token, "open", int64(1000)}},
			{"free_slot", []string{"slots_pkey"}, []any{q, token}},
			{"lower_floor", []string{"bells_pkey"}, []any{q, time.Now()}},
			{"lower_floor_to_oldest", []string{"bells_pkey", "jobs_ready"}, []any{q}},
			{"lock_floor", []string{"bells_pkey"}, []any{q}},
			{"raise_floor", []string{"bells_pkey", "jobs_ready"}, []any{q}},
			{"arm", []string{"bells_pkey"}, []any{q, int64(1000), token, int64(1000)}},
			{"cancel", []string{"jobs_pkey"}, []any{token}},
			{"retry", []string{"jobs_pkey"}, []any{token}},
			{"prune_failed", []string{"history_failed_finished"}, []any{int64(1000), int32(100)}},
			{"prune_keys", []string{"keys_expires"}, []any{int32(100)}},
			{"insert_one", nil, []any{token, q, "k", int32(0), int64(0), time.Time{}, int32(10), "{}"}},
		}
		for _, size := range []int{1, 100, 1000} {
			ids, attempts, tokens, states, delays, failed, errs := w.fences(size)
			all = append(all,
				statement{"finish", []string{"jobs_pkey"}, []any{ids, attempts, tokens, states, delays, failed, errs}},
				statement{"finish_done", []string{"jobs_pkey"}, []any{ids, attempts, tokens, q}},
				statement{"extend", []string{"jobs_pkey"}, []any{ids, attempts, tokens, int64(1000)}})
			texts, numbers, longs := make([]string, size), make([]int32, size), make([]int64, size)
			for _, repeat := range []bool{true, false} {
				all = append(all, statement{"insert", nil, []any{ids, texts, texts, numbers, longs, make([]time.Time, size), numbers, texts, longs, texts, repeat}})
			}
		}
		check := func(s statement, p plan, how string) {
			t.Helper()
			for _, index := range s.indexes {
				if !slices.Contains(p.indexes, index) {
					t.Errorf("%s (%s, analyzed: %v): uses %v, want %s\n%s", s.file, how, analyzed, p.indexes, index, p.text)
				}
			}
			if slices.Contains(p.scanned, "jobs") {
				t.Errorf("%s (%s, analyzed: %v) reads every job\n%s", s.file, how, analyzed, p.text)
			}
			for _, table := range p.scanned {
				// A bulk repeat may well read a history that is not much larger than itself.
				if strings.HasPrefix(table, "history_") && table != "history_failed" && s.file != "insert" {
					t.Errorf("%s (%s, analyzed: %v) reads all of %s\n%s", s.file, how, analyzed, table, p.text)
				}
			}
		}
		for _, s := range all {
			// As a drain runs them: see by_index.sql and in_order.sql.
			_, err := conn.Exec(w.ctx, "SET enable_seqscan = "+map[bool]string{true: "off", false: "on"}[strings.HasPrefix(s.file, "finish") || s.file == "claim" || s.file == "extend"])
			w.must(err)
			check(s, w.explain(conn, s.file, s.args...), "custom")
			check(s, w.explainGeneric(conn, s.file, len(s.args)), "generic")
		}
	}
}

// A burst after a quiet time, with the statistics of the quiet time: the claim walks its index
// and stops, rather than sort the whole backlog for each batch, and the finish looks its jobs up.
func TestPlans_ADrainNeverReadsTheBacklog(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec(`ALTER TABLE doze.jobs SET (autovacuum_enabled = off)`)
	w.fill(20_000)
	w.exec(`VACUUM ANALYZE doze.jobs`)
	w.exec(`INSERT INTO doze.jobs (id, queue, kind, payload) SELECT gen_random_uuid(), 'q20', 'k', '{}' FROM generate_series(1, 20000)`)
	conn := w.conn()
	slot, _ := w.start(conn, "q20", 0)
	claim := func() plan {
		return w.explain(conn, "claim", "q20", slot.Token.String(), uuid.NewString(), int64(1000), int32(1000), "", head, ids0)
	}
	if p := claim(); !strings.Contains(p.text, `"Sort"`) {
		t.Log("the planner would not sort here even if it were let; the test shows less than it should")
	}
	_, err := conn.Exec(w.ctx, "BEGIN")
	w.must(err)
	taken, err := w.store.Step(w.ctx, conn, slot, nil, 1000, false, "")
	w.must(err)
	// What the claim has set holds until its transaction ends, so this is the plan that it had.
	p := claim()
	if len(taken.Claimed) != 1000 || strings.Contains(p.text, `"Sort"`) || len(p.scanned) != 0 || !slices.Contains(p.indexes, "jobs_ready") || !slices.Contains(p.indexes, "jobs_pkey") {
		t.Errorf("claimed %d by this plan:\n%s", len(taken.Claimed), p.text)
	}
	_, err = conn.Exec(w.ctx, "COMMIT")
	w.must(err)

	var outcomes []queue.Outcome
	for _, c := range taken.Claimed {
		outcomes = append(outcomes, outcome(c, queue.Done))
	}
	ids, attempts, tokens, states, delays, failed, errs := w.fences(1000)
	for what, finish := range map[string]func() error{
		"step":      func() error { _, err := w.store.Step(w.ctx, conn, slot, outcomes, 0, false, ""); return err },
		"exit":      func() error { _, _, err := w.store.Exit(w.ctx, conn, slot, outcomes); return err },
		"hand over": func() error { _, _, err := w.store.HandOver(w.ctx, conn, slot, outcomes, bell); return err },
	} {
		_, err := conn.Exec(w.ctx, "BEGIN")
		w.must(err)
		w.must(finish())
		if p := w.explain(conn, "finish_done", ids, attempts, tokens, "q20"); len(p.scanned) != 0 || !slices.Contains(p.indexes, "jobs_pkey") {
			t.Errorf("the finish of a %s in which all are done had this plan:\n%s", what, p.text)
		}
		if p := w.explain(conn, "finish", ids, attempts, tokens, states, delays, failed, errs); len(p.scanned) != 0 || !slices.Contains(p.indexes, "jobs_pkey") {
			t.Errorf("the finish of a %s had this plan:\n%s", what, p.text)
		}
		_, err = conn.Exec(w.ctx, "ROLLBACK")
		w.must(err)
	}
	for _, setting := range []string{"enable_sort", "enable_seqscan"} {
		var now string
		w.must(conn.QueryRow(w.ctx, "SHOW "+setting).Scan(&now))
		if now != "on" {
			t.Errorf("%s outlives its transaction, and would be the next client's behind a pooler", setting)
		}
	}
}

// Statistics from when there was a backlog, which has gone since: the looks go by index then, too.
func TestPlans_TheLooksDoNotReadWhatABacklogLeft(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec(`ALTER TABLE doze.jobs SET (autovacuum_enabled = off)`)
	w.queue("q")
	w.exec(`INSERT INTO doze.jobs (id, queue, kind, payload) SELECT gen_random_uuid(), 'q', 'k', to_json(repeat('x', 2000)) FROM generate_series(1, 20000)`)
	w.exec(`ANALYZE doze.jobs`)
	w.exec(`DELETE FROM doze.jobs`)
	conn := w.conn()
	_, err := conn.Exec(w.ctx, "SET enable_seqscan = off") // as a drain has it for the last look: see in_order.sql
	w.must(err)
	for _, look := range []struct {
		file string
		args []any
	}{{"next", []any{"q"}}, {"ring_if_due", []any{"q", int64(1000)}}, {"due", nil}} {
		for how, p := range map[string]plan{"custom": w.explain(conn, look.file, look.args...), "generic": w.explainGeneric(conn, look.file, len(look.args))} {
			if slices.Contains(p.scanned, "jobs") || !slices.Contains(p.indexes, "jobs_ready") {
				t.Errorf("%s (%s) reads every job:\n%s", look.file, how, p.text)
			}
		}
	}
}

// How many pages a claim touches must not depend on what waits: not on jobs due later, not on other
// queues.
func TestPlans_AClaimTouchesFewPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fill(50_000)
	w.exec(`VACUUM ANALYZE doze.jobs`)
	conn := w.conn()
	token := uuid.NewString()
	w.exec(`UPDATE doze.slots SET state = 'open', token = $1::text::uuid, locked_until = now() + interval '1 hour' WHERE queue = 'q7' AND slot = 1`, token)
	w.exec(`UPDATE doze.slots SET state = 'open', token = $1::text::uuid, locked_until = now() + interval '1 hour' WHERE queue = 'q10' AND slot = 1`, token)
	// q7 has a thousand jobs, none of them due; q10 has due ones in each priority.
	for _, c := range []struct {
		what, file string
		args       []any
		most, rows int
	}{
		{"claim of nothing", "claim", []any{"q7", token, uuid.NewString(), int64(1000), int32(100), "", head, ids0}, 150, 0},
		{"claim of 10", "claim", []any{"q10", token, uuid.NewString(), int64(1000), int32(10), "", head, ids0}, 200, 10},
		{"claim of nothing that runs alone", "claim_alone", []any{"q7", token, uuid.NewString(), int64(1000)}, 20, 0},
		{"last look at what is due later", "next", []any{"q7"}, 350, 1},
	} {
		if n, rows := w.pages(conn, c.file, c.args...); n > c.most || rows != c.rows {
			t.Errorf("%s: %d rows, %d pages; want %d rows and at most %d pages", c.what, rows, n, c.rows, c.most)
		} else {
			t.Logf("%s: %d pages", c.what, n)
		}
	}
}

// Beside a snapshot that stays open no version of a row is removed. A drain's looks must not meet them all: not those of the bell
// and the slots, which each wake updates, nor the jobs that came and went.
func TestPlans_AnOldSnapshotCostsFewPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.queue("q")
	old, err := w.pool.BeginTx(w.ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	w.must(err)
	defer func() { _ = old.Rollback(context.WithoutCancel(w.ctx)) }()
	_, err = old.Exec(w.ctx, "SELECT 1")
	w.must(err)

	const wakes = 1000
	conn := w.conn()
	for range wakes {
		rang, err := w.store.Ring(w.ctx, conn, "q", time.Now().Add(time.Hour), bell)
		if err != nil || !rang {
			t.Fatal(rang, err)
		}
		slot, _ := w.start(conn, "q", 0)
		_, _, err = w.store.Exit(w.ctx, conn, slot, nil)
		w.must(err)
	}
	jobs := newJobs(wakes, func(j *queue.NewJob) { j.RunAt = time.Now().Add(-time.Hour) })
	_, _, err = w.store.InsertAndRing(w.ctx, conn, jobs, false, bell)
	w.must(err)
	slot, taken := w.start(conn, "q", wakes)
	var done []queue.Outcome
	for _, c := range taken.Claimed {
		done = append(done, outcome(c, queue.Done))
	}
	if _, err := w.store.Step(w.ctx, conn, slot, done, 0, false, ""); err != nil || len(done) != wakes {
		t.Fatal(len(done), err)
	}
	_, err = w.store.Step(w.ctx, conn, slot, nil, 1, false, "") // from the head, so it raises the floor
	w.must(err)
	w.exec(`ANALYZE doze.bells, doze.slots, doze.jobs`)

	if n := w.int(`SELECT pg_relation_size('doze.bells') / 8192`); n < 10 {
		t.Fatalf("the bells have %d pages: this is to be about many versions", n)
	}
	_, err = conn.Exec(w.ctx, "SET enable_seqscan = off; SET enable_sort = off", pgx.QueryExecModeSimpleProtocol)
	w.must(err)
	for _, c := range []struct {
		file string
		args []any
	}{
		{"ring", []any{"q", int64(1000)}},
		{"ring_if_due", []any{"q", int64(1000)}},
		{"answer_bell", []any{"q", ""}},
		{"take_slot", []any{"q", uuid.NewString(), int64(1000), int32(queue.SchemaVersion)}},
		{"claim", []any{"q", slot.Token.String(), uuid.NewString(), int64(1000), int32(100), "", head, ids0}},
		{"claim_alone", []any{"q", slot.Token.String(), uuid.NewString(), int64(1000)}},
		{"mark_slot", []any{"q", slot.Token.String(), "open", int64(1000)}},
		{"next", []any{"q"}},
		{"raise_floor", []any{"q"}},
		{"lower_floor", []any{"q", time.Now()}},
		{"watch", []any{"q", slot.Token.String(), int64(1000), uuid.NewString(), int64(1000)}},
		{"arm", []any{"q", int64(1000), uuid.NewString(), int64(1000)}},
		{"unarm", []any{"q", uuid.NewString()}},
		{"unring", []any{"q"}},
		{"free_slot", []any{"q", slot.Token.String()}},
	} {
		// A wake's versions since the row last moved on are met: some hundreds, in a few pages.
		if n, _ := w.pages(conn, c.file, c.args...); n > 200 {
			t.Errorf("%s: %d pages", c.file, n)
		} else {
			t.Logf("%s: %d pages", c.file, n)
		}
	}
}
