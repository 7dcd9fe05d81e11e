package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const ticksPerSecond = 100

// foreignLoad begins to watch; the function returned says which part of the processors was used by others than this program and
// what it started.
func foreignLoad() func() float64 {
	began, all, own := time.Now(), busyTicks(), ownTicks()
	return func() float64 {
		used := float64(busyTicks()-all) - float64(ownTicks()-own)
		return max(used, 0) / ticksPerSecond / (time.Since(began).Seconds() * float64(runtime.NumCPU()))
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
		if i == 3 || i == 4 || i > 7 { // idle, waiting for a disk, guests, which count as user
			continue
		}
		n, _ := strconv.ParseInt(field, 10, 64)
		sum += n
	}
	return sum
}

// ownTicks is what this process and its descendants worked, those that have ended included.
func ownTicks() int64 { return ticksOf(os.Getpid()) }

func ticksOf(root int) (sum int64) {
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
	for pid, n := range ticks {
		for p := pid; p > 1; p = parent[p] {
			if p == root {
				sum += n
				break
			}
		}
	}
	return sum
}

// cpu is what the server and its processes worked.
func (s *server) cpu() time.Duration {
	text, err := os.ReadFile(filepath.Join(s.dir, "data", "postmaster.pid"))
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(line)
	if err != nil {
		return 0
	}
	return time.Duration(ticksOf(pid)) * time.Second / ticksPerSecond
}

// ownCPU is what this process worked.
func ownCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// mostMemory is what a process held at most up to now, in bytes. (Its rusage would count this process too, from before its exec.)
func mostMemory(pid int) float64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "VmHWM:" {
			kilobytes, _ := strconv.ParseFloat(fields[1], 64)
			return kilobytes * 1024
		}
	}
	return math.NaN()
}
