package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"time"
)

var (
	whatFlag   = flag.String("what", "", "measures, separated by commas: "+strings.Join(measureNames(), ", ")+"; default all but those that take long ("+strings.Join(longOnes(), ", ")+")")
	whoFlag    = flag.String("who", "", "contenders, separated by commas: "+strings.Join(names(), ", ")+"; default all")
	roundsFlag = flag.Int("rounds", 3, "rounds; the median counts")
	short      = flag.Bool("short", false, "small sizes and one round, to see that it works")
	jsonFile   = flag.String("json", "", "also write rows to this `file`")
	cpuProfile = flag.String("cpuprofile", "", "write a profile of the last drain, enqueue or bulk enqueue, of this process alone, to this `file`")
	forFlag    = flag.Duration("for", 15*time.Minute, "length of the measure pinned")
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// bench is one run.
type bench struct {
	server *server
	cold   map[string]string // binaries, by contender
	pinned []pinnedLine
}

// figure is what one measure of one contender came to.
type figure struct {
	What   string  `json:"what"`
	Who    string  `json:"who"`
	Value  float64 `json:"value"`
	Unit   string  `json:"unit"`
	Rounds int     `json:"rounds"`
	less   bool
}

func run(ctx context.Context) error {
	chosen, err := choose(*whatFlag, measureNames(), func(name string) bool { return !*short && slices.Contains(longOnes(), name) })
	if err != nil {
		return err
	}
	who, err := choose(*whoFlag, names(), func(name string) bool { return *short && slices.Contains(nodeOnes, name) })
	if err != nil {
		return err
	}
	rounds := max(*roundsFlag, 1)
	if *short {
		rounds = 1
		if *whoFlag == "" {
			fmt.Printf("%s are left out: they need Node.js, and were not asked for with -who\n", strings.Join(nodeOnes, " and "))
		}
	}
	s, err := startServer(ctx)
	if err != nil {
		return err
	}
	defer s.close(context.WithoutCancel(ctx))
	version, err := s.text(ctx, "SELECT current_setting('server_version')")
	if err != nil {
		return err
	}
	fmt.Printf("PostgreSQL %s, fsync on, %s; %s, %d processors, %s\n", version, strings.Join(serverSettings, ", "), runtime.Version(), runtime.NumCPU(), time.Now().Format(time.DateOnly))
	b := &bench{server: s, cold: map[string]string{}}
	for _, m := range makers {
		if !slices.Contains(who, m.name) {
			continue
		}
		c, err := m.make()
		var out *unavailable
		switch {
		case errors.As(err, &out):
			fmt.Printf("%s is left out: %v\n", m.name, err)
			who = slices.DeleteFunc(who, func(n string) bool { return n == m.name })
		case err != nil:
			return err
		default:
			fmt.Printf("%s: %s; %s\n", m.name, c.Version(), c.Settings())
		}
	}
	var all []figure
	for _, m := range measures {
		if !slices.Contains(chosen, m.name) {
			continue
		}
		figures, err := b.measure(ctx, m, who, rounds)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		all = append(all, figures...)
		if err := save(all); err != nil { // a run that is broken off has told something, too
			return err
		}
	}
	table(all, who)
	aims(all)
	return nil
}

func save(all []figure) error {
	if *jsonFile == "" {
		return nil
	}
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(*jsonFile, append(text, '\n'), 0o644)
}

// choose reads a list of names, or takes all but those that are left out unless they are asked for.
func choose(list string, all []string, leave func(string) bool) (chosen []string, err error) {
	if list == "" {
		return slices.DeleteFunc(slices.Clone(all), leave), nil
	}
	for name := range strings.SplitSeq(list, ",") {
		if !slices.Contains(all, name) {
			return nil, fmt.Errorf("%q: want some of %s", name, strings.Join(all, ", "))
		}
		chosen = append(chosen, name)
	}
	return chosen, nil
}

// A round in which others used more of the processors than quietBelow is repeated, at most so often and unless it took
// too long; then the quietest counts.
const (
	quietBelow = 0.1
	repeats    = 2
	tooLong    = 2 * time.Minute
)

// measure runs a measure for all contenders, one after the other in each round, so that what slows the machine
// for a while slows all of them.
func (b *bench) measure(ctx context.Context, m measure, who []string, rounds int) (all []figure, err error) {
	values := map[string][][]float64{}
	for round := range rounds {
		for _, maker := range makers {
			if !slices.Contains(who, maker.name) || !m.fits(maker.name) {
				continue
			}
			var best []float64
			least := 0.0
			var took time.Duration
			for try := 0; try == 0 || try <= repeats && least > quietBelow && took < tooLong && !*short; try++ {
				awaitQuiet()
				began := time.Now()
				load := foreignLoad()
				got, err := b.once(ctx, m, maker.name, maker.make)
				var out *unavailable
				if errors.As(err, &out) {
					break // it has no such thing
				}
				if err != nil {
					return nil, fmt.Errorf("%s: %w", maker.name, err)
				}
				foreign := load()
				took = time.Since(began)
				fmt.Printf("  %s, round %d: %s", m.name, round+1, maker.name)
				for i, v := range got {
					if !math.IsNaN(v) {
						fmt.Printf("  %s %s", format(v), m.figures[i].unit)
					}
				}
				if foreign > quietBelow {
					fmt.Printf(" (others used %.0f %% of the processors)", 100*foreign)
				}
				fmt.Println()
				if best == nil || foreign < least {
					best, least = got, foreign
				}
			}
			if best != nil {
				values[maker.name] = append(values[maker.name], best)
			}
		}
	}
	for i, f := range m.figures {
		for _, maker := range makers {
			var v []float64
			for _, got := range values[maker.name] {
				if !math.IsNaN(got[i]) {
					v = append(v, got[i])
				}
			}
			if len(v) > 0 {
				slices.Sort(v)
				all = append(all, figure{f.name, maker.name, v[len(v)/2], f.unit, len(v), f.less})
			}
		}
	}
	return all, nil
}

// awaitQuiet waits until others use little of the processors, for half a minute at most.
func awaitQuiet() {
	for tries := 0; tries < 30 && !*short; tries++ {
		load := foreignLoad()
		if time.Sleep(time.Second); load() < quietBelow {
			return
		}
	}
}

// once runs a measure for one contender, in a database of its own.
func (b *bench) once(ctx context.Context, m measure, name string, make func() (contender, error)) ([]float64, error) {
	c, err := make()
	if err != nil {
		return nil, err
	}
	url, drop, err := b.server.database(ctx, name)
	if err != nil {
		return nil, err
	}
	defer drop()
	if m.delay > 0 {
		var stop func()
		if url, stop, err = delayed(url, m.delay); err != nil {
			return nil, err
		}
		defer stop()
	}
	if err := c.Setup(ctx, url); err != nil {
		return nil, err
	}
	defer c.Close()
	runtime.GC() // of the contender before
	return m.run(ctx, b, c, url)
}
