package migrations_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dozequeue/doze/internal/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// limit is far above what any test needs.
func limit(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// connect returns a connection of the test's own, closed when it ends.
func connect(t testing.TB, databaseURL string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(limit(t), databaseURL)
	must(t, err)
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// code is the SQLSTATE of an error of the database, empty for any other.
func code(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}
