package queue_test

import (
	"context"
	"net"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"
)

// roundTrips counts how often a connection turns from writing to reading.
type roundTrips struct {
	mu      sync.Mutex
	n       int
	writing bool
}

func (r *roundTrips) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n, r.writing = 0, false
}

func (r *roundTrips) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.n
}

func (r *roundTrips) dial(dial pgconn.DialFunc) pgconn.DialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &countedConn{Conn: conn, trips: r}, nil
	}
}

type countedConn struct {
	net.Conn
	trips *roundTrips
}

func (c *countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.trips.mu.Lock()
		if c.trips.writing {
			c.trips.n++
		}
		c.trips.writing = false
		c.trips.mu.Unlock()
	}
	return n, err
}

func (c *countedConn) Write(b []byte) (int, error) {
	c.trips.mu.Lock()
	c.trips.writing = true
	c.trips.mu.Unlock()
	return c.Conn.Write(b)
}
