// Command gue runs one job with gue and ends.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/vgarvardt/gue/v5"
	"github.com/vgarvardt/gue/v5/adapter/pgxv5"
)

func main() {
	ctx, cancel := context.WithCancel(context.Background())
	pool, err := pgxpool.New(ctx, os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	client, err := gue.NewClient(pgxv5.NewConnPool(pool))
	if err != nil {
		log.Fatal(err)
	}
	worker, err := gue.NewWorker(client, gue.WorkMap{"nothing": func(context.Context, *gue.Job) error {
		fmt.Println("started")
		return nil
	}}, gue.WithWorkerPollInterval(time.Millisecond), gue.WithWorkerHooksJobDone(func(context.Context, *gue.Job, error) { cancel() }))
	if err != nil {
		log.Fatal(err)
	}
	if err := worker.Run(ctx); err != nil {
		log.Fatal(err)
	}
}
