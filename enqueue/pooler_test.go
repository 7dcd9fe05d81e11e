package enqueue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dozequeue/doze/internal/dbtest"
	"github.com/dozequeue/doze/queue"
)

// everything makes each of the client's calls and each of the routes' requests, in queues whose
// names begin with name. What they do is for other tests: here they only have to work.
func (b *bundle) everything(ctx context.Context, pool *pgxpool.Pool, name string) error {
	client := b.newClient(pool, Config{Alarm: clearable{&alarms{}}})
	entries := []Entry{{greet{"a"}, []Option{On(name)}}, {greet{"b"}, []Option{On(name), Key(name)}}, {greet{"c"}, []Option{On(name), In(time.Hour)}}}
	calls := []func() error{
		func() error { _, err := client.Add(ctx, greet{}, On(name)); return err },
		func() error { _, err := client.Add(ctx, greet{}, On(name), In(time.Minute)); return err },
		func() error { _, err := client.AddMany(ctx, entries); return err },
		func() error {
			return client.InTx(ctx, func(tx *Tx) error {
				if _, err := tx.Add(ctx, greet{}, On(name)); err != nil {
					return err
				}
				_, err := tx.AddMany(ctx, entries)
				return err
			})
		},
		func() error { return client.Fire(ctx, Added{Queue: name + ".new"}) },
		func() error { // takes its ring back
			failing := func(context.Context, queue.Wake) error { return errors.New("no such function") }
			client, err := New(pool, queue.TriggerFunc(failing), Config{Schema: b.schema})
			if err == nil {
				_, err = client.Add(ctx, greet{}, On(name+".failing"))
			}
			return err
		},
		func() error { return b.everyRoute(client, name) },
	}
	for i, call := range calls {
		if err := call(); err != nil {
			return fmt.Errorf("call %d: %w", i, err)
		}
	}
	return nil
}

func (b *bundle) everyRoute(client *Client, name string) error {
	h, err := Routes(client, RoutesConfig{Auth: anyone})
	if err != nil {
		return err
	}
	job := fmt.Sprintf(`{"kind":"k","queue":%q}`, name)
	w := ask(h, "POST", "/v1/jobs", job)
	var added addedJob
	if err := json.Unmarshal(w.Body.Bytes(), &added); err != nil || w.Code != 201 {
		return fmt.Errorf("add: %d %s", w.Code, w.Body)
	}
	at := "/v1/jobs/" + added.ID.String()
	for _, r := range []struct{ method, path, body string }{
		{"POST", "/v1/jobs/batch", "[" + job + "]"},
		{"GET", at, ""}, {"POST", at + "/cancel", ""}, {"POST", at + "/retry", ""},
		{"GET", "/v1/queues", ""}, {"POST", "/v1/queues/" + name + "/pause", ""}, {"POST", "/v1/queues/" + name + "/resume", ""},
	} {
		if w := ask(h, r.method, r.path, r.body); w.Code >= 300 {
			return fmt.Errorf("%s %s: %d %s", r.method, r.path, w.Code, w.Body)
		}
	}
	return nil
}

// A name of a prepared statement is known to one server connection, and the next statement may meet another. Package
// queue gives names of its own, where it knows that there is only one; pgx gives them unasked.
func TestClient_LetsPgxPrepareNothingByName(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, b *bundle) {
		pool := dbtest.Pool(t, dbtest.Mode(b.pool.Config().ConnConfig.DefaultQueryExecMode), dbtest.MaxConns(1))
		if err := b.everything(b.ctx, pool, "q"); err != nil {
			t.Fatal(err)
		}
		rows, err := pool.Query(b.ctx, `SELECT statement FROM pg_prepared_statements WHERE name NOT LIKE 'doze\_%'`, pgx.QueryExecModeExec)
		if err != nil {
			t.Fatal(err)
		}
		named, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		for _, sql := range named {
			t.Errorf("prepared by name: %.200s", sql)
		}
	})
}

// Behind a transaction-mode pooler a program need not know that there is one.
func TestClient_ThroughPgBouncer(t *testing.T) {
	t.Parallel()
	through := dbtest.PgBouncer(t, dbtest.URL(t))
	eachMode(t, func(t *testing.T, b *bundle) {
		pool := dbtest.Pool(t, dbtest.At(through), dbtest.Mode(b.pool.Config().ConnConfig.DefaultQueryExecMode), dbtest.MaxConns(8))
		const clients = 8 // share three connections to the server
		var all sync.WaitGroup
		for i := range clients {
			all.Go(func() {
				if err := b.everything(b.ctx, pool, fmt.Sprint("q", i)); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if text := b.logs.String(); text != "" {
			t.Errorf("logged %.2000s", text)
		}
	})
}

var _ queue.Clearer = clearable{}
