// Package serve runs a function's main: as a Lambda function where it is one, else as
// a plain HTTP server that stops in order.
package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// stopping is how long requests may go on after the signal to stop. Cloud Run allows 10 s.
const stopping = 9 * time.Second

// Context ends at SIGINT or SIGTERM. A second signal ends the process at once.
func Context() (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// HTTP serves h on addr until ctx ends, then lets requests end.
func HTTP(ctx context.Context, addr string, h http.Handler, log *slog.Logger) error {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("DOZE_ADDR %q: %w", addr, err)
	}
	server := Server(h)
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	log.Info("listening", "addr", listener.Addr().String())
	select {
	case err := <-failed:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopping)
	defer cancel()
	if err := server.Shutdown(last); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("stop: %w", err)
	}
	return nil
}

// Server returns a server with limits on how slowly a request may come in. There is none on the
// answer: a drain takes its time.
func Server(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       60 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
	}
}

// Exit ends the process with a line on standard error if err is not nil.
func Exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "doze:", err)
		os.Exit(1)
	}
}

// Healthy answers that the process is up. It does not touch the database, which would wake it.
func Healthy(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte("{\"status\":\"ok\"}\n"))
}
