package enqueue_test

import (
	"context"
	"errors"
	"log"
	"net/http"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dozequeue/doze/enqueue"
	"github.com/dozequeue/doze/queue"
)

type Welcome struct {
	To string `json:"to"`
}

func (Welcome) Kind() string { return "welcome" }

// What a program has at hand; see package trigger for real triggers.
var (
	ctx     = context.Background()
	pool    *pgxpool.Pool
	trigger queue.Trigger
	client  *enqueue.Client
)

func ExampleNew() {
	client, err := enqueue.New(pool, trigger, enqueue.Config{})
	if err != nil {
		log.Fatal(err)
	}
	_ = client
}

func ExampleClient_Add() {
	added, err := client.Add(ctx, Welcome{To: "ann@example.com"},
		enqueue.On("mail"), enqueue.In(time.Minute), enqueue.Key("welcome:ann"))
	if err != nil {
		log.Fatal(err)
	}
	if added.Duplicate {
		log.Printf("job %s is there already", added.ID)
	}
}

// The user and the job are committed together, and the queue is woken after that.
func ExampleClient_InTx() {
	err := client.InTx(ctx, func(tx *enqueue.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO users (email) VALUES ($1)", "ann@example.com"); err != nil {
			return err
		}
		_, err := tx.Add(ctx, Welcome{To: "ann@example.com"})
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
}

// With a transaction of your own, Fire comes after the commit.
func ExampleClient_Fire() {
	tx, err := pool.Begin(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	added, err := client.AddTx(ctx, tx, Welcome{To: "ann@example.com"})
	if err != nil {
		log.Fatal(err)
	}
	if err := tx.Commit(ctx); err != nil {
		log.Fatal(err)
	}
	if err := client.Fire(ctx, added); err != nil {
		log.Print(err) // the job is safe and waits for the next wake
	}
}

// An enqueue whose answer was lost is made again with the same id.
func ExampleOutcomeError() {
	args := Welcome{To: "ann@example.com"}
	_, err := client.Add(ctx, args)
	var unknown *enqueue.OutcomeError
	if errors.As(err, &unknown) {
		_, err = client.Add(ctx, args, enqueue.ID(unknown.IDs[0]))
	}
	if err != nil {
		log.Fatal(err)
	}
}

func ExampleRoutes() {
	keys, err := enqueue.ParseKeys(os.Getenv("API_KEYS"))
	if err != nil {
		log.Fatal(err)
	}
	routes, err := enqueue.Routes(client, enqueue.RoutesConfig{Auth: keys})
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Addr: ":8080", Handler: routes, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second}
	log.Fatal(server.ListenAndServe())
}
