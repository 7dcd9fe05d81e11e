package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dozequeue/doze/enqueue"
	"github.com/dozequeue/doze/examples/webhooks"
	"github.com/dozequeue/doze/handler"
	"github.com/dozequeue/doze/internal/database"
	"github.com/dozequeue/doze/internal/env"
	"github.com/dozequeue/doze/internal/pgdev"
	"github.com/dozequeue/doze/internal/serve"
	"github.com/dozequeue/doze/internal/sleepy"
	"github.com/dozequeue/doze/migrations"
	"github.com/dozequeue/doze/queue"
	"github.com/dozequeue/doze/sweeper"
)

type devCmd struct {
	Addr         string        `default:"127.0.0.1:8080" help:"Address of the HTTP API. Only loopback addresses: it asks for no key."`
	Data         string        `type:"path" placeholder:"DIR" help:"Folder for the database. Jobs in it survive. Default: a folder of this user's."`
	DatabaseURL  string        `placeholder:"URL" help:"Use this Postgres instead of one of its own."`
	Schema       string        `default:"doze" help:"Schema of Doze's tables."`
	Postgres     string        `placeholder:"DIR" env:"DOZE_POSTGRES" help:"Folder of Postgres' programs. Default: found, or fetched."`
	Version      string        `placeholder:"N" help:"Major version of Postgres, such as 17. Default: what is found, or 18."`
	Sweep        time.Duration `default:"1h" help:"Time between sweeps; 0 sweeps at the start only."`
	SuspendAfter time.Duration `placeholder:"TIME" help:"Stop the Postgres after this long without use, and start it again when it is needed, as a database that scales to zero does. Default: never."`
	SuspendRule  string        `default:"queries" enum:"queries,connections" help:"What counts as use: queries (as on Neon), or connections (as on Aurora at 0 ACU)."`
	Verbose      bool          `short:"v" help:"Log each drain and each sweep."`
}

// devLease is how long jobs are held in dev: short, so that after a kill -9 the next start has
// them back soon.
const devLease = 10 * time.Second

// Run runs everything until SIGINT or SIGTERM.
func (c *devCmd) Run(ctx context.Context, o *output) (err error) {
	if err := loopback(c.Addr); err != nil {
		return err
	}
	level := slog.LevelInfo
	if !c.Verbose {
		level = slog.LevelWarn
	}
	log := slog.New(slog.NewTextHandler(o.log, &slog.HandlerOptions{Level: level}))
	if c.Data == "" {
		c.Data = defaultData()
	}
	// Before Postgres, so that a port in use costs nothing.
	listener, err := net.Listen("tcp", c.Addr)
	if err != nil {
		return fmt.Errorf("--addr %s: %w", c.Addr, err)
	}
	defer listener.Close()

	db, err := c.database(ctx, o, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.stop()) }()

	pool, err := c.prepare(ctx, db.url)
	if err != nil {
		return err
	}
	defer pool.Close()

	app, err := c.assemble(pool, db.status, o, log)
	if err != nil {
		return err
	}
	server := serve.Server(app.routes)
	failed := make(chan error, 2)
	go func() { failed <- fmt.Errorf("serve: %w", server.Serve(listener)) }()
	if db.died != nil {
		go func() {
			<-db.died
			failed <- fmt.Errorf("its Postgres ended by itself; start again, and see %s", filepath.Join(c.Data, "postgres.log"))
		}()
	}

	s := state{API: "http://" + listener.Addr().String(), Postgres: db.url, PID: os.Getpid()}
	if err := os.MkdirAll(c.Data, 0o755); err == nil {
		if remove, err := s.write(c.Data); err == nil {
			defer remove()
		}
	}
	fmt.Fprintf(o.out, "api: %s\npostgres: %s\nready\n", s.API, s.Postgres)
	fmt.Fprintf(o.log, "Try: curl -d '{\"kind\":\"echo\",\"payload\":{\"hello\":\"world\"}}' -H 'Content-Type: application/json' %s/v1/jobs\n", s.API)

	err = app.sweepUntil(ctx, c.Sweep, failed)

	// In order: no more requests, then no more drains, then no more database.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
	defer cancel()
	_ = server.Shutdown(last)
	if closeErr := app.drains.Close(last); closeErr != nil {
		err = errors.Join(err, fmt.Errorf("stop drains: %w", closeErr))
	}
	return err
}

// loopback refuses addresses that others can reach, since dev asks nobody who they are.
func loopback(addr string) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("--addr %q: want host:port, such as 127.0.0.1:8080", addr)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("--addr %q: want a loopback address, since dev asks for no key; for others run functions/enqueue", addr)
	}
	return nil
}

// devDatabase is the Postgres that dev works on.
type devDatabase struct {
	url    string
	status http.Handler    // answers how it is, without waking it
	died   <-chan struct{} // closed if it ends by itself; nil if that is not known
	stop   func() error
}

// database starts a Postgres in the data folder, unless one was given.
func (c *devCmd) database(ctx context.Context, o *output, log *slog.Logger) (*devDatabase, error) {
	status := alwaysAwake(time.Now())
	if c.DatabaseURL != "" {
		if c.SuspendAfter > 0 {
			return nil, errors.New("--suspend-after: only for a Postgres that doze dev runs itself; leave out --database-url")
		}
		return &devDatabase{url: c.DatabaseURL, status: status, stop: func() error { return nil }}, nil
	}
	dir, err := postgresFolder(c.Data)
	if err != nil {
		return nil, err
	}
	options := pgdev.Options{BinDir: c.Postgres, Version: c.Version, Logger: slog.New(slog.NewTextHandler(o.log, nil))}
	if major, err := pgdev.DataMajor(dir); err != nil {
		return nil, err
	} else if major > 0 && c.Version == "" {
		options.Version = fmt.Sprint(major) // only that version can read it
	}
	binaries, err := pgdev.Find(ctx, options)
	if err != nil {
		return nil, err
	}
	cfg := pgdev.Config{Binaries: binaries, DataDir: dir, Durable: true, Logger: log, LogFile: filepath.Join(c.Data, "postgres.log")}
	server, err := pgdev.Start(ctx, cfg)
	if err != nil {
		return nil, err
	}
	stop := func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		return server.Stop(ctx)
	}
	url, err := server.CreateDatabase(ctx, "doze")
	if err != nil {
		return nil, errors.Join(err, stop())
	}
	if c.SuspendAfter == 0 {
		return &devDatabase{url: url, status: status, died: server.Done(), stop: stop}, nil
	}
	if err := stop(); err != nil { // it is the proxy's to start from now on
		return nil, err
	}
	proxy, err := sleepy.New(sleepy.Config{Server: cfg, Rule: sleepy.Rule(c.SuspendRule), Timeout: c.SuspendAfter, Logger: options.Logger})
	if err != nil {
		return nil, err
	}
	return &devDatabase{url: proxy.URL("doze"), status: proxy.StatusHandler(), stop: proxy.Close}, nil
}

// alwaysAwake is the status of a Postgres that is not suspended.
func alwaysAwake(since time.Time) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(sleepy.Status{
			State: sleepy.Awake, AwakeSeconds: time.Since(since).Seconds(), Wakes: 1, KeptAwakeBy: "doze dev runs without --suspend-after",
		})
	})
}

// prepare opens the pool and brings the tables up to date.
func (c *devCmd) prepare(ctx context.Context, url string) (*pgxpool.Pool, error) {
	cfg := env.Database{
		DatabaseURL: env.Secret(url), Schema: c.Schema, MaxConns: 16,
		ConnectTimeout: 30 * time.Second, Reconnect: 30 * time.Second, Connections: "keep", ExecMode: "cache_describe",
	}
	if c.DatabaseURL == "" {
		cfg.ExecMode = "cache_statement" // no pooler in between
	}
	if c.SuspendRule == string(sleepy.Connections) {
		cfg.Connections = "close"
	}
	err := database.Once(ctx, cfg, func(conn *pgx.Conn) error {
		_, err := migrations.Up(ctx, conn, c.Schema)
		return err
	})
	if err != nil {
		return nil, err
	}
	return database.Pool(ctx, cfg)
}

// app is what dev runs.
type app struct {
	routes  http.Handler
	drains  *handler.InProcess
	sweeper *sweeper.Sweeper
	log     *slog.Logger
}

func (c *devCmd) assemble(pool *pgxpool.Pool, status http.Handler, o *output, log *slog.Logger) (*app, error) {
	jobLog := slog.New(slog.NewTextHandler(o.log, nil))
	drainer, err := handler.New(pool, demoMux(jobLog), handler.Config{
		Schema: c.Schema, Lease: devLease, Logger: log,
		OnFailure: func(_ context.Context, f handler.Failure) {
			jobLog.Warn("attempt failed", "kind", f.Job.Kind, "job_id", f.Job.ID, "attempt", f.Job.Attempts, "final", f.Final)
		},
	})
	if err != nil {
		return nil, err
	}
	drains := handler.NewInProcess(drainer, 0).Bind()
	jobs, err := enqueue.New(pool, drains, enqueue.Config{Schema: c.Schema, Alarm: drains, Logger: log})
	if err != nil {
		return nil, err
	}
	s, err := sweeper.New(pool, sweeper.Config{Schema: c.Schema, Trigger: drains, Alarm: drains, Logger: log})
	if err != nil {
		return nil, err
	}
	routes, err := c.routes(jobs, drains, s, status, log)
	if err != nil {
		return nil, err
	}
	// Alarms that an earlier process kept in its memory are gone.
	store, err := queue.NewStore(c.Schema)
	if err != nil {
		return nil, err
	}
	if err := store.Disarm(context.Background(), pool); err != nil {
		return nil, err
	}
	return &app{routes: routes, drains: drains, sweeper: s, log: log}, nil
}

// routes serves what the functions serve, on one address.
func (c *devCmd) routes(jobs *enqueue.Client, drains *handler.InProcess, s *sweeper.Sweeper, status http.Handler, log *slog.Logger) (http.Handler, error) {
	open := enqueue.Open()
	api, err := enqueue.Routes(jobs, enqueue.RoutesConfig{Auth: open, Logger: log})
	if err != nil {
		return nil, err
	}
	sweep, err := s.Receiver(sweeper.ReceiverConfig{Trusted: true})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/", api)
	mux.Handle("GET /v1/database", local(open, status))
	mux.Handle("POST /sweep", local(open, sweep))
	mux.Handle("POST /drain", local(open, fireOnly(drains)))
	secret := os.Getenv("DOZE_GITHUB_SECRET")
	if secret == "" {
		mux.HandleFunc("POST /v1/hooks/github", func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "set DOZE_GITHUB_SECRET to the webhook's secret and start again", http.StatusNotFound)
		})
		return mux, nil
	}
	hook, err := webhooks.Handler(jobs, secret)
	if err != nil {
		return nil, fmt.Errorf("DOZE_GITHUB_SECRET: %w", err)
	}
	mux.Handle("POST /v1/hooks/github", hook)
	return mux, nil
}

// fireOnly starts a drain in this process and answers at once.
func fireOnly(drains *handler.InProcess) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 4096))
		if err != nil {
			http.Error(w, "want a wake of at most 4096 bytes", http.StatusBadRequest)
			return
		}
		wake, err := handler.ParseWake(body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if err := drains.Fire(r.Context(), wake); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusAccepted)
	})
}

// local lets only this machine through.
func local(auth enqueue.Auth, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := auth.Authenticate(r); err != nil {
			http.Error(w, "only from this machine", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// sweepUntil sweeps at the start, which finds what an earlier process left, and then rarely.
func (a *app) sweepUntil(ctx context.Context, period time.Duration, failed <-chan error) error {
	var tick <-chan time.Time
	if period > 0 {
		ticker := time.NewTicker(period)
		defer ticker.Stop()
		tick = ticker.C
	}
	for {
		_, _ = a.sweeper.Sweep(ctx) // it logs
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case <-tick:
		}
	}
}
