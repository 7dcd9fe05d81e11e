package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// pinnedLine is how one contender fared, a point a minute.
type pinnedLine struct {
	who     string
	backlog []float64 // jobs
	claims  []float64 // ms, p50 in the server
}

// pinnedRate is how many jobs come in a second, as in the published figures for queues beside long transactions.
const pinnedRate = 800

var pinnedKinds = []kind{
	{"pinned_backlog", "jobs, most in a minute", true}, {"pinned_claim", "times as long at the end", true},
	{"pinned_claim_p50", "ms at the end", true}, {"pinned_claim_p99", "ms at the end", true}, {"pinned_start_p50", "ms at the end", true},
}

// pin opens a snapshot, so that from then on vacuum may remove nothing.
func pin(ctx context.Context, url string) (end func(), err error) {
	holder, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	end = func() { _ = holder.Close(context.WithoutCancel(ctx)) }
	if _, err := holder.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1"); err != nil {
		end()
		return nil, err
	}
	return end, nil
}

// pinned has jobs come in while a snapshot is open all the time. Each contender runs as it would in production, and is asked
// each minute what waits, and the server how long its claims take.
func pinned(ctx context.Context, b *bench, c contender, url string) ([]float64, error) {
	w, ok := c.(waker)
	if !ok {
		return nil, missing("it is not woken")
	}
	length := *forFlag
	if *short {
		length = 1500 * time.Millisecond
	}
	every := length / 15
	claims, stopLog, err := b.server.durations(ctx, url, c.(interface{ ClaimMark() string }).ClaimMark())
	if err != nil {
		return nil, err
	}
	defer stopLog()
	unpin, err := pin(ctx, url)
	if err != nil {
		return nil, err
	}
	defer unpin()
	var mu sync.Mutex
	var waits []time.Duration
	started, added := 0, 0
	stop, err := w.Watch(ctx, func(stamp time.Time) {
		mu.Lock()
		defer mu.Unlock()
		started++
		waits = append(waits, time.Since(stamp))
	})
	if err != nil {
		return nil, err
	}
	defer stop()
	const producers = 8
	jobs := make(chan struct{}, pinnedRate)
	var all sync.WaitGroup
	errs := make(chan error, producers)
	for range producers {
		all.Go(func() {
			for range jobs {
				if err := w.Stamp(ctx, time.Now()); err != nil {
					errs <- err
					return
				}
				mu.Lock()
				added++
				mu.Unlock()
			}
		})
	}
	defer all.Wait()
	defer close(jobs)
	line := pinnedLine{who: c.Name()}
	most, claimFirst, claimLast, claimTail, startLast := 0.0, 0.0, 0.0, 0.0, 0.0
	began := time.Now()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	sent, look := 0, began.Add(every)
	for now := range tick.C {
		for ; sent < int(now.Sub(began).Seconds()*pinnedRate); sent++ {
			select {
			case err := <-errs:
				return nil, err
			case jobs <- struct{}{}:
			default: // the producers do not keep up, which shows as fewer jobs
			}
		}
		if now.Before(look) {
			continue
		}
		look = look.Add(every)
		took, err := claims()
		if err != nil {
			return nil, err
		}
		mu.Lock()
		backlog := float64(max(added-started, 0))
		startLast = milliseconds(quantile(waits, 0.5))
		fmt.Printf("    %s after %v: %d jobs came, %.0f wait; enqueue to start p50 %.1f ms, p99 %.1f; claims p50 %.2f ms, p99 %.2f (%d of them seen)\n", c.Name(), now.Sub(began).Round(time.Second), added, backlog,
			startLast, milliseconds(quantile(waits, 0.99)), milliseconds(quantile(took, 0.5)), milliseconds(quantile(took, 0.99)), len(took))
		waits = nil
		mu.Unlock()
		claimLast, claimTail = milliseconds(quantile(took, 0.5)), milliseconds(quantile(took, 0.99))
		if claimFirst == 0 {
			claimFirst = claimLast
		}
		// What was added and started within the last moments waits for nothing.
		if backlog > pinnedRate/10 {
			most = max(most, backlog)
		}
		line.backlog, line.claims = append(line.backlog, backlog), append(line.claims, claimLast)
		if now.Sub(began) >= length-every/2 {
			break
		}
	}
	b.pinned = append(b.pinned, line)
	if !*short {
		if err := os.WriteFile("pinned.svg", []byte(plot(b.pinned, every)), 0o644); err != nil {
			return nil, err
		}
	}
	return []float64{most, claimLast / claimFirst, claimLast, claimTail, startLast}, nil
}

// sampled is which part of the transactions the server logs.
const sampled = 0.05

// durations has the server log how long the statements of some transactions take, planning included. The function it returns says how
// long those with the mark took since it was last called.
func (s *server) durations(ctx context.Context, url, mark string) (since func() ([]time.Duration, error), stop func(), err error) {
	rate := sampled
	if *short {
		rate = 1
	}
	for _, setting := range []string{fmt.Sprintf("log_transaction_sample_rate = %v", rate), "log_line_prefix = '%p|'"} {
		if err := s.exec(ctx, "ALTER SYSTEM SET "+setting); err != nil {
			return nil, nil, err
		}
	}
	if err := s.exec(ctx, "SELECT pg_reload_conf()"); err != nil {
		return nil, nil, err
	}
	file, err := os.Open(s.pg.LogFile())
	if err != nil {
		return nil, nil, err
	}
	if _, err := file.Seek(0, io.SeekEnd); err != nil {
		return nil, nil, err
	}
	read := bufio.NewReader(file)
	var entry, line string // lines of one entry, and the beginning of the next
	planned := map[string]time.Duration{}
	since = func() (took []time.Duration, err error) {
		for {
			part, err := read.ReadString('\n')
			line += part
			if errors.Is(err, io.EOF) {
				return took, nil
			}
			if err != nil {
				return nil, err
			}
			if !strings.HasPrefix(line, "\t") {
				if match := logged.FindStringSubmatch(entry); match != nil && strings.Contains(entry, mark) {
					ms, _ := strconv.ParseFloat(match[2], 64)
					d := time.Duration(ms * float64(time.Millisecond))
					if match[3] == "execute" {
						took = append(took, planned[match[1]]+d)
						delete(planned, match[1])
					} else {
						planned[match[1]] += d
					}
				}
				entry = ""
			}
			entry, line = entry+line, ""
		}
	}
	return since, func() {
		file.Close()
		_ = s.exec(context.WithoutCancel(ctx), "ALTER SYSTEM RESET log_transaction_sample_rate")
		_ = s.exec(context.WithoutCancel(ctx), "SELECT pg_reload_conf()")
	}, nil
}

var logged = regexp.MustCompile(`^(\d+)\|LOG:  duration: ([0-9.]+) ms  (parse|bind|execute) `)

// pinnedSingle has one job at a time, each with a drain of its own, under an open snapshot: the rows of the queue, the slot
// and the alarm are updated for each, too.
func pinnedSingle(ctx context.Context, _ *bench, c contender, url string) ([]float64, error) {
	d := c.(*dozeQueue)
	length := min(*forFlag, 10*time.Minute)
	if *short {
		length = 2 * time.Second
	}
	unpin, err := pin(ctx, url)
	if err != nil {
		return nil, err
	}
	defer unpin()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var adds, drains []time.Duration
	var medians [][2]float64
	began := time.Now()
	look := began.Add(length / 10)
	for now := range tick.C {
		before := time.Now()
		if err := d.Enqueue(ctx); err != nil {
			return nil, err
		}
		adds = append(adds, time.Since(before))
		before = time.Now()
		if err := d.Drain(ctx, 1); err != nil {
			return nil, err
		}
		drains = append(drains, time.Since(before))
		if now.Before(look) {
			continue
		}
		look = look.Add(length / 10)
		m := [2]float64{milliseconds(quantile(adds, 0.5)), milliseconds(quantile(drains, 0.5))}
		fmt.Printf("    after %v: enqueue p50 %.2f ms, drain p50 %.2f ms\n", now.Sub(began).Round(time.Second), m[0], m[1])
		medians, adds, drains = append(medians, m), nil, nil
		if now.Sub(began) >= length {
			break
		}
	}
	first, last := medians[0], medians[len(medians)-1]
	return []float64{max(last[0]/first[0], last[1]/first[1])}, nil
}

// plot draws how many jobs waited, and how long claims took.
func plot(lines []pinnedLine, every time.Duration) string {
	const width, height, left, bottom, apart = 720, 240, 70, 40, 260
	var s strings.Builder
	fmt.Fprintf(&s, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", width, height+apart)
	fmt.Fprintf(&s, `<rect width="%d" height="%d" fill="white"/>`+"\n", width, height+apart)
	colors := []string{"#0b6e4f", "#777777", "#c0392b", "#2c3e8f"}
	for part, title := range []string{
		fmt.Sprintf("Jobs that wait: %d a second come in, and a snapshot is open for %v", pinnedRate, (15 * every).Round(time.Second)), "A claim in the server, median, ms",
	} {
		of := func(l pinnedLine) []float64 { return [][]float64{l.backlog, l.claims}[part] }
		top := part * apart
		most := 1.0
		for _, l := range lines {
			for _, v := range of(l) {
				most = max(most, v)
			}
		}
		fmt.Fprintf(&s, `<text x="%d" y="%d">%s</text><path d="M%d %dV%dH%d" fill="none" stroke="black"/><text x="4" y="%d">%s</text><text x="4" y="%d">0</text>`+"\n",
			left, top+16, title, left, top+30, top+height-bottom, width-10, top+40, format(most), top+height-bottom)
		for i, l := range lines {
			var points []string
			for j, v := range of(l) {
				x := left + float64(j+1)/float64(len(of(l)))*(width-10-left)
				points = append(points, fmt.Sprintf("%.0f,%.0f", x, float64(top+height-bottom)-v/most*(height-bottom-30)))
			}
			color := colors[i%len(colors)]
			fmt.Fprintf(&s, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/><text x="%d" y="%d" fill="%s">%s</text>`+"\n", strings.Join(points, " "), color, left+20+i*90, top+height-12, color, l.who)
		}
	}
	s.WriteString("</svg>\n")
	return s.String()
}
