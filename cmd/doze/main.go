// Command doze runs Doze on this machine, and looks into a database that has it.
package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/alecthomas/kong"

	"github.com/dozequeue/doze/internal/serve"
)

// cli is the whole command line.
type cli struct {
	Dev       devCmd       `cmd:"" help:"Run everything in one process: a Postgres of its own, the HTTP API, drains and sweeps."`
	Migrate   migrateCmd   `cmd:"" help:"Make the tables, or bring them up to date."`
	Enqueue   enqueueCmd   `cmd:"" help:"Enqueue a job and wake its queue."`
	Drain     drainCmd     `cmd:"" help:"Drain a queue once, with the demo handlers."`
	Sweep     sweepCmd     `cmd:"" help:"Sweep once: take jobs back from vanished drains, wake queues, forget what is old."`
	Jobs      jobsCmd      `cmd:"" help:"List, show, retry or cancel jobs."`
	Queues    queuesCmd    `cmd:"" help:"List, pause, resume or set queues."`
	Schedules schedulesCmd `cmd:"" help:"List, make, pause or delete schedules."`
	Doctor    doctorCmd    `cmd:"" help:"Say what keeps the database awake, and what would keep Doze from working."`
	Cost      costCmd      `cmd:"" help:"Estimate a month's awake hours, invocations and money."`
	Key       keyCmd       `cmd:"" help:"Make a key for the HTTP API."`
	Version   versionCmd   `cmd:"" help:"Print the version."`
}

func main() {
	ctx, stop := serve.Context()
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run runs one command line and returns the exit code: 0, 1 for a failure, 2 for a wrong command
// line.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var c cli
	code := -1
	parser, err := kong.New(&c,
		kong.Name("doze"),
		kong.Description("Background jobs on Postgres that let the database sleep."),
		kong.UsageOnError(),
		kong.Writers(stdout, stderr),
		kong.Exit(func(n int) { code = n }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
	)
	if err != nil {
		fmt.Fprintln(stderr, "doze:", err)
		return 1
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	parsed, err := parser.Parse(args)
	if code >= 0 { // --help
		return code
	}
	if err != nil {
		fmt.Fprintf(stderr, "doze: %v; see doze --help\n", err)
		return 2
	}
	parsed.BindTo(ctx, (*context.Context)(nil))
	if err := parsed.Run(&output{out: stdout, log: stderr}); err != nil {
		fmt.Fprintln(stderr, "doze:", err)
		return 1
	}
	return 0
}
