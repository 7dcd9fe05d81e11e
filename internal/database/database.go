// Package database opens pools as a database that sleeps wants them: nothing is connected until
// it is used, nothing is kept busy, and no connection is trusted after a pause.
package database

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dozequeue/doze/internal/env"
	"github.com/dozequeue/doze/queue"
)

// modes by their setting's word.
var modes = map[string]pgx.QueryExecMode{
	"cache_describe":  pgx.QueryExecModeCacheDescribe,
	"cache_statement": pgx.QueryExecModeCacheStatement,
	"describe_exec":   pgx.QueryExecModeDescribeExec,
	"exec":            pgx.QueryExecModeExec,
	"simple_protocol": pgx.QueryExecModeSimpleProtocol,
}

// Pool returns a pool that connects at its first use.
func Pool(ctx context.Context, cfg env.Database) (*pgxpool.Pool, error) {
	c, err := pgxpool.ParseConfig(string(cfg.DatabaseURL))
	if err != nil {
		// What pgx says may quote the connection string.
		return nil, errors.New("DOZE_DATABASE_URL: want postgres://user:password@host:port/database?sslmode=…, or key=value pairs")
	}
	c.MaxConns = int32(cfg.MaxConns)
	c.MinConns, c.MinIdleConns = 0, 0
	c.MaxConnIdleTime = 30 * time.Second
	if cfg.Connections == "close" {
		c.MaxConnIdleTime, c.HealthCheckPeriod = time.Second, time.Second
	}
	// A function may have been frozen, or the database suspended, since the connection was last
	// used, and pgx cannot tell a write that was lost from one that was not.
	c.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return true }
	c.PingTimeout = 5 * time.Second
	c.ConnConfig.ConnectTimeout = cfg.ConnectTimeout
	c.ConnConfig.DefaultQueryExecMode = modes[cfg.ExecMode]
	delete(c.ConnConfig.RuntimeParams, "application_name") // poolers refuse or mix up startup parameters
	pool, err := pgxpool.NewWithConfig(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("open pool: %w", err)
	}
	return pool, nil
}

// Rest ends an invocation: it closes the pool's connections where open ones keep the
// database awake.
func Rest(pool *pgxpool.Pool, cfg env.Database) {
	if cfg.Connections == "close" {
		pool.Reset()
	}
}

// Once runs fn on one connection outside any pool. It keeps trying to connect while the database
// is asleep or starting.
func Once(ctx context.Context, cfg env.Database, fn func(*pgx.Conn) error) error {
	pool, err := Pool(ctx, cfg)
	if err != nil {
		return err
	}
	defer pool.Close()
	conn, err := acquire(ctx, pool, cfg)
	if err != nil {
		return err
	}
	defer conn.Release()
	return fn(conn.Conn())
}

// Ready returns when the database can be reached. It keeps trying while that is asleep or starting.
func Ready(ctx context.Context, pool *pgxpool.Pool, cfg env.Database) error {
	conn, err := acquire(ctx, pool, cfg)
	if err == nil {
		conn.Release()
	}
	return err
}

func acquire(ctx context.Context, pool *pgxpool.Pool, cfg env.Database) (*pgxpool.Conn, error) {
	giveUp := time.Now().Add(cfg.Reconnect)
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		conn, err := pool.Acquire(ctx)
		if err == nil {
			return conn, nil
		}
		if queue.Classify(err) != queue.Unavailable || time.Now().After(giveUp) {
			return nil, fmt.Errorf("connect: %w", err)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("connect: %w", err)
		case <-time.After(wait):
		}
	}
}
