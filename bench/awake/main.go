// Command awake plays a day's trace, compressed, against a Postgres that really suspends, and says how long each queue
// keeps it awake, beside the least that any queue could: the union of [work, work + timeout].
//
//	go run ./awake                                      Doze, a trace of five minutes, suspended after 5 s
//	go run ./awake -who doze,river -rule connections    where an open connection keeps it awake
//	go run ./awake -who all -rule queries,connections   each by both rules, one after the other: an hour
//	go run ./awake -length 90s -timeout 3s              a quick look
//
// Each queue has a Postgres of its own and runs at the defaults of its documentation; what differs is printed. The workers of a
// rival run throughout, as they do in production; Doze's are goroutines that stand for functions. The three drains that
// vanish are Doze's alone: the others take a dead worker's jobs back after a quarter of an hour to four hours.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dozequeue/doze/bench/node"
	"github.com/dozequeue/doze/internal/pgdev"
	"github.com/dozequeue/doze/internal/sleepy"
)

var (
	traceLength = flag.Duration("length", 5*time.Minute, "length of the trace")
	timeout     = flag.Duration("timeout", 5*time.Second, "suspend timeout")
	seed        = flag.Uint64("seed", 1, "seed of the trace")
	whoFlag     = flag.String("who", "doze", "queues, separated by commas, or all: "+strings.Join(names(), ", "))
	ruleFlag    = flag.String("rule", "queries", "what keeps the database awake, separated by commas: queries, connections")
	verbose     = flag.Bool("v", false, "print each thing that happens while nothing is due, when the database wakes, and Doze's log")
	asJSON      = flag.Bool("json", false, "print a line of JSON for each")
)

const clock = "15:04:05.000"

// logger for what -v prints.
func logger() *slog.Logger {
	if !*verbose {
		return nil
	}
	return slog.New(slog.NewTextHandler(os.Stderr, nil))
}

// contender is a queue under test.
type contender interface {
	settings() string
	retry() time.Duration  // after the first failure
	offset() time.Duration // at which the schedule for each two minutes ticks
	// start makes its tables and starts what runs its jobs.
	start(ctx context.Context, url string, l *ledger) error
	// add adds a job, and tries again if the database has gone.
	add(ctx context.Context, j job) error
	// left is a query for how many jobs of the trace are not recorded as done.
	left() string
	stop(ctx context.Context) error
}

var makers = []struct {
	name string
	make func(rule sleepy.Rule) (contender, error)
}{
	{"doze", func(rule sleepy.Rule) (contender, error) { return &dozeQueue{rule: rule}, nil }},
	{"river", func(sleepy.Rule) (contender, error) { return &riverQueue{}, nil }},
	{"river-poll", func(sleepy.Rule) (contender, error) { return &riverQueue{pollOnly: true}, nil }},
	{"graphile", func(sleepy.Rule) (contender, error) {
		return newNode(nodeQueue{
			name: "graphile", module: "graphile-worker", about: "listens, and looks each 2 s; its retry after 2.7 s cannot be set",
			sql: "SELECT count(*) FROM graphile_worker.jobs WHERE task_identifier IN ('ok', 'once')", after: 2718 * time.Millisecond,
		})
	}},
	{"pgboss", func(sleepy.Rule) (contender, error) {
		return newNode(nodeQueue{
			name: "pgboss", module: "pg-boss", about: "looks each 2 s, in batches of 25 (its default is 1)",
			sql: "SELECT count(*) FROM pgboss.job WHERE name IN ('ok', 'once') AND state <> 'completed'", after: retryAfter,
		})
	}},
}

func newNode(n nodeQueue) (contender, error) {
	var err error
	n.dir, err = node.Modules()
	return &n, err
}

func names() (all []string) {
	for _, m := range makers {
		all = append(all, m.name)
	}
	return all
}

func moduleVersion(path string) string {
	info, _ := debug.ReadBuildInfo()
	for _, m := range info.Deps {
		if m.Path == path {
			return m.Version
		}
	}
	return "unknown"
}

type report struct {
	Who             string  `json:"who"`
	Rule            string  `json:"rule"`
	Settings        string  `json:"settings"`
	Seconds         float64 `json:"seconds"`
	AwakeSeconds    float64 `json:"awake_seconds"`
	IdealSeconds    float64 `json:"ideal_seconds"`
	Ratio           float64 `json:"ratio"`
	Wakes           int     `json:"wakes"`
	Jobs            int     `json:"jobs"`
	Done            int     `json:"done"`
	Left            int     `json:"left"`  // not recorded as done
	Again           int     `json:"again"` // runs of jobs that had run
	Early           int     `json:"early"`
	LatestMS        int64   `json:"latest_ms"`
	Messages        int     `json:"messages"`
	QuietSeconds    float64 `json:"quiet_seconds"`
	QuietMessages   int     `json:"quiet_messages"`
	QuietWakes      int     `json:"quiet_wakes"`
	postgresVersion string
	trouble         map[string]int
}

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "awake:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	who := strings.Split(*whoFlag, ",")
	if *whoFlag == "all" {
		who = names()
	}
	for _, name := range who {
		if !slices.Contains(names(), name) {
			return fmt.Errorf("-who %q: want some of %s", name, strings.Join(names(), ", "))
		}
	}
	if *traceLength < time.Minute {
		return fmt.Errorf("-length %v: want at least 1m", *traceLength)
	}
	var all []*report
	for rule := range strings.SplitSeq(*ruleFlag, ",") {
		for _, m := range makers {
			if !slices.Contains(who, m.name) {
				continue
			}
			c, err := m.make(sleepy.Rule(rule))
			var missing *node.Missing
			if errors.As(err, &missing) {
				fmt.Fprintf(os.Stderr, "%s is left out: %s\n", m.name, missing.Why)
				continue
			}
			if err != nil {
				return err
			}
			r, err := play(ctx, c, m.name, sleepy.Rule(rule))
			if err != nil {
				return fmt.Errorf("%s by the rule of %s: %w", m.name, rule, err)
			}
			fmt.Fprintf(os.Stderr, "%s by the rule of %s: %s\n", m.name, rule, r.Settings)
			for _, text := range slices.Sorted(maps.Keys(r.trouble)) {
				fmt.Fprintf(os.Stderr, "\treports %d times: %s\n", r.trouble[text], text)
			}
			if r.Left > 0 || r.Again > 0 {
				fmt.Fprintf(os.Stderr, "\t%d jobs are not recorded as done, %d runs of jobs that had run\n", r.Left, r.Again)
			}
			all = append(all, r)
		}
	}
	if len(all) == 0 {
		return nil
	}
	if *asJSON {
		for _, r := range all {
			if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
				return err
			}
		}
		return nil
	}
	fmt.Printf("PostgreSQL %s, suspended after %v; %s, %d processors, %s\n", all[0].postgresVersion, *timeout, runtime.Version(), runtime.NumCPU(), time.Now().Format(time.DateOnly))
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "WHO\tRULE\tTRACE\tAWAKE\tSHARE\tIDEAL\tRATIO\tWAKES\tDONE\tEARLY\tLATEST\tNOTHING DUE\tMESSAGES THEN\tWAKES THEN")
	for _, r := range all {
		fmt.Fprintf(w, "%s\t%s\t%.0f s\t%.1f s\t%.1f %%\t%.1f s\t%.3f\t%d\t%d of %d\t%d\t%d ms\t%.1f s\t%d\t%d\n", r.Who, r.Rule, r.Seconds, r.AwakeSeconds,
			100*r.AwakeSeconds/r.Seconds, r.IdealSeconds, r.Ratio, r.Wakes, r.Done, r.Jobs, r.Early, r.LatestMS, r.QuietSeconds, r.QuietMessages, r.QuietWakes)
	}
	return w.Flush()
}

// play has one queue live through the trace.
func play(ctx context.Context, c contender, name string, rule sleepy.Rule) (*report, error) {
	dir, err := os.MkdirTemp("", "doze-awake-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, err
	}
	proxy, err := sleepy.New(sleepy.Config{Server: pgdev.Config{DataDir: filepath.Join(dir, "postgres"), Durable: true}, Timeout: *timeout, Rule: rule, Logger: logger()})
	if err != nil {
		return nil, err
	}
	defer proxy.Close()
	url := proxy.URL("postgres")
	r := &report{Who: name, Rule: string(rule), Settings: c.settings(), Seconds: traceLength.Seconds()}
	if err := ask(ctx, url, "SHOW server_version", &r.postgresVersion); err != nil {
		return nil, err
	}

	jobs := trace(*seed, *traceLength)
	if name != "doze" {
		jobs = slices.DeleteFunc(jobs, func(j job) bool { return j.Killed })
	}
	ticks := map[string]every{"each-minute": {time.Minute, 0}, "twice": {2 * time.Minute, c.offset()}}
	l := newLedger(jobs, c.retry(), ticks)
	if err := c.start(ctx, url, l); err != nil {
		return nil, err
	}
	if name == "doze" { // a rival may never let it
		if err := proxy.Wait(ctx, sleepy.Asleep); err != nil {
			return nil, err
		}
	}

	before := proxy.Status()
	began := time.Now()
	end := began.Add(*traceLength)
	l.mu.Lock()
	l.began, l.end = began, end
	l.mu.Unlock()
	samples := sampler(proxy)
	for _, j := range jobs {
		if err := sleep(ctx, began.Add(j.At)); err != nil {
			return nil, err
		}
		if err := c.add(ctx, j); err != nil {
			return nil, err
		}
	}
	if err := sleep(ctx, end); err != nil {
		return nil, err
	}
	after := proxy.Status()
	sampled := samples()
	r.AwakeSeconds = after.AwakeSeconds - before.AwakeSeconds
	r.Wakes, r.Messages = after.Wakes-before.Wakes, after.Messages-before.Messages

	r.Jobs = len(jobs)
	for _, e := range ticks {
		r.Jobs += e.times(began, end)
	}
	for patience := time.Now().Add(time.Minute); l.doneSoFar() < r.Jobs && time.Now().Before(patience); { // what became due near the end
		if err := sleep(ctx, time.Now().Add(100*time.Millisecond)); err != nil {
			return nil, err
		}
	}
	if err := c.stop(ctx); err != nil {
		return nil, err
	}
	if err := ask(ctx, url, c.left(), &r.Left); err != nil {
		return nil, err
	}
	r.IdealSeconds = l.ideal(*timeout, began, end).Seconds()
	r.Ratio = r.AwakeSeconds / r.IdealSeconds
	stretches := l.quiet(*timeout, began, end)
	r.QuietSeconds = length(stretches).Seconds()
	for _, s := range within(sampled, stretches) {
		r.QuietMessages += s.messages
		r.QuietWakes += s.wakes
		if *verbose {
			fmt.Fprintf(os.Stderr, "%s %s: %s, with nothing due: %d messages, %d wakes\n", name, rule, s.at.Format(clock), s.messages, s.wakes)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r.Done, r.Again, r.Early, r.LatestMS, r.trouble = len(l.done), l.again, l.early, l.latest.Milliseconds(), l.trouble
	return r, nil
}

// ask runs a query of one row and column on a connection of its own.
func ask(ctx context.Context, url, sql string, into any) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	return conn.QueryRow(ctx, sql).Scan(into)
}

func sleep(ctx context.Context, until time.Time) error {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
