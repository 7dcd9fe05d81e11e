package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// foreignLoad begins to watch; the function returned says which part of the processors was used by others than this program and
// what it started.
func foreignLoad() func() float64 {
	began, all, own := time.Now(), busyTicks(), ownTicks()
	return func() float64 {
		const perSecond = 100
		used := float64(busyTicks()-all) - float64(ownTicks()-own)
		return max(used, 0) / perSecond / (time.Since(began).Seconds() * float64(runtime.NumCPU()))
	}
}

// busyTicks is what all processors worked.
func busyTicks() (sum int64) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(text), "\n")
	for i, field := range strings.Fields(line)[1:] {
		if i == 3 || i == 4 || i > 6 { // idle, waiting for a disk, guests
			continue
		}
		n, _ := strconv.ParseInt(field, 10, 64)
		sum += n
	}
	return sum
}

// ownTicks is what this process and its descendants worked, those that have ended included.
func ownTicks() (sum int64) {
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	parent, ticks := map[int]int{}, map[int]int64{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		parent[pid], _ = strconv.Atoi(fields[1])
		for _, f := range fields[11:15] {
			n, _ := strconv.ParseInt(f, 10, 64)
			ticks[pid] += n
		}
	}
	self := os.Getpid()
	for pid, n := range ticks {
		for p := pid; p > 1; p = parent[p] {
			if p == self {
				sum += n
				break
			}
		}
	}
	return sum
}
