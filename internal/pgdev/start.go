package pgdev

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Start runs a server and returns when it accepts connections. It makes the
// data directory if that is missing, stops a server that a killed process left
// there, and lets PostgreSQL recover after a crash. The context bounds the
// start and not the server's life; call [Server.Stop] to end it.
//
// A new cluster takes a second or so, an existing one a fraction of that. The
// error holds the end of the server's log if it could not start; no process is
// left then.
func Start(ctx context.Context, config Config) (*Server, error) {
	cfg, err := config.resolve(ctx)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(cfg.DataDir), 0o755); err != nil {
		return nil, fmt.Errorf("make DataDir: %w", err)
	}
	lock, err := lockDir(cfg.DataDir)
	if err != nil {
		return nil, err
	}
	server, err := start(ctx, cfg)
	if err != nil {
		lock.Close()
		return nil, err
	}
	go func() {
		<-server.exited
		lock.Close()
		close(server.done) // after the lock, so that a new Start can follow at once
	}()
	return server, nil
}

// start is Start with the lock held.
func start(ctx context.Context, cfg Config) (*Server, error) {
	who, err := ownerOf(cfg.DataDir)
	if err != nil {
		return nil, err
	}
	if err := who.mustReach("DataDir", filepath.Dir(cfg.DataDir)); err != nil {
		return nil, err
	}
	if err := who.mustReach("Binaries.Dir", cfg.Binaries.Dir); err != nil {
		return nil, err
	}
	major, err := DataMajor(cfg.DataDir) // again, as the lock is ours only now
	if err != nil {
		return nil, err
	}
	if major == 0 {
		if err := initCluster(ctx, cfg, who); err != nil {
			return nil, err
		}
	}
	if err := who.own(cfg.DataDir); err != nil {
		return nil, err
	}
	if err := clearOrphan(ctx, cfg, who); err != nil {
		return nil, err
	}
	return launchPatiently(ctx, cfg, who)
}

// launchPatiently launches again after the two failures that pass by themselves.
func launchPatiently(ctx context.Context, cfg Config, who account) (*Server, error) {
	patience := time.Now().Add(10 * time.Second)
	for ports := 1; ; {
		port := cfg.Port
		var err error
		if port == 0 {
			if port, err = freePort(); err != nil {
				return nil, err
			}
		} else if err := portFree(port); err != nil {
			return nil, err
		}
		server, err := launch(ctx, cfg, who, port)
		var failed *startError
		switch {
		case err == nil || ctx.Err() != nil || !errors.As(err, &failed):
			return server, err
		case cfg.Port == 0 && ports < 5 && strings.Contains(failed.log, "could not create any TCP/IP sockets"):
			ports++ // somebody took the port between the choice and the use
		case time.Now().Before(patience) && strings.Contains(failed.log, "pre-existing shared memory block"):
			// Backends of a killed server are still ending.
			if err := pause(ctx, 50*time.Millisecond); err != nil {
				return nil, err
			}
		default:
			return nil, err
		}
	}
}

// startError is a server that ended before it was ready.
type startError struct {
	reason error
	log    string
}

func (e *startError) Error() string {
	return fmt.Sprintf("start PostgreSQL: it ended at once (%v); its log ends with:\n%s", e.reason, e.log)
}

func (e *startError) Unwrap() error { return e.reason }

// launch starts the server's process once and waits until it is ready. After an
// error the process is gone.
func launch(ctx context.Context, cfg Config, who account, port int) (*Server, error) {
	logFile, logFrom, err := openLog(cfg.LogFile)
	if err != nil {
		return nil, fmt.Errorf("open LogFile %q: %w", cfg.LogFile, err)
	}
	defer logFile.Close() // the child has its own copy
	// Not bound to ctx, which would kill it after the start.
	cmd := command(context.WithoutCancel(ctx), cfg.Binaries.Path("postgres"), cfg.arguments(port)...)
	cmd.Dir = cfg.DataDir
	cmd.Stdout, cmd.Stderr = logFile, logFile
	ownGroup(cmd)
	who.run(cmd)
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("run postgres: %w", err)
	}
	s := &Server{
		cfg: cfg, bin: cfg.Binaries, port: port, cmd: cmd, logFrom: logFrom,
		exited: make(chan struct{}), done: make(chan struct{}),
	}
	go func() {
		s.exit = cmd.Wait()
		close(s.exited)
	}()
	if err := s.ready(ctx); err != nil {
		s.kill()
		<-s.exited
		return nil, err
	}
	cfg.Logger.InfoContext(ctx, "PostgreSQL is ready", "version", s.bin.Version, "port", port, "took", time.Since(begin))
	return s, nil
}

// ready waits until the server accepts connections. It asks the server's pid
// file first: whoever answers on the port might be another server.
func (s *Server) ready(ctx context.Context) error {
	var refused error
	var since time.Time
	for delay := 5 * time.Millisecond; ; delay = min(2*delay, 50*time.Millisecond) {
		if state, ok := readPIDFile(s.cfg.DataDir); ok && state.ready && state.pid == s.cmd.Process.Pid {
			conn, err := pgx.Connect(ctx, s.URL())
			if err == nil {
				return conn.Close(ctx)
			}
			if since.IsZero() {
				since = time.Now()
			}
			refused = err
			if time.Since(since) > 10*time.Second {
				return fmt.Errorf("start PostgreSQL: it is ready and refuses a connection: %w", err)
			}
		}
		timer := time.NewTimer(delay)
		select {
		case <-s.exited:
			timer.Stop()
			return &startError{reason: s.exit, log: s.logTail()}
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("start PostgreSQL: %w; its log ends with:\n%s", errors.Join(ctx.Err(), refused), s.logTail())
		case <-timer.C:
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// freePort asks the system for a port that nobody uses now.
func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

func portFree(port int) error {
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return fmt.Errorf("Port %d: %w; stop what uses it, choose another, or use 0 for a free one", port, err)
	}
	return listener.Close()
}
