//go:build unix

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dozequeue/doze/enqueue"
	"github.com/dozequeue/doze/internal/lambdatest"
	"github.com/dozequeue/doze/queue"
)

// full says whether to run these tests at their full size, which takes minutes.
var full = os.Getenv("DOZE_TEST_FULL") != ""

// buildSlow builds the handler function with the handlers of testdata/register.go.
func buildSlow(t *testing.T) string {
	t.Helper()
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {
		filepath.Join(here, "..", "..", "functions", "handler", "register.go"): filepath.Join(here, "testdata", "register.go"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "overlay.json")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	return buildAs(t, "functions/handler with slow jobs", "functions/handler", lambdaTags, "-overlay="+file)
}

// insertMany stores n jobs without waking anybody.
func insertMany(t *testing.T, ctx context.Context, db *pgxpool.Pool, kind string, n int) {
	t.Helper()
	store, err := queue.NewStore("")
	if err != nil {
		t.Fatal(err)
	}
	for n > 0 {
		jobs := make([]queue.NewJob, min(n, 5000))
		for i := range jobs {
			jobs[i] = queue.NewJob{ID: uuid.Must(uuid.NewV7()), Queue: "default", Kind: kind, MaxAttempts: 10, Payload: json.RawMessage("{}")}
		}
		if _, err := store.Insert(ctx, db, jobs, false); err != nil {
			t.Fatal(err)
		}
		n -= len(jobs)
	}
}

// attempts says how often the finished jobs were run.
func attempts(t *testing.T, ctx context.Context, db *pgxpool.Pool) (done, atMostTwice, failures int) {
	t.Helper()
	err := db.QueryRow(ctx, "SELECT count(*), count(*) FILTER (WHERE attempts <= 2), coalesce(sum(failures), 0) FROM doze.history WHERE state = 'done'").Scan(&done, &atMostTwice, &failures)
	if err != nil {
		t.Fatal(err)
	}
	return done, atMostTwice, failures
}

// A backlog that outlives many functions: each hands over to the next, past the 16 that Lambda's loop detection
// allows, and where that cuts the chain an alarm begins another.
func TestFunctionsOnLambdaHandOverALongBacklog(t *testing.T) {
	for name, allowed := range map[string]bool{"loops allowed": true, "loops cut": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			n, lives := 10_000, time.Second
			if full {
				n, lives = 100_000, 5*time.Second
			}
			var log printed
			f := lambdatest.Function{Log: &log, Bootstrap: buildSlow(t), Timeout: lives, AllowLoop: allowed, Env: []string{"DOZE_CONCURRENCY=50"}}
			// Its minute takes three seconds, so an alarm for the end of a lease is early, and one drain too many.
			api, url, lambda, scheduler := withAlarmsOn(t, f, 20)
			db := pool(t, url)
			store, err := queue.NewStore("")
			if err != nil {
				t.Fatal(err)
			}
			const slots = 1 // so that there is one chain
			if err := store.Configure(ctx, db, "default", queue.Settings{Slots: slots}); err != nil {
				t.Fatal(err)
			}
			insertMany(t, ctx, db, "slow", n-1)
			begun := time.Now()
			postJob(t, api, `{"kind":"slow"}`)
			eventually(t, ctx, "all jobs have finished", func() (bool, string) {
				left := live(t, ctx, db, "doze")
				return left == 0, fmt.Sprintf("%d live, %+v", left, lambda.Counters("Handler"))
			})
			if err := lambda.WaitIdle(ctx); err != nil {
				t.Fatal(err)
			}
			c := lambda.Counters("Handler")
			t.Logf("%d jobs: %+v; alarms %+v", n, c, scheduler.Counters())
			done, atMostTwice, failures := attempts(t, ctx, db)
			if done != n || atMostTwice < n*99/100 || failures > n/100 {
				t.Errorf("%d done, %d of them with at most two attempts, %d failures; want all of %d, hardly any run again", done, atMostTwice, failures, n)
			}
			if c.Invocations < 17 || c.Invocations > 200 {
				t.Errorf("%d drains; want more than 16 in a row, and no flood", c.Invocations)
			}
			if c.TimedOut > 0 || c.Errors > 0 {
				t.Errorf("%+v; want none that is killed or fails", c)
			}
			// Others may come and find no slot. Those that had one took turns: but for a moment after it is given up.
			if all, held := time.Since(begun), heldSlots(t, log.String()); held > all*slots*11/10 {
				t.Errorf("drains with a slot took %v together in %v; want no more at once than slots", held, all)
			}
			if cut := c.Looped > 0; cut == allowed {
				t.Errorf("%d were cut by loop detection", c.Looped)
			}
		})
	}
}

// heldSlots is how long the drains took together that had a slot, by what they logged.
func heldSlots(t *testing.T, log string) (sum time.Duration) {
	t.Helper()
	for line := range strings.Lines(log) {
		var said struct {
			Msg    string        `json:"msg"`
			NoSlot bool          `json:"no_slot"`
			Took   time.Duration `json:"took"`
		}
		if json.Unmarshal([]byte(line), &said) == nil && said.Msg == "drained" && !said.NoSlot {
			sum += said.Took
		}
	}
	if sum == 0 {
		t.Fatal("no drain logged what it did")
	}
	return sum
}

// A flood of enqueues, and beside it one of wakes that are forged, doubled, or about nothing: each costs a drain
// that finds nothing and starts no other.
func TestFunctionsOnLambdaStandAFlood(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	n, forged := 4_000, 400
	if full {
		n, forged = 100_000, 10_000
	}
	const atOnce = 8
	_, url, lambda, scheduler := withAlarmsOn(t, lambdatest.Function{Bootstrap: buildSlow(t), Timeout: 30 * time.Second, Concurrency: atOnce, AllowLoop: true,
		MaxEventAge: 6 * time.Hour, Faults: lambdatest.Faults{Duplicate: lambdatest.Fraction(0.5, 1)}}, 20)
	db := pool(t, url)
	fired := &counted{lambda: lambda}
	client, err := enqueue.New(db, fired, enqueue.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for p := range 8 {
		all.Go(func() {
			for i := range n / 8 {
				if _, err := client.AddJob(ctx, "nothing", nil); err != nil {
					t.Errorf("enqueue %d of producer %d: %v", i, p, err)
					return
				}
			}
		})
	}
	all.Go(func() {
		for i := range forged {
			lambda.FireAndForget("Handler", []byte([]string{
				`{"v":1,"queue":"default","reason":"enqueue"}`, `{"v":1,"queue":"default","reason":"handoff","hop":900}`,
				`{"v":1,"queue":"default","reason":"alarm","alarm":"00000000-0000-4000-8000-000000000000"}`, `{"queue":"nobody's"}`, `{"v":1,"queue":"another"}`, `[]`,
			}[i%6]))
			runtime.Gosched()
		}
	})
	all.Wait()
	eventually(t, ctx, "all jobs have finished", func() (bool, string) {
		left := live(t, ctx, db, "doze")
		return left == 0, fmt.Sprintf("%d live, %+v", left, lambda.Counters("Handler"))
	})
	if err := lambda.WaitIdle(ctx); err != nil {
		t.Fatal(err)
	}
	c := lambda.Counters("Handler")
	t.Logf("%d jobs, %d wakes for them, %d forged: %+v", n, fired.n, forged, c)
	done, _, failures := attempts(t, ctx, db)
	if done != n/8*8 || failures != 0 {
		t.Errorf("%d done with %d failures, want %d", done, failures, n/8*8)
	}
	// Only the wakes of the enqueues may start others. A third of the forged ones are not wakes.
	if alarms := scheduler.Counters().Invoked; c.MaxConcurrent > atOnce || c.Events > forged+alarms+4*fired.n+10 || c.Errors > forged {
		t.Errorf("%+v; want at most %d at once, and no wakes but the %d forged ones, %d of alarms and some for each of %d", c, atOnce, forged, alarms, fired.n)
	}
	if fired.n > n/10 {
		t.Errorf("%d enqueues fired %d times; want that most find somebody on the way", n, fired.n)
	}
}

// counted is a trigger that counts what it fires at the double.
type counted struct {
	lambda *lambdatest.Server
	mu     sync.Mutex
	n      int
}

func (c *counted) Fire(_ context.Context, wake queue.Wake) error {
	text, err := json.Marshal(wake)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.n++
	c.mu.Unlock()
	c.lambda.FireAndForget("Handler", text)
	return nil
}
