package main

import (
	"bufio"
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// coldOnes have a program under cold/, or a script, that runs the one job that waits and ends.
var coldOnes = []string{"doze", "limit", "river", "gue", "graphile", "pgboss"}

var coldKinds = []kind{{"cold_start", "ms", true}, {"cold_exit", "ms", true}, {"cold_memory", "MB", true}, {"cold_binary", "MB", true}}

// cold is from the start of a process until its first job starts, and until it has recorded that and ended: medians of 20 starts.
// Then the memory it held until that start, and the size of its binary.
func cold(ctx context.Context, b *bench, c contender, url string) ([]float64, error) {
	var starts, exits []time.Duration
	memory, binary := math.NaN(), math.NaN()
	for range max(size(20), 3) {
		if err := c.Bulk(ctx, 1); err != nil {
			return nil, err
		}
		cmd, err := b.coldCommand(ctx, c, url)
		if err != nil {
			return nil, err
		}
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			return nil, err
		}
		began := time.Now()
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		line, _ := bufio.NewReader(out).ReadString('\n')
		starts = append(starts, time.Since(began))
		if held := mostMemory(cmd.Process.Pid) / 1e6; !math.IsNaN(held) {
			memory = held
		}
		if err := cmd.Wait(); err != nil || line != "started\n" {
			return nil, fmt.Errorf("it said %q and ended: %w", line, err)
		}
		exits = append(exits, time.Since(began))
		if info, err := os.Stat(b.cold[c.Name()]); err == nil {
			binary = float64(info.Size()) / 1e6
		}
	}
	return []float64{milliseconds(quantile(starts, 0.5)), milliseconds(quantile(exits, 0.5)), memory, binary}, nil
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
		b.cold[c.Name()] = binary
	}
	return exec.CommandContext(ctx, binary, url), nil
}
