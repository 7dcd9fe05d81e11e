package handler_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dozequeue/doze/handler"
	"github.com/dozequeue/doze/queue"
)

// Welcome are the arguments of a kind of job.
type Welcome struct {
	Address string `json:"address"`
}

// Kind is the name by which the handler is found.
func (Welcome) Kind() string { return "welcome" }

func send(_ context.Context, address string) error {
	fmt.Println("to", address)
	return nil
}

// A function that is started by a trigger drains its queue once and returns.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute) // the function's own limit
	defer cancel()
	pool, err := pgxpool.New(ctx, "postgres://localhost/app")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()

	mux := handler.NewMux()
	handler.Register(mux, func(ctx context.Context, job *handler.Job[Welcome]) error {
		return send(ctx, job.Args.Address)
	}, handler.Timeout(30*time.Second))

	drainer, err := handler.New(pool, mux, handler.Config{Concurrency: 4})
	if err != nil {
		fmt.Println(err)
		return
	}
	report, err := drainer.Drain(ctx, queue.Wake{Queue: "mail"})
	fmt.Println(report.Done, err)
}

// Middleware goes round every handler, typed or not.
func ExampleMux_Use() {
	mux := handler.NewMux()
	mux.Use(func(next handler.RawFunc) handler.RawFunc {
		return func(ctx context.Context, job *queue.Job) error {
			begun := time.Now()
			err := next(ctx, job)
			fmt.Println(job.Kind, time.Since(begun), err)
			return err
		}
	})
	handler.Register(mux, func(ctx context.Context, job *handler.Job[Welcome]) error {
		return send(ctx, job.Args.Address)
	})
}

// A handler can put a job off, or say that no further attempt will help.
func ExampleSnooze() {
	var errBusy, errNoSuchUser error

	mux := handler.NewMux()
	handler.Register(mux, func(ctx context.Context, job *handler.Job[Welcome]) error {
		switch err := send(ctx, job.Args.Address); {
		case errors.Is(err, errBusy):
			return handler.Snooze(time.Minute)
		case errors.Is(err, errNoSuchUser):
			return handler.Discard(err)
		default:
			return err
		}
	})
}

// What a handler writes and that its job is done can be one transaction.
func ExampleCompleteTx() {
	var pool *pgxpool.Pool

	mux := handler.NewMux()
	handler.Register(mux, func(ctx context.Context, job *handler.Job[Welcome]) error {
		tx, err := pool.Begin(ctx)
		if err != nil {
			return err
		}
		defer tx.Rollback(context.WithoutCancel(ctx))
		if _, err := tx.Exec(ctx, "UPDATE users SET welcomed = true WHERE address = $1", job.Args.Address); err != nil {
			return err
		}
		if err := handler.CompleteTx(ctx, tx); err != nil {
			return err
		}
		return tx.Commit(ctx)
	})
}
