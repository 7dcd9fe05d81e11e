package dbtest

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Option changes the pool that [Pool] makes.
type Option func(*settings)

type settings struct {
	url       string
	configure []func(*pgxpool.Config)
}

// At connects to this connection string, such as that of [Database] or
// [PgBouncer], rather than to the maintenance database.
func At(databaseURL string) Option {
	return func(s *settings) { s.url = databaseURL }
}

// Mode sets how statements are sent. The default is pgx's own, statement cache.
func Mode(mode pgx.QueryExecMode) Option {
	return Configure(func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
}

// MaxConns sets the most connections of the pool, 4 by default.
func MaxConns(n int32) Option {
	return Configure(func(c *pgxpool.Config) { c.MaxConns = n })
}

// SearchPath sets where names without a schema are looked up. The default is
// empty on purpose: a statement that forgets its schema fails, as it would
// behind a pooler. It has no effect through [PgBouncer], which drops it.
func SearchPath(schemas string) Option {
	return Configure(func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["search_path"] = schemas })
}

// Configure changes anything else of the pool, after the defaults are set.
func Configure(change func(*pgxpool.Config)) Option {
	return func(s *settings) { s.configure = append(s.configure, change) }
}

// Pool returns a connection pool of the maintenance database, or of [At], with
// an empty search path. It is closed when the test ends, and a connection that
// was not released by then fails the test. No connection is made before the
// first use.
func Pool(tb testing.TB, opts ...Option) *pgxpool.Pool {
	tb.Helper()
	var chosen settings
	for _, option := range opts {
		option(&chosen)
	}
	if chosen.url == "" {
		chosen.url = URL(tb)
	}
	cfg, err := pgxpool.ParseConfig(chosen.url)
	if err != nil {
		tb.Fatalf("dbtest: %v", err)
	}
	cfg.MaxConns = 4
	cfg.ConnConfig.RuntimeParams["search_path"] = ""
	for _, change := range chosen.configure {
		change(cfg)
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		tb.Fatalf("dbtest: %v", err)
	}
	tb.Cleanup(func() {
		closed := make(chan struct{})
		go func() {
			pool.Close() // waits for every connection to come back
			close(closed)
		}()
		limit := time.NewTimer(10 * time.Second)
		defer limit.Stop()
		select {
		case <-closed:
		case <-limit.C:
			tb.Errorf("dbtest: %d connections were not released by the end of the test; close the rows and end the transactions",
				pool.Stat().AcquiredConns())
		}
	})
	return pool
}

// ExecModes runs fn as a subtest for each of the five ways in which pgx can
// send a statement: poolers and argument types treat them differently.
func ExecModes(t *testing.T, fn func(t *testing.T, mode pgx.QueryExecMode)) {
	t.Helper()
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement,
		pgx.QueryExecModeCacheDescribe,
		pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec,
		pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) { fn(t, mode) })
	}
}
