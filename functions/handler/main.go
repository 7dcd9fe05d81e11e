// Command handler drains queues: a Lambda function that takes a wake as its event, an HTTP
// server with POST /drain, a resident process that listens, or a program that drains once and exits.
package main

import (
	"context"
	"net/http"
	"time"

	"github.com/aws/aws-lambda-go/lambda"

	"github.com/dozequeue/doze/functions/internal/setup"
	"github.com/dozequeue/doze/handler"
	"github.com/dozequeue/doze/internal/database"
	"github.com/dozequeue/doze/internal/env"
	"github.com/dozequeue/doze/internal/serve"
	"github.com/dozequeue/doze/queue"
)

func main() { serve.Exit(run()) }

func run() error {
	var cfg env.Handler
	if err := env.Read(&cfg); err != nil {
		return err
	}
	log := cfg.Logger()
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
	if cfg.ListenURL != "" && cfg.Lease == 0 {
		cfg.Lease = time.Minute // so that its jobs are back soon if it is killed
	}
	mux := handler.NewMux()
	register(mux)
	drainer, err := handler.New(pool, mux, handler.Config{
		Schema: cfg.Schema, Trigger: trg, Alarm: alarm, Concurrency: cfg.Concurrency, BatchSize: cfg.BatchSize, Wait: cfg.Wait,
		Lease: cfg.Lease, Timeout: cfg.Timeout, Bell: cfg.Bell, Reconnect: cfg.Reconnect, Logger: log,
	})
	if err != nil {
		return err
	}

	switch {
	case cfg.Once:
		return once(pool, drainer, cfg)
	case cfg.ListenURL != "":
		return listen(pool, drainer, cfg)
	case env.OnLambda():
		lambda.Start(func(ctx context.Context, wake queue.Wake) (handler.Drained, error) {
			defer database.Rest(pool, cfg.Database)
			drained, err := drainer.Drain(ctx, wake)
			if err == nil && drainer.Tainted() {
				log.Error("a handler did not return; ending this environment")
				err = errTainted
			}
			return drained, err
		})
		return nil
	}

	ctx, stop := serve.Context()
	defer stop()
	drain, err := drainer.Receiver(handler.ReceiverConfig{
		Secrets: cfg.TriggerSecrets.Bytes(), Bearers: cfg.ReceiverTokens.List(), Trusted: cfg.ReceiverTrusted,
		Process: ctx, Limit: cfg.DrainLimit,
	})
	if err != nil {
		return err
	}
	routes := http.NewServeMux()
	routes.Handle("/drain", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer database.Rest(pool, cfg.Database)
		drain.ServeHTTP(w, r)
		if drainer.Tainted() { // the platform starts a fresh process, without that handler in it
			stop()
		}
	}))
	routes.HandleFunc("GET /healthz", serve.Healthy)
	if err := serve.HTTP(ctx, cfg.Listen(), routes, log); err != nil {
		return err
	}
	if drainer.Tainted() {
		return errTainted
	}
	return nil
}

// errTainted makes Lambda end the environment, with the handler that did not return in it.
var errTainted = fatalError("a handler did not return; its job counts as failed")
