package sleepy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/dozequeue/doze/internal/pgdev"
)

// Rule says what keeps the server awake besides activity within the timeout.
type Rule string

// The rules of the platforms, as their documentation says.
const (
	// Queries: a session that is not idle. An idle connection does not count, and is closed. As on
	// Neon (https://neon.com/docs/introduction/scale-to-zero).
	Queries Rule = "queries"
	// Connections: any open connection. As on Aurora at 0 ACU
	// (https://docs.aws.amazon.com/AmazonRDS/latest/AuroraUserGuide/aurora-serverless-v2-auto-pause.html).
	Connections Rule = "connections"
)

// Config of a [Proxy].
type Config struct {
	// Server to start and stop. Its Port is chosen anew at each start.
	Server pgdev.Config
	// Addr to listen on. Default 127.0.0.1:0, any free port.
	Addr string
	// Rule of the platform. Default Queries.
	Rule Rule
	// Timeout without use until the server is stopped. Required.
	Timeout time.Duration
	// WakeDelay is added to each start: the platforms take from 0.3 s to 15 s. Default 0.
	WakeDelay time.Duration
	// Latency is added to each message in each direction. Default 0.
	Latency time.Duration
	// Logger gets a line when the server wakes and when it is suspended. Default: silent.
	Logger *slog.Logger
}

// State of the server.
type State string

// The states. Waking and suspending count as awake in [Status].
const (
	Asleep     State = "asleep"
	waking     State = "waking"
	Awake      State = "awake"
	suspending State = "suspending"
)

// Interval is one time awake, from the start of waking to the end of suspending.
type Interval struct{ From, To time.Time }

// Status of the server, read without waking it.
type Status struct {
	State State `json:"state"`
	// AwakeSeconds is the wall time awake since the proxy began.
	AwakeSeconds float64 `json:"awake_seconds"`
	// Wakes is how many times it was woken.
	Wakes int `json:"wakes"`
	// KeptAwakeBy says what keeps it awake now; empty while it sleeps.
	KeptAwakeBy string `json:"kept_awake_by"`
	// Messages that clients have sent, their starts apart.
	Messages int `json:"messages"`
}

// Proxy is a server that suspends. Make one with [New].
type Proxy struct {
	cfg      Config
	listener net.Listener
	closing  context.Context
	stop     context.CancelFunc
	clients  sync.WaitGroup

	mu        sync.Mutex
	changed   chan struct{} // closed and replaced at each change of state
	state     State
	server    *pgdev.Server
	sessions  map[*session]struct{}
	used      time.Time // when anybody last was busy, or by Connections connected
	timer     *time.Timer
	intervals []Interval
	wokenAt   time.Time
	wakes     int
	messages  int
}

// New listens, with the server asleep. It returns an error for a setting that is wrong, or an address in use.
func New(cfg Config) (*Proxy, error) {
	if cfg.Rule == "" {
		cfg.Rule = Queries
	}
	switch {
	case cfg.Rule != Queries && cfg.Rule != Connections:
		return nil, fmt.Errorf("suspend rule %q: want queries or connections", cfg.Rule)
	case cfg.Timeout <= 0:
		return nil, fmt.Errorf("suspend timeout %v: want more than 0", cfg.Timeout)
	}
	if cfg.Addr == "" {
		cfg.Addr = "127.0.0.1:0"
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	listener, err := net.Listen("tcp", cfg.Addr)
	if err != nil {
		return nil, fmt.Errorf("sleepy: %w", err)
	}
	p := &Proxy{cfg: cfg, listener: listener, state: Asleep, changed: make(chan struct{}), sessions: make(map[*session]struct{})}
	p.closing, p.stop = context.WithCancel(context.Background())
	p.timer = time.AfterFunc(time.Hour, p.check)
	go p.accept()
	return p, nil
}

// URL of a database behind the proxy, for user postgres.
func (p *Proxy) URL(database string) string {
	return fmt.Sprintf("postgres://postgres@%s/%s?sslmode=disable", p.listener.Addr(), database)
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.clients.Go(func() { p.serve(client) })
	}
}

// become changes the state. The lock is held.
func (p *Proxy) become(s State) {
	p.state = s
	close(p.changed)
	p.changed = make(chan struct{})
}

// enter lets a session in, waking the server if it sleeps, and returns the server's address.
func (p *Proxy) enter(s *session) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		switch {
		case p.closing.Err() != nil:
			return "", errors.New("it is being shut down")
		case p.state == Awake:
			select {
			case <-p.server.Done(): // it died by itself
				p.asleep()
				continue
			default:
			}
			p.sessions[s] = struct{}{}
			p.touch(s)
			return fmt.Sprintf("127.0.0.1:%d", p.server.Port()), nil
		case p.state == Asleep:
			if err := p.wake(); err != nil {
				return "", err
			}
		default:
			changed := p.changed
			p.mu.Unlock()
			<-changed
			p.mu.Lock()
		}
	}
}

// wake starts the server. The lock is held, and given up meanwhile.
func (p *Proxy) wake() error {
	p.become(waking)
	p.wokenAt = time.Now()
	p.wakes++
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(p.closing, time.Minute)
	defer cancel()
	var server *pgdev.Server
	err := pause(ctx, p.cfg.WakeDelay)
	if err == nil {
		server, err = pgdev.Start(ctx, p.cfg.Server)
	}
	p.mu.Lock()
	if err != nil {
		p.cfg.Logger.Error("the database could not be woken", "error", err)
		p.asleep()
		return err
	}
	p.server = server
	p.used = time.Now()
	p.become(Awake)
	p.timer.Reset(p.cfg.Timeout)
	p.cfg.Logger.Info("the database wakes", "after", time.Since(p.wokenAt).Round(time.Millisecond), "wakes", p.wakes)
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// asleep notes that the server has stopped. The lock is held.
func (p *Proxy) asleep() {
	p.intervals = append(p.intervals, Interval{p.wokenAt, time.Now()})
	p.server = nil
	p.become(Asleep)
}

func (p *Proxy) leave(s *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.sessions, s)
	p.used = time.Now()
	if p.state == Awake {
		p.timer.Reset(p.cfg.Timeout)
	}
}

// touch notes that a session was busy just now. The lock is held.
func (p *Proxy) touch(s *session) {
	p.used = time.Now()
	s.changed = p.used
	if p.state == Awake && !s.busy() {
		p.timer.Reset(p.cfg.Timeout)
	}
}

// holder is the session that keeps the server awake by the rule, if one does. The lock is held.
func (p *Proxy) holder() *session {
	for s := range p.sessions {
		if p.cfg.Rule == Connections || s.busy() {
			return s
		}
	}
	return nil
}

// check suspends the server if nothing has used it for long enough.
func (p *Proxy) check() {
	p.mu.Lock()
	if p.state != Awake || p.holder() != nil {
		p.mu.Unlock()
		return // whoever ends that sets the timer
	}
	if left := p.cfg.Timeout - time.Since(p.used); left > 0 {
		p.timer.Reset(left)
		p.mu.Unlock()
		return
	}
	p.suspend()
	p.mu.Unlock()
}

// suspend stops the server, and so ends every session. The lock is held, and given up meanwhile.
func (p *Proxy) suspend() {
	server := p.server
	p.become(suspending)
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := server.Stop(ctx); err != nil { // it tells its clients
		p.cfg.Logger.Error("the database did not stop in order", "error", err)
	}
	p.mu.Lock()
	for s := range p.sessions {
		_ = s.client.Close()
	}
	p.asleep()
	p.cfg.Logger.Info("the database sleeps", "awake", p.intervals[len(p.intervals)-1].To.Sub(p.wokenAt).Round(time.Millisecond))
}

// Suspend stops the server now, whatever uses it. It does nothing if the server sleeps.
func (p *Proxy) Suspend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.state != Asleep {
		if p.state == Awake {
			p.suspend()
			return
		}
		changed := p.changed
		p.mu.Unlock()
		<-changed
		p.mu.Lock()
	}
}

// awakeAddr is the server's address, empty while it sleeps.
func (p *Proxy) awakeAddr() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state != Awake {
		return ""
	}
	return fmt.Sprintf("127.0.0.1:%d", p.server.Port())
}

// Status tells how the server is.
func (p *Proxy) Status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := Status{State: Asleep, Wakes: p.wakes, Messages: p.messages}
	for _, i := range p.intervals {
		s.AwakeSeconds += i.To.Sub(i.From).Seconds()
	}
	if p.state == Asleep {
		return s
	}
	s.State = Awake
	s.AwakeSeconds += time.Since(p.wokenAt).Seconds()
	switch holder := p.holder(); {
	case p.state == waking:
		s.KeptAwakeBy = "waking up"
	case p.state == suspending:
		s.KeptAwakeBy = "going to sleep"
	case holder != nil:
		s.KeptAwakeBy = fmt.Sprintf("%s from %s, busy %v ago", holder.what(), holder.client.RemoteAddr(), time.Since(holder.changed).Round(time.Millisecond))
	default:
		s.KeptAwakeBy = fmt.Sprintf("use %v ago, within the timeout of %v", time.Since(p.used).Round(time.Millisecond), p.cfg.Timeout)
	}
	return s
}

// Intervals are the times awake so far, the present one apart.
func (p *Proxy) Intervals() []Interval {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.intervals)
}

// Wait waits until the server is in the state Awake or Asleep.
func (p *Proxy) Wait(ctx context.Context, want State) error {
	for {
		p.mu.Lock()
		state, changed := p.state, p.changed
		p.mu.Unlock()
		if state == want {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the database is %s, want %s: %w", state, want, ctx.Err())
		case <-changed:
		}
	}
}

// StatusHandler answers with [Status] as JSON, without waking the server.
func (p *Proxy) StatusHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		_ = json.NewEncoder(w).Encode(p.Status())
	})
}

// Close stops the proxy and the server, and waits for both.
func (p *Proxy) Close() error {
	p.stop()
	err := p.listener.Close()
	p.Suspend()
	p.mu.Lock()
	p.timer.Stop()
	for s := range p.sessions {
		_ = s.client.Close()
	}
	p.mu.Unlock()
	p.clients.Wait()
	return err
}
