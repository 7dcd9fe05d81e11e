//go:build unix

package handler_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dozequeue/doze/handler"
	"github.com/dozequeue/doze/internal/dbtest"
	"github.com/dozequeue/doze/queue"
	"github.com/dozequeue/doze/sweeper"
)

// childEnv makes this test binary one drain of queue q, in the database and schema that it names. Its
// handlers write "begun <id>" and read a line before they return; kind poison kills the process.
const childEnv = "DOZE_HANDLER_TEST_CHILD"

func child() {
	url, schema, _ := strings.Cut(os.Getenv(childEnv), " ")
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		panic(err)
	}
	var mu sync.Mutex
	say := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Printf(format+"\n", args...)
	}
	told := make(chan struct{}) // closed when the parent says so
	go func() {
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		close(told)
	}()
	mux := kinds(map[string]handler.RawFunc{
		"k": func(_ context.Context, job *queue.Job) error {
			say("begun %s", job.ID)
			<-told
			return nil
		},
		"poison": func(context.Context, *queue.Job) error {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		},
		// Not done before the poison kills, the first time.
		"neighbour": func(_ context.Context, job *queue.Job) error {
			if job.Reaps == 0 {
				select {}
			}
			return nil
		},
	})
	drainer, err := handler.New(pool, mux, handler.Config{Schema: schema, Concurrency: 10})
	if err != nil {
		panic(err)
	}
	report, err := drainer.Drain(ctx, wakeQ)
	text, _ := json.Marshal(report)
	say("report %s %v", text, err)
}

// process is a drain in a process of its own.
type process struct {
	w   *world
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

func (w *world) process() *process {
	w.t.Helper()
	p := &process{w: w, cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), childEnv+"="+dbtest.URL(w.t)+" "+w.name)
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	w.must(err)
	p.in, err = p.cmd.StdinPipe()
	w.must(err)
	p.out = bufio.NewScanner(out)
	w.must(p.cmd.Start())
	stop := context.AfterFunc(w.ctx, func() { _ = p.cmd.Process.Kill() })
	w.t.Cleanup(func() {
		stop()
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	})
	return p
}

// begun waits until so many handlers run.
func (p *process) begun(n int) {
	p.w.t.Helper()
	for range n {
		if !p.out.Scan() || !strings.HasPrefix(p.out.Text(), "begun ") {
			p.w.t.Fatalf("the process says %q, %v", p.out.Text(), p.out.Err())
		}
	}
}

// report waits for the end; nil if the process was killed.
func (p *process) report() *handler.Drained {
	p.w.t.Helper()
	var report *handler.Drained
	for p.out.Scan() {
		if text, ok := strings.CutPrefix(p.out.Text(), "report "); ok {
			report = new(handler.Drained)
			p.w.must(json.NewDecoder(strings.NewReader(text)).Decode(report))
			if !strings.HasSuffix(text, " <nil>") {
				p.w.t.Errorf("the process reports %s", text)
			}
		}
	}
	_ = p.cmd.Wait()
	return report
}

func (p *process) signal(s syscall.Signal) {
	p.w.t.Helper()
	p.w.must(p.cmd.Process.Signal(s))
}

// held are outcomes with the fences of the jobs that run now, as their owner would send them.
func (w *world) held() []queue.Outcome {
	w.t.Helper()
	rows, err := w.pool.Query(w.ctx, queue.Qualify(`SELECT id::text, attempts, token::text FROM doze.jobs WHERE token IS NOT NULL`, w.name))
	w.must(err)
	defer rows.Close()
	var all []queue.Outcome
	for rows.Next() {
		var id, token string
		o := queue.Outcome{State: queue.Done}
		w.must(rows.Scan(&id, &o.Attempts, &token))
		o.ID, o.Token = uuid.MustParse(id), uuid.MustParse(token)
		all = append(all, o)
	}
	w.must(rows.Err())
	return all
}

func (w *world) sweep() sweeper.Swept {
	w.t.Helper()
	s, err := sweeper.New(w.pool, sweeper.Config{Schema: w.name})
	w.must(err)
	swept, err := s.Sweep(w.ctx)
	w.must(err)
	return swept
}

// alone is a handler that counts how many run at once.
type alone struct{ running, most, ran atomic.Int32 }

func (a *alone) run(context.Context, *queue.Job) error {
	defer a.running.Add(-1)
	a.ran.Add(1)
	n := a.running.Add(1)
	for old := a.most.Load(); n > old && !a.most.CompareAndSwap(old, n); old = a.most.Load() {
	}
	return nil
}

func TestCrash_AKilledDrainsJobsRunAgainOneByOne(t *testing.T) {
	t.Parallel()
	const n = 6
	w := newWorld(t)
	ids := w.addMany(n, "k")
	p := w.process()
	p.begun(n)
	stale := w.held()
	p.signal(syscall.SIGKILL)
	if p.report() != nil {
		t.Fatal("it was not killed")
	}
	fresh := w.addMany(n, "fresh")
	w.expire()
	if swept := w.sweep(); swept.Reaped != n {
		t.Errorf("swept %+v", swept)
	}
	var crashed, others alone
	beside := atomic.Bool{}
	mux := kinds(map[string]handler.RawFunc{"k": func(ctx context.Context, job *queue.Job) error {
		if others.running.Load() > 0 {
			beside.Store(true)
		}
		return crashed.run(ctx, job)
	}, "fresh": others.run})
	report := w.drain(w.drainer(mux, handler.Config{}))
	if report.Done != 2*n || crashed.ran.Load() != n || crashed.most.Load() != 1 || beside.Load() {
		t.Errorf("%d at once, beside others %v; report %+v", crashed.most.Load(), beside.Load(), report)
	}
	for _, id := range append(ids, fresh...) {
		w.wants(id, queue.Done)
	}
	before := w.text(`SELECT h::text FROM doze.history h ORDER BY id`)
	if changed, err := w.store.Finish(w.ctx, w.pool, stale); err != nil || len(changed) != 0 || len(stale) != n {
		t.Errorf("the killed owner's %d results were accepted: %v, %v", len(stale), changed, err)
	}
	if w.text(`SELECT h::text FROM doze.history h ORDER BY id`) != before {
		t.Error("they changed something")
	}
}

func TestCrash_AFrozenDrainsResultsAreRefusedWhenItWakes(t *testing.T) {
	t.Parallel()
	const n = 5
	w := newWorld(t)
	w.addMany(n, "k")
	p := w.process()
	p.begun(n)
	p.signal(syscall.SIGSTOP)
	w.expire()
	w.sweep()
	var runs alone
	if report := w.drain(w.drainer(kinds(map[string]handler.RawFunc{"k": runs.run}), handler.Config{})); report.Done != n {
		t.Errorf("report %+v", report)
	}
	before := w.text(`SELECT h::text FROM doze.history h ORDER BY id`)
	p.signal(syscall.SIGCONT)
	_, err := p.in.Write([]byte("go on\n"))
	w.must(err)
	if report := p.report(); report == nil || report.Lost != n || report.Claimed != n {
		t.Errorf("the frozen one reports %+v", report)
	}
	if after := w.text(`SELECT h::text FROM doze.history h ORDER BY id`); after != before || w.done() != n || runs.most.Load() != 1 {
		t.Errorf("history was\n%s\nand is\n%s", before, after)
	}
}

func TestCrash_APoisonJobEndsAsFailedAndCostsItsNeighboursOneReap(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.configure(queue.Settings{MaxReaps: 3})
	neighbours := w.addMany(4, "neighbour")
	poison := w.add("poison")
	neighbours = append(neighbours, w.addMany(4, "neighbour")...)
	crashes := 0
	for crashes < 20 {
		if w.process().report() != nil {
			break
		}
		crashes++
		w.expire()
		w.sweep()
	}
	if crashes != 3 {
		t.Errorf("%d processes died", crashes)
	}
	if job := w.wants(poison, queue.Failed); job.Reaps != 3 || job.Failures != 0 || !strings.Contains(job.LastError, "vanished") {
		t.Errorf("%+v", job)
	}
	for _, id := range neighbours {
		if job := w.wants(id, queue.Done); job.Reaps > 1 {
			t.Errorf("a neighbour lost %d reaps", job.Reaps)
		}
	}
}
