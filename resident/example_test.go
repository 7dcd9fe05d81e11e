package resident_test

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dozequeue/doze/enqueue"
	"github.com/dozequeue/doze/handler"
	"github.com/dozequeue/doze/resident"
	"github.com/dozequeue/doze/trigger/notify"
)

// Welcome are the arguments of a kind of job.
type Welcome struct {
	Address string `json:"address"`
}

// Kind is the name by which the handler is found.
func (Welcome) Kind() string { return "welcome" }

func welcome(_ context.Context, job *handler.Job[Welcome]) error {
	fmt.Println("to", job.Args.Address)
	return nil
}

// A process that stays up. Enqueuers use notify.New as their trigger and alarm.
func ExampleRun() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL")) // a pooler will do
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()

	mux := handler.NewMux()
	handler.Register(mux, welcome)
	drainer, err := handler.New(pool, mux, handler.Config{Lease: time.Minute})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := resident.Run(ctx, pool, drainer, resident.Config{URL: os.Getenv("DIRECT_URL")}); err != nil {
		fmt.Println(err)
	}
}

// Where jobs are enqueued, the trigger is a NOTIFY through the ordinary pool. It is the alarm too, so that a
// resident process keeps the time of delayed jobs.
func ExampleRun_enqueue() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()
	sender, err := notify.New(pool, notify.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	jobs, err := enqueue.New(pool, sender, enqueue.Config{Alarm: sender})
	if err != nil {
		fmt.Println(err)
		return
	}
	added, err := jobs.Add(ctx, Welcome{Address: "a@example.org"}, enqueue.In(10*time.Minute))
	fmt.Println(added.ID, err)
}

// A program that a timer starts, say each hour.
func ExampleOnce() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()
	mux := handler.NewMux()
	handler.Register(mux, welcome)
	drainer, err := handler.New(pool, mux, handler.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	reports, err := resident.Once(ctx, pool, drainer, "")
	for _, report := range reports {
		fmt.Println(report.Queue, report.Done)
	}
	fmt.Println(err) // not nil: exit with 1, so that the timer tells
}
