package main

import (
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"text/tabwriter"
)

// table prints the medians, and beside each rival's what Doze's is of it.
func table(all []figure, who []string) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "\nmedians (in brackets: Doze's, divided by it)\t\t")
	for _, name := range who {
		fmt.Fprintf(w, "%s\t", name)
	}
	fmt.Fprintln(w)
	for i, f := range all {
		if i > 0 && all[i-1].What == f.What {
			continue // one line for each
		}
		fmt.Fprintf(w, "%s\t%s\t", f.What, f.Unit)
		doze, _ := find(all, f.What, "doze")
		for _, name := range who {
			one, ok := find(all, f.What, name)
			switch {
			case !ok:
				fmt.Fprint(w, "\t")
			case name == "doze" || doze.Value == 0 || one.Value == 0:
				fmt.Fprintf(w, "%s\t", format(one.Value))
			default:
				fmt.Fprintf(w, "%s (%.2f)\t", format(one.Value), doze.Value/one.Value)
			}
		}
		fmt.Fprintln(w)
	}
	_ = w.Flush()
}

func find(all []figure, what, who string) (figure, bool) {
	i := slices.IndexFunc(all, func(f figure) bool { return f.What == what && f.Who == who })
	if i < 0 {
		return figure{}, false
	}
	return all[i], true
}

// aim is what Doze is to reach: at least so many times what another does or, where less is better, at most. With nobody
// else, its own figure is at most that.
type aim struct {
	what, of string
	times    float64
}

var allAims = []aim{
	{"drain", "river", 5}, {"drain", "graphile", 3}, {"drain", "pgmq", 1.7}, {"drain", "limit", 0.85},
	{"drain_history", "limit", 0.8},
	{"drain_5ms", "river", 5},
	{"enqueue", "limit", 0.9}, {"enqueue", "river", 3},
	{"bulk", "limit", 0.8}, {"bulk", "river", 2.5}, {"bulk", "pgmq", 1},
	{"cold_start", "limit", 1.15}, {"cold_exit", "limit", 1.3},
	{"latency_p50", "river", 1}, {"latency_p99", "river", 1}, {"latency_p50", "graphile", 1}, {"latency_p99", "graphile", 1},
	{"latency_http_p50", "river", 1}, {"latency_http_p99", "river", 1}, {"latency_http_p50", "graphile", 1}, {"latency_http_p99", "graphile", 1},
	{"grown_drain", "", 1.2}, {"grown_single", "", 1.2},
	{"pinned_backlog", "", 0}, {"pinned_claim", "", 1.5}, {"pinned_claim_p99", "", 10}, {"pinned_single", "", 1.5},
}

// aims prints which were reached.
func aims(all []figure) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\naim\tDoze is\t")
	for _, a := range allAims {
		doze, ok := find(all, a.what, "doze")
		if !ok {
			continue
		}
		value, text := doze.Value, doze.Unit
		if a.of != "" {
			other, ok := find(all, a.what, a.of)
			if !ok && a.what == "latency_http_p50" {
				other, ok = find(all, "latency_p50", a.of)
			}
			if !ok && a.what == "latency_http_p99" {
				other, ok = find(all, "latency_p99", a.of)
			}
			if !ok || other.Value == 0 {
				continue
			}
			value, text = doze.Value/other.Value, "x "+a.of+"'s"
		}
		word, reached := "at least", value >= a.times
		if doze.less {
			word, reached = "at most", value <= a.times
		}
		fmt.Fprintf(w, "%s: %s %s %s\t%s\t%s\n", a.what, word, format(a.times), text, format(value), map[bool]string{true: "reached", false: "missed"}[reached])
	}
	_ = w.Flush()
}

func format(v float64) string {
	switch {
	case v == float64(int(v)) || v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// moduleVersion is that of a module this program was built with.
func moduleVersion(path string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return path
	}
	for _, m := range info.Deps {
		if m.Path == path {
			return m.Path + " " + m.Version
		}
	}
	return path
}
