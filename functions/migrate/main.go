// Command migrate brings the tables up to date, with the owner's rights: a Lambda function to invoke at
// each deployment, or a command that does it and exits.
package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/jackc/pgx/v5"

	"github.com/dozequeue/doze/internal/database"
	"github.com/dozequeue/doze/internal/env"
	"github.com/dozequeue/doze/internal/serve"
	"github.com/dozequeue/doze/migrations"
)

func main() { serve.Exit(run()) }

func run() error {
	var cfg env.Migrate
	if err := env.Read(&cfg); err != nil {
		return err
	}
	log := cfg.Logger()
	migrate := func(ctx context.Context) (applied migrations.Applied, err error) {
		err = database.Once(ctx, cfg.Database, func(conn *pgx.Conn) error {
			if applied, err = migrations.Up(ctx, conn, cfg.Schema); err != nil {
				return err
			}
			if cfg.GrantRoles {
				return migrations.Grant(ctx, conn, cfg.Schema)
			}
			return nil
		})
		if err != nil {
			log.Error("not migrated", "error", err)
			return applied, err
		}
		log.Info("migrated", "schema", cfg.Schema, "from", applied.From, "to", applied.To)
		return applied, nil
	}
	if env.OnLambda() {
		lambda.Start(func(ctx context.Context, _ json.RawMessage) (migrations.Applied, error) { return migrate(ctx) })
		return nil
	}
	applied, err := migrate(context.Background())
	if err != nil {
		return err
	}
	fmt.Printf("schema %s: version %d, was %d\n", cfg.Schema, applied.To, applied.From)
	return nil
}
