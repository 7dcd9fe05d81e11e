package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

// coldOnes have a program under cold/, or a script, that runs the one job that waits and ends.
var coldOnes = []string{"doze", "limit", "river", "gue", "graphile", "pgboss"}

// cold is from the start of a process until its first job starts, or until it has recorded that and ended.
// The median of several starts is one round.
func cold(first bool) func(context.Context, *bench, contender, string) (float64, error) {
	return func(ctx context.Context, b *bench, c contender, url string) (float64, error) {
		var times []time.Duration
		for range max(size(1000)/50, 3) {
			if err := c.Bulk(ctx, 1); err != nil {
				return 0, err
			}
			cmd, err := b.coldCommand(ctx, c, url)
			if err != nil {
				return 0, err
			}
			cmd.Stderr = os.Stderr
			out, err := cmd.StdoutPipe()
			if err != nil {
				return 0, err
			}
			began := time.Now()
			if err := cmd.Start(); err != nil {
				return 0, err
			}
			line, _ := bufio.NewReader(out).ReadString('\n')
			took := time.Since(began)
			if err := cmd.Wait(); err != nil || line != "started\n" {
				return 0, fmt.Errorf("it said %q and ended: %w", line, err)
			}
			if !first {
				took = time.Since(began)
			}
			times = append(times, took)
		}
		slices.Sort(times)
		return times[len(times)/2].Seconds() * 1000, nil
	}
}

func (b *bench) coldCommand(ctx context.Context, c contender, url string) (*exec.Cmd, error) {
	if n, ok := c.(*nodeQueue); ok {
		return n.command(ctx, "once", 1), nil
	}
	binary, ok := b.cold[c.Name()]
	if !ok {
		binary = filepath.Join(b.server.dir, "cold-"+c.Name())
		build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", binary, "github.com/dozequeue/doze/bench/cold/"+c.Name())
		if out, err := build.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build: %w\n%s", err, out)
		}
		if info, err := os.Stat(binary); err == nil {
			fmt.Printf("  cold start of %s: a binary of %.1f MB\n", c.Name(), float64(info.Size())/1e6)
		}
		b.cold[c.Name()] = binary
	}
	return exec.CommandContext(ctx, binary, url), nil
}
