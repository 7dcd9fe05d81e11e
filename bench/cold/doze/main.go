// Command doze runs the jobs that wait and ends, as the handler function does in a fresh environment.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dozequeue/doze/handler"
	"github.com/dozequeue/doze/queue"
)

func main() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	mux := handler.NewMux()
	mux.Handle("nothing", func(context.Context, *queue.Job) error {
		fmt.Println("started")
		return nil
	})
	d, err := handler.New(pool, mux, handler.Config{})
	if err != nil {
		log.Fatal(err)
	}
	if report, err := d.Drain(ctx, queue.Wake{Version: 1, Queue: queue.DefaultQueue}); err != nil || report.Done != 1 {
		log.Fatal(report, err)
	}
}
