package main

import (
	"io"
	"net"
	"net/url"
	"time"
)

// delayed returns a URL that reaches the same server over a network with a round trip of the given time.
func delayed(target string, roundTrip time.Duration) (string, func(), error) {
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
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				server, err := net.Dial("tcp", behind)
				if err != nil {
					c.Close()
					return
				}
				go late(server, c, roundTrip/2)
				late(c, server, roundTrip/2)
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
