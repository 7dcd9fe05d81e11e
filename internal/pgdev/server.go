package pgdev

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Server is a running PostgreSQL. Make one with [Start]. Its methods may be
// called by several goroutines at once.
type Server struct {
	cfg     Config
	bin     Binaries
	port    int
	cmd     *exec.Cmd
	logFrom int64 // where this run's part of the log begins

	exited chan struct{} // the process is gone and exit is set
	exit   error
	done   chan struct{} // exited, and DataDir is free again

	stopping sync.Mutex
	wanted   atomic.Bool // the end was asked for
}

// URL returns the connection string of the maintenance database, "postgres",
// as its superuser. It holds no password: every local connection is trusted.
func (s *Server) URL() string { return s.DatabaseURL("postgres") }

// DatabaseURL returns the connection string of the database called name,
// whether that exists or not.
func (s *Server) DatabaseURL(name string) string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.User("postgres"),
		Host:     fmt.Sprintf("127.0.0.1:%d", s.port),
		Path:     "/" + name,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// Port returns the port on 127.0.0.1.
func (s *Server) Port() int { return s.port }

// Binaries returns the PostgreSQL that runs.
func (s *Server) Binaries() Binaries { return s.bin }

// DataDir returns the absolute path of the data directory.
func (s *Server) DataDir() string { return s.cfg.DataDir }

// LogFile returns the path of the server's log.
func (s *Server) LogFile() string { return s.cfg.LogFile }

// Done returns a channel that is closed when the server has ended, asked to or
// not, and a new [Start] may use its data directory.
func (s *Server) Done() <-chan struct{} { return s.done }

// Err returns nil while the server runs and after an end that was asked for
// (by Stop or Kill); after any other end it says how it ended, with the end of
// the server's log.
func (s *Server) Err() error {
	select {
	case <-s.exited:
	default:
		return nil
	}
	if s.wanted.Load() {
		return nil
	}
	reason := "exit status 0"
	if s.exit != nil {
		reason = s.exit.Error()
	}
	return fmt.Errorf("PostgreSQL ended by itself (%s); its log ends with:\n%s", reason, s.logTail())
}

// Stop ends the server and waits for it: a fast shutdown, which cuts clients
// off and rolls back what they had open; when ctx ends before that is done, an
// immediate one, and last a kill. The server has ended when Stop returns.
//
// The error says that a fast shutdown was not enough, or that the server had
// ended by itself before; the next start recovers, as after a crash (see
// [Config.Durable]). A second Stop returns nil.
func (s *Server) Stop(ctx context.Context) error {
	if err := s.Err(); err != nil {
		s.wanted.Store(true)
		<-s.done
		return err
	}
	s.wanted.Store(true)
	s.stopping.Lock()
	defer s.stopping.Unlock()
	if s.ended(0) {
		return nil
	}
	s.cfg.Logger.InfoContext(ctx, "stopping PostgreSQL", "port", s.port)
	failed := s.interrupt(ctx)
	if failed == nil {
		select {
		case <-s.done:
			return nil
		case <-ctx.Done():
			failed = ctx.Err()
		}
	}
	if s.ended(0) {
		return nil // it ended before the signal
	}
	quit, cancel := context.WithTimeout(context.WithoutCancel(ctx), 6*time.Second)
	defer cancel()
	_ = s.quit(quit)
	// PostgreSQL itself kills its children 5 s after this signal.
	if !s.ended(6 * time.Second) {
		s.kill()
		<-s.done
	}
	return fmt.Errorf("stop PostgreSQL: the fast shutdown did not finish, so it was ended at once: %w", failed)
}

// Kill ends every process of the server at the same moment, as a crash would,
// and waits for it. For tests of recovery; see [Config.Durable] for what is lost.
func (s *Server) Kill() {
	s.wanted.Store(true)
	s.kill()
	<-s.done
}

// CreateDatabase makes the database called name, if it is not there, and
// returns its connection string.
func (s *Server) CreateDatabase(ctx context.Context, name string) (string, error) {
	conn, err := pgx.Connect(ctx, s.URL())
	if err != nil {
		return "", fmt.Errorf("create database %q: %w", name, err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.Exec(ctx, "create database "+pgx.Identifier{name}.Sanitize())
	var refused *pgconn.PgError
	if errors.As(err, &refused) && refused.Code == "42P04" { // it exists
		err = nil
	}
	if err != nil {
		return "", fmt.Errorf("create database %q: %w", name, err)
	}
	return s.DatabaseURL(name), nil
}

// ended waits until the server has ended, at most for the time given.
func (s *Server) ended(wait time.Duration) bool {
	select {
	case <-s.done:
		return true
	default:
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-s.done:
		return true
	case <-timer.C:
		return false
	}
}

func (s *Server) logTail() string { return logTail(s.cfg.LogFile, s.logFrom) }
