package enqueue

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"strconv"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dozequeue/doze/internal/dbtest"
)

// thief sits between the pool and the server. While it is armed it lets a message
// through that holds the given text, waits until the server has committed and
// answered, keeps the answer, and cuts the connection: just what a client sees when
// the server, a proxy or the network goes away at the worst moment.
type thief struct {
	listener net.Listener
	server   string

	mu    sync.Mutex
	mark  []byte
	times int            // how many more answers to steal; negative: no end
	then  func(int)      // runs after the nth theft, before the client knows
	done  sync.WaitGroup // all its goroutines
	stole int
}

// steal makes a pool that connects through a thief.
func steal(t *testing.T, opts ...dbtest.Option) (*thief, *pgxpool.Pool) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	th := &thief{listener: listener}
	direct, err := pgx.ParseConfig(dbtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	th.server = net.JoinHostPort(direct.Host, strconv.Itoa(int(direct.Port)))
	address := listener.Addr().(*net.TCPAddr)
	t.Cleanup(func() { _ = listener.Close(); th.done.Wait() })
	pool := dbtest.Pool(t, append(opts, dbtest.Configure(func(c *pgxpool.Config) {
		c.ConnConfig.Host, c.ConnConfig.Port = "127.0.0.1", uint16(address.Port)
		c.ConnConfig.Fallbacks = nil
	}))...)
	th.done.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			th.done.Go(func() { th.serve(client) })
		}
	})
	return th, pool
}

// arm steals the answers to the next times messages with mark in them.
func (th *thief) arm(mark string, times int, then func(n int)) {
	th.mu.Lock()
	defer th.mu.Unlock()
	th.mark, th.times, th.then, th.stole = []byte(mark), times, then, 0
}

func (th *thief) thefts() int {
	th.mu.Lock()
	defer th.mu.Unlock()
	return th.stole
}

func (th *thief) wants(message []byte) bool {
	th.mu.Lock()
	defer th.mu.Unlock()
	return th.times != 0 && bytes.Contains(message, th.mark)
}

func (th *thief) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", th.server)
	if err != nil {
		return
	}
	defer server.Close()
	caught := make(chan struct{})
	th.done.Go(func() { // client to server
		buffer := make([]byte, 1<<20)
		for {
			n, err := client.Read(buffer)
			if err != nil {
				_ = server.Close()
				return
			}
			if th.wants(buffer[:n]) {
				close(caught)
				_, _ = server.Write(buffer[:n])
				return // the rest is up to the other direction
			}
			if _, err := server.Write(buffer[:n]); err != nil {
				return
			}
		}
	})
	// Server to client, message by message so that the end of a transaction is seen.
	head := make([]byte, 5)
	for {
		if _, err := io.ReadFull(server, head); err != nil {
			return
		}
		body := make([]byte, binary.BigEndian.Uint32(head[1:])-4)
		if _, err := io.ReadFull(server, body); err != nil {
			return
		}
		select {
		case <-caught:
			if head[0] == 'Z' { // ReadyForQuery: it is committed
				th.mu.Lock()
				th.stole++
				n, then := th.stole, th.then
				th.times--
				th.mu.Unlock()
				if then != nil {
					then(n)
				}
				return
			}
		default:
			if _, err := client.Write(append(head, body...)); err != nil {
				return
			}
		}
	}
}
