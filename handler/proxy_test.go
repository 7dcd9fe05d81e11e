package handler_test

import (
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dozequeue/doze/internal/dbtest"
)

// proxy stands between a pool and the server, and loses what it is told to.
type proxy struct {
	behind   string
	listener net.Listener

	mu     sync.Mutex
	flow   sync.Cond
	down   bool // connections are closed and refused
	frozen bool // nothing passes, and nobody is told
	lose   bool // the next answer of the server is dropped, and its connection with it
	lost   int  // such answers
	conns  map[net.Conn]bool
}

func newProxy(t testing.TB) *proxy {
	t.Helper()
	u, err := url.Parse(dbtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{behind: u.Host, conns: map[net.Conn]bool{}}
	p.flow.L = &p.mu
	if p.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	go p.serve()
	t.Cleanup(func() {
		p.listener.Close()
		p.set(func() { p.frozen, p.down = false, true })
	})
	return p
}

// pool goes through the proxy.
func (p *proxy) pool(t testing.TB, opts ...dbtest.Option) *pgxpool.Pool {
	t.Helper()
	u, err := url.Parse(dbtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	u.Host = p.listener.Addr().String()
	q := u.Query()
	q.Set("sslmode", "disable")
	u.RawQuery = q.Encode()
	return dbtest.Pool(t, append([]dbtest.Option{dbtest.At(u.String())}, opts...)...)
}

// set changes what the proxy does.
func (p *proxy) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	if p.down {
		for c := range p.conns {
			c.Close()
		}
	}
	p.flow.Broadcast()
}

func (p *proxy) losses() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost
}

func (p *proxy) serve() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.behind)
		if err != nil {
			client.Close()
			continue
		}
		p.mu.Lock()
		if p.down {
			client.Close()
			server.Close()
		}
		p.conns[client], p.conns[server] = true, true
		p.mu.Unlock()
		go p.copy(server, client, false)
		go p.copy(client, server, true)
	}
}

func (p *proxy) copy(to, from net.Conn, answers bool) {
	defer func() {
		to.Close()
		from.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, to)
		delete(p.conns, from)
	}()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		p.mu.Lock()
		for p.frozen {
			p.flow.Wait()
		}
		drop := n > 0 && answers && p.lose
		if drop {
			p.lose = false
			p.lost++
		}
		p.mu.Unlock()
		if drop {
			return
		}
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// cut is a way to lose the database.
type cut struct {
	name         string
	begin, close func(*proxy)
}

func cuts() []cut {
	return []cut{
		{"refused", func(p *proxy) { p.set(func() { p.down = true }) }, func(p *proxy) { p.set(func() { p.down = false }) }},
		{"silent", func(p *proxy) { p.set(func() { p.frozen = true }) }, func(p *proxy) { p.set(func() { p.frozen = false }) }},
	}
}
