package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// contender is a queue under test. It is used by one goroutine, but for Enqueue.
type contender interface {
	// Name, version and the settings that differ from its defaults.
	Name() string
	Version() string
	Settings() string
	// Setup makes its tables in an empty database.
	Setup(ctx context.Context, url string) error
	// Connect has it use another URL of the database that it was set up in.
	Connect(ctx context.Context, url string) error
	// Enqueue adds one job in a transaction of its own, and wakes whoever runs it as that is done in production.
	// Several goroutines call it at once.
	Enqueue(ctx context.Context) error
	// Bulk adds n jobs in the fastest way that it documents.
	Bulk(ctx context.Context, n int) error
	// Drain runs n waiting jobs in one process, and returns when all are recorded as done. A job does nothing.
	Drain(ctx context.Context, n int) error
	Close()
}

// What a contender may offer besides.
type (
	// historian can keep done jobs or not.
	historian interface {
		KeepHistory(ctx context.Context, keep bool) error
	}
	// waker runs jobs as they come: start is called with the time that was given to Stamp.
	waker interface {
		Watch(ctx context.Context, started func(stamp time.Time)) (stop func(), err error)
		Stamp(ctx context.Context, at time.Time) error
	}
	// sizer takes payloads of another size than 100 bytes.
	sizer interface{ PayloadSize(n int) }
)

// makers are the contenders in the order in which they run.
var makers = []struct {
	name string
	make func() (contender, error)
}{
	{"doze", newDoze}, {"limit", newLimit}, {"river", newRiver}, {"gue", newGue}, {"graphile", newGraphile}, {"pgboss", newPgBoss}, {"pgmq", newPgmq},
}

// nodeOnes are written in JavaScript.
var nodeOnes = []string{"graphile", "pgboss"}

func names() (all []string) {
	for _, m := range makers {
		all = append(all, m.name)
	}
	return all
}

// payloadOf is a JSON object of about n bytes.
func payloadOf(n int) []byte {
	text, _ := json.Marshal(map[string]string{"data": string(slices.Repeat([]byte{'x'}, max(n-11, 1)))})
	return text
}

func newPool(ctx context.Context, url string, most int32) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = most
	return pgxpool.NewWithConfig(ctx, cfg)
}

// pieces calls do for n in pieces of at most size.
func pieces(n, size int, do func(n int) error) error {
	for n > 0 {
		some := min(n, size)
		if err := do(some); err != nil {
			return err
		}
		n -= some
	}
	return nil
}

// together calls drain so many times at once, and adds up what they did: n.
func together(n, drains int, drain func() (int, error)) error {
	done, errs := make([]int, drains), make([]error, drains)
	var all sync.WaitGroup
	for i := range drains {
		all.Go(func() { done[i], errs[i] = drain() })
	}
	all.Wait()
	sum := 0
	for _, some := range done {
		sum += some
	}
	if err := errors.Join(errs...); err != nil || sum == n {
		return err
	}
	return fmt.Errorf("%d of %d done", sum, n)
}

// unavailable is why a contender cannot run here.
type unavailable struct{ why string }

func (e *unavailable) Error() string { return e.why }

func missing(format string, args ...any) error { return &unavailable{fmt.Sprintf(format, args...)} }
