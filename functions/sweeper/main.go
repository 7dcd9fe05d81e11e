// Command sweeper sweeps once for each call: a Lambda function for a schedule, or an HTTP server
// with POST /sweep.
package main

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/aws/aws-lambda-go/lambda"

	"github.com/dozequeue/doze/functions/internal/setup"
	"github.com/dozequeue/doze/internal/database"
	"github.com/dozequeue/doze/internal/env"
	"github.com/dozequeue/doze/internal/serve"
	"github.com/dozequeue/doze/sweeper"
)

func main() { serve.Exit(run()) }

func run() error {
	var cfg env.Sweeper
	if err := env.Read(&cfg); err != nil {
		return err
	}
	pool, err := database.Pool(context.Background(), cfg.Database)
	if err != nil {
		return err
	}
	defer pool.Close()
	trg, err := setup.Trigger(cfg.Trigger, pool, cfg.Schema)
	if err != nil {
		return err
	}
	alarm, err := setup.Alarm(cfg.Alarm, pool, cfg.Schema)
	if err != nil {
		return err
	}
	s, err := sweeper.New(pool, sweeper.Config{
		Schema: cfg.Schema, Trigger: trg, Alarm: alarm, Keep: cfg.Keep, KeepFailed: cfg.KeepFailed, Bell: cfg.Bell, Logger: cfg.Logger(),
	})
	if err != nil {
		return err
	}

	if env.OnLambda() {
		lambda.Start(func(ctx context.Context, _ json.RawMessage) (sweeper.Swept, error) {
			defer database.Rest(pool, cfg.Database)
			if err := database.Ready(ctx, pool, cfg.Database); err != nil {
				return sweeper.Swept{}, err
			}
			return s.Sweep(ctx)
		})
		return nil
	}

	ctx, stop := serve.Context()
	defer stop()
	sweep, err := s.Receiver(sweeper.ReceiverConfig{
		Secrets: cfg.TriggerSecrets.Bytes(), Bearers: cfg.ReceiverTokens.List(), Trusted: cfg.ReceiverTrusted, Process: ctx,
	})
	if err != nil {
		return err
	}
	routes := http.NewServeMux()
	routes.Handle("/sweep", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer database.Rest(pool, cfg.Database)
		sweep.ServeHTTP(w, r) // it answers 503 while the database wakes, and the scheduler calls again
	}))
	routes.HandleFunc("GET /healthz", serve.Healthy)
	return serve.HTTP(ctx, cfg.Listen(), routes, cfg.Logger())
}
