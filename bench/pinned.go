package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// pinnedLine is how one contender fared, a point a minute.
type pinnedLine struct {
	who     string
	every   time.Duration
	backlog []float64 // jobs
	waits   []float64 // ms, p50 of the time from enqueue to start
}

var plotFile = flag.String("plot", "pinned.svg", "`file` for the plot of the measure pinned")

// perSecond is how many jobs come in, as in the published figures for queues beside long transactions.
const perSecond = 800

// pinned has jobs come in while a snapshot is open all the time, so that vacuum may remove nothing. Each contender runs as
// it would in production, and is asked each minute what waits.
func pinned(ctx context.Context, b *bench, c contender, url string) (float64, error) {
	w, ok := c.(waker)
	if !ok {
		return 0, missing("it is not woken")
	}
	length := *forFlag
	if *short {
		length = 3 * time.Second
	}
	every := length / 15
	holder, err := pgx.Connect(ctx, url)
	if err != nil {
		return 0, err
	}
	defer func() { _ = holder.Close(context.WithoutCancel(ctx)) }()
	if _, err := holder.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1"); err != nil {
		return 0, err
	}
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
		return 0, err
	}
	defer stop()
	line := pinnedLine{who: c.Name(), every: every}
	const producers = 8
	jobs := make(chan struct{}, perSecond)
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
	tick := time.NewTicker(time.Second / perSecond)
	defer tick.Stop()
	end := time.Now().Add(length)
	look := time.Now().Add(every)
	for now := range tick.C {
		select {
		case err := <-errs:
			return 0, err
		case jobs <- struct{}{}:
		default: // the producers do not keep up, which shows as fewer jobs
		}
		if now.After(look) {
			mu.Lock()
			backlog := added - started
			line.backlog = append(line.backlog, float64(backlog))
			line.waits = append(line.waits, quantile(waits, 0.5).Seconds()*1000)
			p99 := quantile(waits, 0.99).Seconds() * 1000
			fmt.Printf("    %s after %v: %d jobs came, %d wait, enqueue to start p50 %.1f ms, p99 %.1f ms\n", c.Name(), time.Until(end.Add(-length)).Abs().Round(time.Second), added, backlog, line.waits[len(line.waits)-1], p99)
			waits = nil
			mu.Unlock()
			look = now.Add(every)
		}
		if now.After(end) {
			break
		}
	}
	close(jobs)
	all.Wait()
	b.pinned = append(b.pinned, line)
	if *short {
		return line.backlog[len(line.backlog)-1], nil
	}
	if err := os.WriteFile(*plotFile, []byte(plot(b.pinned)), 0o644); err != nil {
		return 0, err
	}
	return line.backlog[len(line.backlog)-1], nil
}

// pinnedSingle has one job at a time, each with a drain of its own, under an open snapshot: the rows of the queue, the slot
// and the alarm are updated for each, too.
func pinnedSingle(ctx context.Context, _ *bench, c contender, url string) (float64, error) {
	d := c.(*dozeQueue)
	length := min(*forFlag, 10*time.Minute)
	if *short {
		length = 2 * time.Second
	}
	holder, err := pgx.Connect(ctx, url)
	if err != nil {
		return 0, err
	}
	defer func() { _ = holder.Close(context.WithoutCancel(ctx)) }()
	if _, err := holder.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1"); err != nil {
		return 0, err
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var adds, drains []time.Duration
	var medians [][2]float64
	end, look := time.Now().Add(length), time.Now().Add(length/10)
	for now := range tick.C {
		began := time.Now()
		if err := d.Enqueue(ctx); err != nil {
			return 0, err
		}
		adds = append(adds, time.Since(began))
		began = time.Now()
		if err := d.Drain(ctx, 1); err != nil {
			return 0, err
		}
		drains = append(drains, time.Since(began))
		if now.After(look) {
			m := [2]float64{quantile(adds, 0.5).Seconds() * 1000, quantile(drains, 0.5).Seconds() * 1000}
			fmt.Printf("    after %v: enqueue p50 %.2f ms, drain p50 %.2f ms\n", time.Until(end.Add(-length)).Abs().Round(time.Second), m[0], m[1])
			medians, adds, drains = append(medians, m), nil, nil
			look = now.Add(length / 10)
		}
		if now.After(end) {
			break
		}
	}
	first, last := medians[0], medians[len(medians)-1]
	return max(last[0]/first[0], last[1]/first[1]), nil
}

// plot draws how many jobs waited.
func plot(lines []pinnedLine) string {
	const width, height, left, bottom = 720, 320, 70, 40
	most := 1.0
	for _, l := range lines {
		for _, v := range l.backlog {
			most = max(most, v)
		}
	}
	colors := []string{"#0b6e4f", "#777777", "#c0392b", "#2c3e8f"}
	var s strings.Builder
	fmt.Fprintf(&s, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", width, height)
	fmt.Fprintf(&s, `<rect width="%d" height="%d" fill="white"/><text x="%d" y="16">Jobs that wait, %d a second come in, a snapshot is open all the time</text>`+"\n", width, height, left, perSecond)
	fmt.Fprintf(&s, `<path d="M%d 30V%dH%d" fill="none" stroke="black"/><text x="4" y="40">%.0f</text><text x="4" y="%d">0</text>`+"\n", left, height-bottom, width-10, most, height-bottom)
	for i, l := range lines {
		var points []string
		for j, v := range l.backlog {
			x := left + float64(j+1)/float64(len(l.backlog))*(width-10-left)
			points = append(points, fmt.Sprintf("%.0f,%.0f", x, height-bottom-v/most*(height-bottom-30)))
		}
		color := colors[i%len(colors)]
		fmt.Fprintf(&s, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/><text x="%d" y="%d" fill="%s">%s</text>`+"\n", strings.Join(points, " "), color, left+20+i*90, height-12, color, l.who)
	}
	s.WriteString("</svg>\n")
	return s.String()
}
