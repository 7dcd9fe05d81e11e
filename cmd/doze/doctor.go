package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dozequeue/doze/internal/database"
	"github.com/dozequeue/doze/internal/doctor"
)

type doctorCmd struct {
	target
	jsonFlag
	SuspendAfter time.Duration `default:"5m" help:"Suspend time of the database."`
	SuspendRule  string        `enum:"queries,connections" default:"queries" help:"What keeps it awake: queries (Neon, Lakebase) or connections (Aurora)."`
	SweepEvery   time.Duration `default:"1h" help:"Period of the sweeps."`
	For          []string      `enum:"enqueue,drain,sweep" help:"What this login is to do: enqueue, drain, sweep."`
	Lease        time.Duration `help:"DOZE_LEASE of the handler, if it is set."`
	FunctionTime time.Duration `help:"Time limit of the handler function."`
}

// Run looks at the database; the exit code is 1 if anything but OK was found.
func (c *doctorCmd) Run(ctx context.Context, o *output) error {
	cfg, _, err := c.resolve()
	if err != nil {
		return err
	}
	var found []doctor.Finding
	err = database.Once(ctx, cfg.Database, func(conn *pgx.Conn) (err error) {
		found, err = doctor.Look(ctx, conn, doctor.Config{Schema: cfg.Schema, Suspend: c.SuspendAfter, Connections: c.SuspendRule == "connections", Sweep: c.SweepEvery,
			For: c.For, Lease: c.Lease, Function: c.FunctionTime})
		return err
	})
	if err != nil {
		return err
	}
	if err := o.print(c.JSON, found, func(w io.Writer) {
		for _, f := range found {
			fmt.Fprintf(w, "%s\t%s\n", f.Level, f.What)
			if f.Hint != "" {
				fmt.Fprintf(w, "\t  → %s\n", f.Hint)
			}
		}
	}); err != nil {
		return err
	}
	bad := 0
	for _, f := range found {
		if f.Level != doctor.OK {
			bad++
		}
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d findings want your attention", bad, len(found))
	}
	return nil
}
