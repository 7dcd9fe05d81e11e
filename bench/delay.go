package main

import (
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"time"
)

// delayed returns a URL that reaches the same server over a network with a round trip of the given time.
func delayed(target string, roundTrip time.Duration) (string, func(), error) {
	return between(target, func(client, server net.Conn) {
		go late(server, client, roundTrip/2)
		late(client, server, roundTrip/2)
	})
}

// traffic is what a client sent.
type traffic struct {
	statements, trips atomic.Int64
}

// counted returns a URL that reaches the same server and counts what is sent there.
func counted(target string) (string, *traffic, func(), error) {
	var t traffic
	url, stop, err := between(target, func(client, server net.Conn) {
		var answered atomic.Bool // since the client last sent something
		var both sync.WaitGroup
		both.Go(func() {
			defer server.Close()
			_, _ = io.Copy(server, io.TeeReader(client, &frames{onPiece: func() {
				if answered.Swap(false) {
					t.trips.Add(1)
				}
			}, onMessage: func(kind byte) {
				if kind == 'E' || kind == 'Q' { // Execute, and the simple protocol's Query
					t.statements.Add(1)
				}
			}}))
		})
		both.Go(func() {
			defer client.Close()
			_, _ = io.Copy(client, io.TeeReader(server, &frames{onPiece: func() { answered.Store(true) }}))
		})
		both.Wait()
	})
	return url, &t, stop, err
}

// frames is told of a stream's pieces, and finds the types of the client's messages in it.
type frames struct {
	onPiece   func()
	onMessage func(kind byte)
	begun     bool   // the first message has no type
	header    []byte // of the next message, as far as it is there
	left      int    // of the body
}

func (f *frames) Write(b []byte) (int, error) {
	n := len(b)
	f.onPiece()
	if f.onMessage == nil {
		return n, nil
	}
	for len(b) > 0 {
		if f.left > 0 {
			some := min(f.left, len(b))
			b, f.left = b[some:], f.left-some
			continue
		}
		f.header = append(f.header, b[0])
		b = b[1:]
		switch {
		case !f.begun && len(f.header) == 4:
			f.left, f.begun, f.header = int(binary.BigEndian.Uint32(f.header))-4, true, f.header[:0]
		case f.begun && len(f.header) == 5:
			f.onMessage(f.header[0])
			f.left, f.header = int(binary.BigEndian.Uint32(f.header[1:]))-4, f.header[:0]
		}
	}
	return n, nil
}

// between listens, and has serve pass on what each client and the server say.
func between(target string, serve func(client, server net.Conn)) (string, func(), error) {
	u, err := url.Parse(target)
	if err != nil {
		return "", nil, err
	}
	behind := u.Host
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				server, err := net.Dial("tcp", behind)
				if err != nil {
					client.Close()
					return
				}
				serve(client, server)
			}()
		}
	}()
	u.Host = l.Addr().String()
	return u.String(), func() { _ = l.Close() }, nil
}

// late copies what comes after a time, without making less of it come in that time.
func late(to io.WriteCloser, from io.Reader, by time.Duration) {
	type piece struct {
		at   time.Time
		data []byte
	}
	pieces := make(chan piece, 4096)
	go func() {
		defer close(pieces)
		for {
			data := make([]byte, 32<<10)
			n, err := from.Read(data)
			if n > 0 {
				pieces <- piece{time.Now().Add(by), data[:n]}
			}
			if err != nil {
				return
			}
		}
	}()
	defer to.Close()
	for p := range pieces {
		time.Sleep(time.Until(p.at))
		if _, err := to.Write(p.data); err != nil {
			for range pieces { // let the reader end
			}
			return
		}
	}
}
