package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/vgarvardt/gue/v5"
	"github.com/vgarvardt/gue/v5/adapter/pgxv5"
)

type gueQueue struct {
	pool    *pgxpool.Pool
	client  *gue.Client
	payload []byte
}

const gueWorkers = 20

func newGue() (contender, error) { return &gueQueue{payload: payloadOf(100)}, nil }

func (*gueQueue) Name() string    { return "gue" }
func (*gueQueue) Version() string { return moduleVersion("github.com/vgarvardt/gue/v5") }
func (*gueQueue) Settings() string {
	return fmt.Sprintf("pgxv5, pool of %d workers, poll 1 ms, RunAtPollStrategy: the one that its index serves", gueWorkers)
}

func (g *gueQueue) Setup(ctx context.Context, url string) (err error) {
	if err := g.Connect(ctx, url); err != nil {
		return err
	}
	// Its tables come as a file with the module.
	dir, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/vgarvardt/gue/v5").Output()
	if err != nil {
		return fmt.Errorf("gue's folder: %w", err)
	}
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "migrations", "schema.sql"))
	if err != nil {
		return err
	}
	_, err = g.pool.Exec(ctx, string(text))
	return err
}

func (g *gueQueue) Connect(ctx context.Context, url string) (err error) {
	g.Close()
	if g.pool, err = newPool(ctx, url, gueWorkers+10); err != nil {
		return err
	}
	g.client, err = gue.NewClient(pgxv5.NewConnPool(g.pool))
	return err
}

func (g *gueQueue) PayloadSize(n int) { g.payload = payloadOf(n) }

func (g *gueQueue) Enqueue(ctx context.Context) error {
	return g.client.Enqueue(ctx, &gue.Job{Type: "nothing", Args: g.payload})
}

func (g *gueQueue) Bulk(ctx context.Context, n int) error {
	return pieces(n, 5000, func(n int) error {
		jobs := make([]*gue.Job, n)
		for i := range jobs {
			jobs[i] = &gue.Job{Type: "nothing", Args: g.payload}
		}
		return g.client.EnqueueBatch(ctx, jobs)
	})
}

func (g *gueQueue) Drain(ctx context.Context, n int) error {
	var left atomic.Int64
	left.Store(int64(n))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	workers, err := gue.NewWorkerPool(g.client, gue.WorkMap{"nothing": func(context.Context, *gue.Job) error { return nil }}, gueWorkers,
		gue.WithPoolPollInterval(time.Millisecond), gue.WithPoolPollStrategy(gue.RunAtPollStrategy),
		gue.WithPoolHooksJobDone(func(context.Context, *gue.Job, error) {
			if left.Add(-1) == 0 {
				cancel()
			}
		}))
	if err != nil {
		return err
	}
	if err := workers.Run(ctx); err != nil {
		return err
	}
	if left.Load() > 0 {
		return fmt.Errorf("gue: %d jobs left", left.Load())
	}
	return nil
}

func (g *gueQueue) Close() {
	if g.pool != nil {
		g.pool.Close()
	}
}
