package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dozequeue/doze/internal/database"
	"github.com/dozequeue/doze/internal/env"
	"github.com/dozequeue/doze/migrations"
	"github.com/dozequeue/doze/queue"
	"github.com/dozequeue/doze/trigger"
	"github.com/dozequeue/doze/trigger/awslambda"
	"github.com/dozequeue/doze/trigger/awslambda/awsdefault"
	"github.com/dozequeue/doze/trigger/notify"
)

// target is the database that a command works on, and how to wake its queues.
type target struct {
	DatabaseURL string `help:"Postgres to work on. Default: DOZE_DATABASE_URL, else that of a running doze dev." placeholder:"URL"`
	Schema      string `help:"Schema of Doze's tables. Default: DOZE_SCHEMA, else doze."`
	Data        string `help:"Folder of the doze dev to look for." type:"path" placeholder:"DIR"`
}

// opened is a target with its connection.
type opened struct {
	pool    *pgxpool.Pool
	store   *queue.Store
	trigger queue.Trigger
	schema  string
}

// resolve finds the settings: the flags, the environment, or a doze dev that runs, whose trigger
// it then returns too.
func (t *target) resolve() (settings, queue.Trigger, error) {
	url, fire := t.DatabaseURL, queue.Trigger(nil)
	if url == "" && os.Getenv("DOZE_DATABASE_URL") == "" {
		state, err := readState(t.Data)
		if err != nil {
			return settings{}, nil, err
		}
		url = state.Postgres
		if fire, err = trigger.NewHTTP(trigger.HTTPConfig{URL: state.API + "/drain", Unsigned: true}); err != nil {
			return settings{}, nil, err
		}
	}
	cfg, err := t.settings(url)
	return cfg, fire, err
}

// open opens the pool and checks the tables.
func (t *target) open(ctx context.Context) (*opened, error) {
	cfg, fire, err := t.resolve()
	if err != nil {
		return nil, err
	}
	store, err := queue.NewStore(cfg.Schema)
	if err != nil {
		return nil, err
	}
	pool, err := database.Pool(ctx, cfg.Database)
	if err != nil {
		return nil, err
	}
	if fire == nil {
		if fire, err = configured(ctx, cfg, pool); err != nil {
			pool.Close()
			return nil, err
		}
	}
	err = database.Once(ctx, cfg.Database, func(conn *pgx.Conn) error { return migrations.Check(ctx, conn, cfg.Schema) })
	if err != nil {
		pool.Close()
		return nil, err
	}
	return &opened{pool: pool, store: store, trigger: fire, schema: cfg.Schema}, nil
}

type settings struct {
	env.Database
	env.Trigger
}

func (t *target) settings(url string) (settings, error) {
	if url != "" { // a flag wins over the environment, which is read in one place only
		if err := os.Setenv("DOZE_DATABASE_URL", url); err != nil {
			return settings{}, err
		}
	}
	var cfg settings
	if err := env.Read(&cfg); err != nil {
		return cfg, err
	}
	if t.Schema != "" {
		cfg.Schema = t.Schema
	}
	return cfg, nil
}

// configured is the trigger of the environment, with credentials as the AWS tools find them.
func configured(ctx context.Context, cfg settings, db queue.DB) (queue.Trigger, error) {
	switch cfg.Trigger.Trigger {
	case "lambda":
		return awsdefault.New(ctx, awslambda.Config{Function: cfg.TriggerFunction, Timeout: cfg.TriggerTimeout})
	case "http":
		return trigger.NewHTTP(trigger.HTTPConfig{URL: cfg.TriggerURL, Secret: cfg.TriggerSecrets.Bytes()[0]})
	case "notify":
		return notify.New(db, notify.Config{Schema: cfg.Schema})
	}
	return trigger.None(), nil
}

// state is what a running doze dev leaves in its folder for other commands.
type state struct {
	API      string `json:"api"`
	Postgres string `json:"postgres"`
	PID      int    `json:"pid"`
}

const stateFile = "dev.json"

func readState(data string) (state, error) {
	if data == "" {
		data = defaultData()
	}
	var s state
	text, err := os.ReadFile(filepath.Join(data, stateFile))
	if errors.Is(err, os.ErrNotExist) {
		return s, errors.New("no database: give --database-url, set DOZE_DATABASE_URL, or start doze dev")
	}
	if err != nil {
		return s, fmt.Errorf("find doze dev: %w", err)
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return s, fmt.Errorf("find doze dev: %s: %w", filepath.Join(data, stateFile), err)
	}
	return s, nil
}

// write leaves the state for other commands, and returns what takes it away.
func (s state) write(data string) (remove func(), err error) {
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(data, stateFile)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return nil, fmt.Errorf("write %s: %w", path, err)
	}
	return func() { _ = os.Remove(path) }, nil
}

// defaultData is where doze dev keeps its database. Postgres refuses to run as root, and the user
// that it runs as instead cannot reach root's own folders.
func defaultData() string {
	if os.Geteuid() == 0 {
		return "/var/lib/doze/dev"
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = os.TempDir()
	}
	return filepath.Join(dir, "doze", "dev")
}
