package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"time"

	"github.com/dozequeue/doze/bench/node"
)

// nodeQueue is a queue written in JavaScript, run by node/awake.mjs.
type nodeQueue struct {
	name, module, about, sql string
	after                    time.Duration // it tries again after a failure

	dir    string
	cmd    *exec.Cmd
	input  io.WriteCloser
	ended  chan struct{}
	stderr bytes.Buffer
}

func (n *nodeQueue) settings() string { return node.Version(n.dir, n.module) + ", " + n.about }

func (n *nodeQueue) retry() time.Duration { return n.after }
func (*nodeQueue) offset() time.Duration  { return 0 } // its schedules have no seconds

// event is a line that the script says.
type event struct {
	What, Name, Text string
	ID               int
	At               int64
}

func (n *nodeQueue) start(ctx context.Context, url string, l *ledger) error {
	n.cmd = exec.CommandContext(ctx, "node", "awake.mjs", n.name, url)
	n.cmd.Dir, n.cmd.Stderr = n.dir, &n.stderr
	input, err := n.cmd.StdinPipe()
	if err != nil {
		return err
	}
	output, err := n.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	n.input, n.ended = input, make(chan struct{})
	if err := n.cmd.Start(); err != nil {
		return err
	}
	started := make(chan struct{})
	go func() {
		defer close(n.ended)
		for lines := bufio.NewScanner(output); lines.Scan(); {
			var e event
			if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
				l.complain(lines.Text())
				continue
			}
			at := time.UnixMilli(e.At)
			switch e.What {
			case "started":
				close(started)
			case "adding":
				l.adding(e.ID, at)
			case "ran":
				l.ran(e.ID, at)
			case "failed":
				l.failed(e.ID, at)
			case "ticked":
				l.ticked(e.Name, at)
			case "trouble":
				l.complain(e.Text)
			}
		}
	}()
	select {
	case <-started:
		return nil
	case <-n.ended:
		return errors.Join(errors.New("it did not start"), n.wait())
	}
}

func (n *nodeQueue) add(_ context.Context, j job) error {
	_, err := fmt.Fprintf(n.input, `{"id":%d,"once":%t,"delay":%d}`+"\n", j.ID, j.Once, j.Delay.Milliseconds())
	return err
}

func (n *nodeQueue) left() string { return n.sql }

func (n *nodeQueue) stop(context.Context) error {
	_ = n.input.Close()
	return n.wait()
}

func (n *nodeQueue) wait() error {
	<-n.ended
	if err := n.cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w: %s", n.name, err, bytes.TrimSpace(n.stderr.Bytes()))
	}
	return nil
}
