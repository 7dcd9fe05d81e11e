package resident_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/dozequeue/doze/handler"
	"github.com/dozequeue/doze/queue"
)

// BenchmarkRun measures how long it takes from the call that enqueues a job to its handler, one job at a time.
func BenchmarkRun(b *testing.B) {
	w := newWorld(b)
	begun := make(chan time.Time, 1)
	w.start(w.settings(), handler.Config{}, map[string]handler.RawFunc{"k": func(context.Context, *queue.Job) error {
		begun <- time.Now()
		return nil
	}}).begun()
	var took []time.Duration
	for b.Loop() {
		now := time.Now()
		w.add("k")
		took = append(took, receive(w, begun).Sub(now))
		b.StopTimer()
		w.until("the drain has ended", func() bool {
			return w.int(`SELECT count(*) FROM doze.slots WHERE state <> 'free'`) == 0
		})
		b.StartTimer()
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms/p50")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "ms/p99")
}
