package main

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dozequeue/doze/handler"
	"github.com/dozequeue/doze/internal/database"
	"github.com/dozequeue/doze/internal/env"
	"github.com/dozequeue/doze/internal/serve"
	"github.com/dozequeue/doze/resident"
)

// listen drains whenever it is notified, until the process is to stop.
func listen(pool *pgxpool.Pool, drainer *handler.Drainer, cfg env.Handler) error {
	ctx, stop := serve.Context()
	defer stop()
	return resident.Run(ctx, pool, drainer, resident.Config{
		URL: string(cfg.ListenURL), Schema: cfg.Schema, Fallback: cfg.Fallback, Limit: cfg.DrainLimit,
		ConnectTimeout: cfg.ConnectTimeout, Logger: cfg.Logger(),
	})
}

// once drains each queue that has due work, for a timer.
func once(pool *pgxpool.Pool, drainer *handler.Drainer, cfg env.Handler) error {
	ctx, stop := serve.Context()
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, cfg.DrainLimit)
	defer cancel()
	if err := database.Ready(ctx, pool, cfg.Database); err != nil {
		return err
	}
	if _, err := resident.Once(ctx, pool, drainer, cfg.Schema); err != nil {
		return err
	}
	if drainer.Tainted() {
		return errTainted
	}
	return nil
}
