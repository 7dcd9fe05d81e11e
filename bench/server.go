package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/jackc/pgx/v5"

	"github.com/dozequeue/doze/internal/pgdev"
)

// server is the Postgres that all run on, each in a database of its own.
type server struct {
	pg   *pgdev.Server
	dir  string
	made int
}

// serverSettings are those of a small machine's database, the same for all.
var serverSettings = []string{"shared_buffers = '256MB'", "max_wal_size = '4GB'", "max_connections = 200", "jit = off", "wal_level = 'replica'"}

func startServer(ctx context.Context) (*server, error) {
	dir, err := os.MkdirTemp("", "doze-bench-")
	if err != nil {
		return nil, err
	}
	s := &server{dir: dir}
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, err
	}
	for _, again := range []bool{true, false} {
		if s.pg, err = pgdev.Start(ctx, pgdev.Config{DataDir: filepath.Join(dir, "data"), Durable: true}); err != nil {
			return nil, err
		}
		if !again {
			return s, nil
		}
		for _, setting := range serverSettings { // and start it again with them
			if err := s.exec(ctx, "ALTER SYSTEM SET "+setting); err != nil {
				return nil, err
			}
		}
		if err := s.pg.Stop(ctx); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *server) exec(ctx context.Context, sql string) error {
	conn, err := pgx.Connect(ctx, s.pg.URL())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, sql)
	return err
}

// text is what a query of one row and column returns.
func (s *server) text(ctx context.Context, sql string, args ...any) (text string, err error) {
	conn, err := pgx.Connect(ctx, s.pg.URL())
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close(ctx) }()
	err = conn.QueryRow(ctx, sql, args...).Scan(&text)
	return text, err
}

// database makes a database and returns its URL, and what forgets it.
func (s *server) database(ctx context.Context, name string) (url string, drop func(), err error) {
	s.made++
	name = fmt.Sprintf("%s_%d", name, s.made)
	if err := s.exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()); err != nil {
		return "", nil, err
	}
	return s.pg.DatabaseURL(name), func() {
		_ = s.exec(context.WithoutCancel(ctx), "DROP DATABASE "+pgx.Identifier{name}.Sanitize()+" WITH (FORCE)")
	}, nil
}

// settle vacuums, and writes out what is still to be written, so that neither happens while something is measured.
func (s *server) settle(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	for _, sql := range []string{"VACUUM ANALYZE", "CHECKPOINT"} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

func (s *server) close(ctx context.Context) {
	_ = s.pg.Stop(ctx)
	_ = os.RemoveAll(s.dir)
}
