package enqueue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dozequeue/doze/queue"
)

// AddTx stores one job in your transaction: it is there when that commits, and not if it rolls
// back. Give what it returns to [Client.Fire] after the commit; [Client.InTx] does both.
//
// The transaction should be READ COMMITTED. After an error it is aborted, as after
// that of any statement, unless it is a [*queue.FieldError]. Nothing is tried again.
func (c *Client) AddTx(ctx context.Context, tx pgx.Tx, args queue.Args, opts ...Option) (Added, error) {
	entry, err := encodeOne(args, opts)
	if err != nil {
		return Added{}, err
	}
	b, err := c.one(entry)
	if err != nil {
		return Added{}, err
	}
	added, err := c.addTx(ctx, tx, b)
	if err != nil {
		return Added{}, err
	}
	return added[0], nil
}

// AddManyTx stores jobs in your transaction, in one statement. It is as [Client.AddTx] otherwise.
func (c *Client) AddManyTx(ctx context.Context, tx pgx.Tx, entries []Entry) ([]Added, error) {
	raw, err := encode(entries)
	if err != nil {
		return nil, err
	}
	b, err := c.batch(raw)
	if err != nil || len(b.jobs) == 0 {
		return nil, err
	}
	return c.addTx(ctx, tx, b)
}

func (c *Client) addTx(ctx context.Context, tx pgx.Tx, b *batch) ([]Added, error) {
	// Unnamed even here: the next transaction may be on another server connection, where a name is not known.
	inserted, err := c.store.Insert(ctx, queue.Unnamed(tx), b.jobs, b.repeat)
	if err != nil {
		return nil, fmt.Errorf("enqueue: %w", err)
	}
	added := b.added(inserted)
	c.counted(added)
	return added, nil
}

// Tx is a transaction that jobs can be added to.
type Tx struct {
	pgx.Tx
	client *Client
	added  []Added
}

// Add stores one job in the transaction, as [Client.AddTx] does.
func (tx *Tx) Add(ctx context.Context, args queue.Args, opts ...Option) (Added, error) {
	added, err := tx.client.AddTx(ctx, tx.Tx, args, opts...)
	if err == nil {
		tx.added = append(tx.added, added)
	}
	return added, err
}

// AddMany stores jobs in the transaction, as [Client.AddManyTx] does.
func (tx *Tx) AddMany(ctx context.Context, entries []Entry) ([]Added, error) {
	added, err := tx.client.AddManyTx(ctx, tx.Tx, entries)
	tx.added = append(tx.added, added...)
	return added, err
}

// Commit refuses: [Client.InTx] commits when its function returns nil.
func (tx *Tx) Commit(context.Context) error {
	return errors.New("enqueue: InTx commits when its function returns nil; return instead")
}

// InTx runs fn in a READ COMMITTED transaction. When fn returns nil it commits, and then wakes the
// queues of the jobs that fn added. When fn returns an error or panics it rolls back, wakes
// nobody, and passes that on. Fn must not keep tx.
//
// If the answer to the commit was lost the error is an [*OutcomeError]: fn is not run
// again, since only you know what else it did. A queue that could not be woken is logged
// and counted, and no error.
func (c *Client) InTx(ctx context.Context, fn func(tx *Tx) error) error {
	inner, err := c.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return fmt.Errorf("enqueue: begin: %w", err)
	}
	// Also after a panic in fn; after a commit it does nothing.
	defer rollback(ctx, inner)

	tx := &Tx{Tx: inner, client: c}
	if err := fn(tx); err != nil {
		return err
	}
	if err := inner.Commit(ctx); err != nil {
		if errors.Is(err, pgx.ErrTxClosed) || !maybeCommitted(err) {
			return fmt.Errorf("enqueue: commit: %w", err)
		}
		c.count.unknown.Add(1)
		c.fireUnknown(ctx, tx.added)
		unknown := &OutcomeError{Err: fmt.Errorf("commit: %w", err)}
		for _, a := range tx.added {
			unknown.IDs = append(unknown.IDs, a.ID)
		}
		return unknown
	}
	_ = c.Fire(ctx, tx.added...)
	return nil
}

// rollback has a context of its own: with the caller's, which may have ended, the connection
// would stay idle in transaction and keep its locks.
func rollback(ctx context.Context, tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_ = tx.Rollback(ctx)
}
