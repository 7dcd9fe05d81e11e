package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"
)

//go:embed node/package.json node/*.mjs
var scripts embed.FS

// nodeQueue is a queue written in JavaScript, run by a script of its own. What the script measures is measured inside of
// it, so the start of Node.js is not counted.
type nodeQueue struct {
	name, module, settings string
	dir, url               string
	bytes                  int
	took                   time.Duration
}

func newGraphile() (contender, error) {
	return newNode("graphile", "graphile-worker", "concurrentJobs 96, localQueue 500, completions in batches, pool of 20")
}

func newPgBoss() (contender, error) {
	return newNode("pgboss", "pg-boss", "fetch and complete in batches of 1000, two loops; supervise off")
}

func newNode(name, module, settings string) (contender, error) {
	dir, err := nodeModules()
	if err != nil {
		return nil, err
	}
	return &nodeQueue{name: name, module: module, settings: settings, dir: dir, bytes: 100}, nil
}

// nodeModules installs the scripts and what they need into a cache folder, once for each version of them.
var nodeModules = sync.OnceValues(func() (string, error) {
	for _, tool := range []string{"node", "npm"} {
		if _, err := exec.LookPath(tool); err != nil {
			return "", missing("%s is not installed", tool)
		}
	}
	want, err := scripts.ReadFile("node/package.json")
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(want)
	dir := filepath.Join(cache, "doze-bench", hex.EncodeToString(sum[:8]))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	files, err := fs.Glob(scripts, "node/*")
	if err != nil {
		return "", err
	}
	for _, name := range files {
		text, err := scripts.ReadFile(name)
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(name)), text, 0o644); err != nil {
			return "", err
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "installed")); err == nil {
		return dir, nil
	}
	npm := exec.Command("npm", "install", "--no-audit", "--no-fund", "--loglevel=error")
	npm.Dir = dir
	if out, err := npm.CombinedOutput(); err != nil {
		return "", missing("npm install: %v: %s", err, bytes.TrimSpace(out))
	}
	return dir, os.WriteFile(filepath.Join(dir, "installed"), nil, 0o644)
})

func (n *nodeQueue) Name() string     { return n.name }
func (n *nodeQueue) Settings() string { return n.settings }

func (n *nodeQueue) Version() string {
	text, _ := os.ReadFile(filepath.Join(n.dir, "node_modules", n.module, "package.json"))
	var p struct{ Version string }
	_ = json.Unmarshal(text, &p)
	return n.module + " " + p.Version
}

func (n *nodeQueue) PayloadSize(bytes int) { n.bytes = bytes }

// command is the script's own, for an action.
func (n *nodeQueue) command(ctx context.Context, action string, count int) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "node", n.name+".mjs", action, n.url, fmt.Sprint(count), fmt.Sprint(n.bytes))
	cmd.Dir = n.dir
	return cmd
}

type nodeResult struct {
	Seconds float64   `json:"seconds"`
	Waits   []float64 `json:"waits"`
}

func (n *nodeQueue) do(ctx context.Context, action string, count int) (r nodeResult, err error) {
	cmd := n.command(ctx, action, count)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return r, fmt.Errorf("%s %s: %w: %s", n.name, action, err, bytes.TrimSpace(stderr.Bytes()))
	}
	if err := json.Unmarshal(out, &r); err != nil {
		return r, fmt.Errorf("%s %s said %q: %w", n.name, action, out, err)
	}
	n.took = time.Duration(r.Seconds * float64(time.Second))
	return r, nil
}

// Took is how long the last action took by the script's own clock.
func (n *nodeQueue) Took() time.Duration { return n.took }

func (n *nodeQueue) Setup(ctx context.Context, url string) error {
	n.url = url
	_, err := n.do(ctx, "setup", 0)
	return err
}

func (n *nodeQueue) Enqueue(context.Context) error {
	return fmt.Errorf("%s: one at a time from outside would measure Node's start", n.name)
}

// EnqueueAll adds jobs one by one, by eight producers.
func (n *nodeQueue) EnqueueAll(ctx context.Context, count int) error {
	_, err := n.do(ctx, "enqueue", count)
	return err
}

func (n *nodeQueue) Bulk(ctx context.Context, count int) error {
	_, err := n.do(ctx, "bulk", count)
	return err
}

func (n *nodeQueue) Drain(ctx context.Context, count int) error {
	_, err := n.do(ctx, "drain", count)
	return err
}

// Latencies enqueues count jobs at 20 a second and returns how long each waited.
func (n *nodeQueue) Latencies(ctx context.Context, count int) ([]time.Duration, error) {
	r, err := n.do(ctx, "latency", count)
	var all []time.Duration
	for _, ms := range r.Waits {
		all = append(all, time.Duration(ms*float64(time.Millisecond)))
	}
	return all, err
}

func (n *nodeQueue) Close() {}
