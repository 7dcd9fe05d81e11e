package enqueue

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// Open is an [Auth] that lets in everybody on this machine and nobody else, for development.
// It refuses requests from other addresses, requests for a host that is not this
// machine's loopback (a web page can point a name of its own at 127.0.0.1), those that a
// proxy has passed on, and those that a browser sends for another site.
func Open() Auth {
	crossOrigin := http.NewCrossOriginProtection()
	return AuthFunc(func(r *http.Request) (Caller, error) {
		switch {
		case !loopbackAddr(r.RemoteAddr):
			return Caller{}, fmt.Errorf("%w: without a key this server answers its own machine only", ErrForbidden)
		case !loopbackHost(r.Host):
			return Caller{}, fmt.Errorf("%w: without a key this server answers to localhost only, not to the host that was asked for", ErrForbidden)
		case r.Header.Get("X-Forwarded-For") != "" || r.Header.Get("Forwarded") != "":
			return Caller{}, fmt.Errorf("%w: without a key this server answers no proxy", ErrForbidden)
		}
		if err := crossOrigin.Check(r); err != nil || r.Header.Get("Sec-Fetch-Site") == "cross-site" {
			return Caller{}, fmt.Errorf("%w: without a key this server takes no requests from other sites' pages", ErrForbidden)
		}
		return Caller{Name: "local"}, nil
	})
}

func loopbackAddr(addr string) bool {
	a, err := netip.ParseAddrPort(addr)
	return err == nil && a.Addr().Unmap().IsLoopback()
}

func loopbackHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.Unmap().IsLoopback()
}
