package sleepy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// session is one client's connection.
type session struct {
	p      *Proxy
	client net.Conn

	// Guarded by Proxy.mu.
	ready   bool // it has been through its start
	asked   int  // messages that a ReadyForQuery answers, and did not yet
	unsent  bool // part of a request whose Sync is to come
	inTx    bool
	changed time.Time // when it was last busy
}

// busy reports whether the server would call the session anything but idle. Proxy.mu is held.
func (s *session) busy() bool { return !s.ready || s.asked > 0 || s.unsent || s.inTx }

func (s *session) what() string {
	switch {
	case !s.ready:
		return "a connection that starts"
	case s.asked > 0 || s.unsent:
		return "an active statement"
	case s.inTx:
		return "a session idle in transaction"
	}
	return "an open connection"
}

// Codes of the messages that may begin a connection.
const (
	sslRequest    = 80877103
	gssRequest    = 80877104
	cancelRequest = 80877102
)

// start reads what a client sends first. Encryption is declined: this is loopback.
func start(client net.Conn) (packet []byte, cancel bool, err error) {
	for {
		var length [4]byte
		if _, err := io.ReadFull(client, length[:]); err != nil {
			return nil, false, err
		}
		n := binary.BigEndian.Uint32(length[:])
		if n < 8 || n > 10_000 {
			return nil, false, fmt.Errorf("a start of %d bytes", n)
		}
		packet = make([]byte, n)
		copy(packet, length[:])
		if _, err := io.ReadFull(client, packet[4:]); err != nil {
			return nil, false, err
		}
		switch binary.BigEndian.Uint32(packet[4:]) {
		case sslRequest, gssRequest:
			if _, err := client.Write([]byte("N")); err != nil {
				return nil, false, err
			}
		case cancelRequest:
			return packet, true, nil
		default:
			return packet, false, nil
		}
	}
}

// serve passes a client's connection through, waking the server if need be.
func (p *Proxy) serve(client net.Conn) {
	defer client.Close()
	_ = client.SetReadDeadline(time.Now().Add(30 * time.Second))
	packet, cancel, err := start(client)
	if err != nil {
		return
	}
	_ = client.SetReadDeadline(time.Time{})
	if cancel { // a request to end a statement: there is none while the server sleeps
		if addr := p.awakeAddr(); addr != "" {
			if server, err := net.Dial("tcp", addr); err == nil {
				_, _ = server.Write(packet)
				_ = server.Close()
			}
		}
		return
	}
	s := &session{p: p, client: client}
	addr, err := p.enter(s)
	if err != nil {
		refuse(client, err)
		return
	}
	defer p.leave(s)
	server, err := net.Dial("tcp", addr)
	if err != nil {
		refuse(client, err)
		return
	}
	defer server.Close()
	if _, err := server.Write(packet); err != nil {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { s.pass(client, server, s.fromClient) })
	both.Go(func() { s.pass(server, client, s.fromServer) })
	both.Wait()
}

// pass copies one direction until it ends, and then ends the other.
func (s *session) pass(from, to net.Conn, see func(*framer, []byte)) {
	defer func() {
		_ = to.Close()
		_ = from.Close()
	}()
	var f framer
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			see(&f, buffer[:n])
			if s.p.cfg.Latency > 0 {
				time.Sleep(s.p.cfg.Latency)
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (s *session) fromClient(f *framer, b []byte) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	f.feed(b, func(kind byte) {
		s.p.messages++
		switch kind {
		case 'Q', 'F', 'S': // a query, a function call, a Sync: each is answered by one ReadyForQuery
			s.asked++
			s.unsent = false
		case 'X': // Terminate
		default:
			s.unsent = s.ready
		}
	}, func(byte) {})
	s.p.touch(s)
}

func (s *session) fromServer(f *framer, b []byte) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	f.feed(b, func(byte) {}, func(status byte) {
		if s.ready {
			s.asked = max(s.asked-1, 0)
		}
		if s.asked == 0 { // what a COPY sends has no Sync
			s.unsent = false
		}
		s.ready = true
		s.inTx = status != 'I'
	})
	s.p.touch(s)
}

// refuse tells the client why it cannot be served, as Postgres would.
func refuse(client net.Conn, why error) {
	body := []byte("SFATAL\x00VFATAL\x00C57P03\x00M" + errors.Join(errors.New("the database could not be woken"), why).Error() + "\x00\x00")
	head := []byte{'E', 0, 0, 0, 0}
	binary.BigEndian.PutUint32(head[1:], uint32(len(body)+4))
	_, _ = client.Write(append(head, body...))
}
