package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

var (
	whatFlag   = flag.String("what", "", "measures, separated by commas; default all but those that take long ("+strings.Join(longOnes(), ", ")+")")
	whoFlag    = flag.String("who", "", "contenders, separated by commas; default all")
	roundsFlag = flag.Int("rounds", 3, "rounds; the median counts")
	short      = flag.Bool("short", false, "small sizes and one round, to see that it works")
	jsonFile   = flag.String("json", "", "also write rows to this `file`")
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
}

func run(ctx context.Context) error {
	chosen, err := choose(*whatFlag, measureNames(), func(name string) bool { return slices.Contains(longOnes(), name) })
	if err != nil {
		return err
	}
	who, err := choose(*whoFlag, names(), func(string) bool { return false })
	if err != nil {
		return err
	}
	rounds := max(*roundsFlag, 1)
	if *short {
		rounds = 1
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
		table(m, figures)
		all = append(all, figures...)
	}
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

// measure runs a measure for all contenders, one after the other in each round, so that what slows the machine
// for a while slows all of them.
func (b *bench) measure(ctx context.Context, m measure, who []string, rounds int) ([]figure, error) {
	values := map[string][]float64{}
	for round := range rounds {
		for _, maker := range makers {
			if !slices.Contains(who, maker.name) || !m.fits(maker.name) {
				continue
			}
			for try := 0; ; try++ {
				load := foreignLoad()
				value, err := b.once(ctx, m, maker.name, maker.make)
				var out *unavailable
				if errors.As(err, &out) {
					break // it has no such thing
				}
				if err != nil {
					return nil, fmt.Errorf("%s: %w", maker.name, err)
				}
				foreign := load()
				disturbed := foreign > 0.15
				fmt.Printf("  %s, round %d: %s %s %s", m.name, round+1, maker.name, format(value), m.unit)
				if disturbed {
					fmt.Printf(" (others used %.0f %% of the processors)", 100*foreign)
				}
				fmt.Println()
				if disturbed && try < 2 && !*short {
					continue
				}
				values[maker.name] = append(values[maker.name], value)
				break
			}
		}
	}
	var all []figure
	for _, maker := range makers {
		if v := values[maker.name]; len(v) > 0 {
			slices.Sort(v)
			all = append(all, figure{m.name, maker.name, v[len(v)/2], m.unit, len(v)})
		}
	}
	return all, nil
}

// once runs a measure for one contender, in a database of its own.
func (b *bench) once(ctx context.Context, m measure, name string, make func() (contender, error)) (float64, error) {
	c, err := make()
	if err != nil {
		return 0, err
	}
	url, err := b.server.database(ctx, name)
	if err != nil {
		return 0, err
	}
	if m.delay > 0 {
		var stop func()
		if url, stop, err = delayed(url, m.delay); err != nil {
			return 0, err
		}
		defer stop()
	}
	if err := c.Setup(ctx, url); err != nil {
		return 0, err
	}
	defer c.Close()
	runtime.GC() // of the contender before
	return m.run(ctx, b, c, url)
}

// table prints one measure's medians, and what they are of Doze's.
func table(m measure, figures []figure) {
	if len(figures) == 0 {
		return
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "%s\t%s\tDoze is\t\n", m.name, m.unit)
	doze := 0.0
	for _, f := range figures {
		if f.Who == "doze" {
			doze = f.Value
		}
	}
	for _, f := range figures {
		ratio := "-"
		if doze > 0 && f.Value > 0 {
			if times := doze / f.Value; m.less {
				ratio = fmt.Sprintf("%.2f x as long", times)
			} else {
				ratio = fmt.Sprintf("%.2f x", times)
			}
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t\n", f.Who, format(f.Value), ratio)
	}
	_ = w.Flush()
}

func format(v float64) string {
	if v < 100 {
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

// moduleVersion is that of a module this program was built with.
func moduleVersion(path string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return path
	}
	for _, m := range info.Deps {
		if m.Path == path {
			return path + " " + m.Version
		}
	}
	return path
}
