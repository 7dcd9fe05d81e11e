// Command enqueue serves the HTTP API: a Lambda function behind a Function URL or an HTTP API, or an
// HTTP server.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"

	"github.com/dozequeue/doze/enqueue"
	"github.com/dozequeue/doze/examples/webhooks"
	"github.com/dozequeue/doze/functions/internal/setup"
	"github.com/dozequeue/doze/internal/database"
	"github.com/dozequeue/doze/internal/env"
	"github.com/dozequeue/doze/internal/lambdahttp"
	"github.com/dozequeue/doze/internal/serve"
)

func main() { serve.Exit(run()) }

func run() error {
	var cfg env.Enqueue
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
	jobs, err := enqueue.New(pool, trg, enqueue.Config{
		Schema: cfg.Schema, Alarm: alarm, Bell: cfg.Bell, MaxPayload: cfg.MaxPayload, FireTimeout: cfg.TriggerTimeout, Timeout: cfg.Reconnect, Logger: cfg.Logger(),
	})
	if err != nil {
		return err
	}
	routes, err := routes(cfg, jobs)
	if err != nil {
		return err
	}

	if env.OnLambda() {
		serveEvent := lambdahttp.Handler(routes)
		lambda.Start(func(ctx context.Context, event events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
			defer database.Rest(pool, cfg.Database)
			return serveEvent(ctx, event)
		})
		return nil
	}
	ctx, stop := serve.Context()
	defer stop()
	return serve.HTTP(ctx, cfg.Listen(), routes, cfg.Logger())
}

// routes is the HTTP API, with the webhook if it is on.
func routes(cfg env.Enqueue, jobs *enqueue.Client) (http.Handler, error) {
	auth, err := auth(cfg)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	if auth != nil {
		api, err := enqueue.Routes(jobs, enqueue.RoutesConfig{Auth: auth})
		if err != nil {
			return nil, err
		}
		mux.Handle("/", api)
	} else {
		mux.HandleFunc("GET /healthz", serve.Healthy)
	}
	if cfg.GitHubSecret != "" {
		hook, err := webhooks.Handler(jobs, string(cfg.GitHubSecret))
		if err != nil {
			return nil, fmt.Errorf("DOZE_GITHUB_SECRET: %w", err)
		}
		mux.Handle("POST /v1/hooks/github", hook)
	}
	return mux, nil
}

// auth is who may use the API; nil if only webhooks are served.
func auth(cfg env.Enqueue) (enqueue.Auth, error) {
	if cfg.AuthPlatform {
		return enqueue.AuthFunc(func(*http.Request) (enqueue.Caller, error) {
			return enqueue.Caller{Name: "platform"}, nil
		}), nil
	}
	var auths []enqueue.Auth
	if cfg.AuthKeys != "" {
		keys, err := enqueue.ParseKeys(string(cfg.AuthKeys))
		if err != nil {
			return nil, fmt.Errorf("DOZE_AUTH_KEYS: %w", err)
		}
		auths = append(auths, keys)
	}
	if cfg.HMACSecrets != "" {
		hmac, err := enqueue.HMAC("hmac", cfg.HMACSecrets.Bytes()...)
		if err != nil {
			return nil, fmt.Errorf("DOZE_HMAC_SECRETS: %w", err)
		}
		auths = append(auths, hmac)
	}
	if len(auths) == 0 && cfg.GitHubSecret != "" {
		return nil, nil
	}
	if len(auths) == 0 {
		return nil, errors.New("nobody could enqueue: set DOZE_AUTH_KEYS (doze key NAME makes one) or DOZE_HMAC_SECRETS, or DOZE_AUTH_PLATFORM=true where the platform checks callers")
	}
	return enqueue.Any(auths...), nil
}
