package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"github.com/dozequeue/doze/bench/node"
)

// nodeQueue is a queue written in JavaScript, run by a script of its own. What the script measures is measured inside of
// it, so the start of Node.js is not counted.
type nodeQueue struct {
	name, module, settings string
	dir, url               string
	bytes                  int
	took, cpu              time.Duration
}

func newGraphile() (contender, error) {
	return newNode("graphile", "graphile-worker", "concurrentJobs 96, localQueue 500, completions in batches, pool of 20")
}

func newPgBoss() (contender, error) {
	return newNode("pgboss", "pg-boss", "fetch and complete in batches of 1000, two loops; supervise off; useListenNotify for latency")
}

func newNode(name, module, settings string) (contender, error) {
	dir, err := node.Modules()
	var out *node.Missing
	if errors.As(err, &out) {
		return nil, missing("%s", out.Why)
	}
	if err != nil {
		return nil, err
	}
	return &nodeQueue{name: name, module: module, settings: settings, dir: dir, bytes: 100}, nil
}

func (n *nodeQueue) Name() string     { return n.name }
func (n *nodeQueue) Settings() string { return n.settings }

func (n *nodeQueue) Version() string { return node.Version(n.dir, n.module) }

func (n *nodeQueue) PayloadSize(bytes int) { n.bytes = bytes }

// command is the script's own, for an action.
func (n *nodeQueue) command(ctx context.Context, action string, count int) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "node", n.name+".mjs", action, n.url, fmt.Sprint(count), fmt.Sprint(n.bytes))
	cmd.Dir = n.dir
	return cmd
}

type nodeResult struct {
	Seconds float64   `json:"seconds"`
	CPU     float64   `json:"cpu"`
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
	n.took, n.cpu = time.Duration(r.Seconds*float64(time.Second)), time.Duration(r.CPU*float64(time.Second))
	return r, nil
}

// Took is how long the last action took by the script's own clock.
func (n *nodeQueue) Took() time.Duration { return n.took }

// CPU is what the last action used, by the script's own clock.
func (n *nodeQueue) CPU() time.Duration { return n.cpu }

func (n *nodeQueue) Connect(_ context.Context, url string) error {
	n.url = url
	return nil
}

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
