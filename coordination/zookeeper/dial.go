package zookeeper

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"
)

// servers is the client's list of servers. It hands out names, not addresses:
// they are looked up at every connection.
type servers struct {
	tell func(error)

	mu       sync.Mutex
	names    []string
	next     int
	tries    int // since the last session
	closed   bool
	why      error           // of the last failure
	hollow   map[string]bool // accepted a connection, and gave no session, since the last one
	reported map[string]reported
}

// reported is what was logged of a server's failure, and when.
type reported struct {
	why string
	at  time.Time
}

// Init, Len, Next and Connected implement zk.HostProvider.
func (h *servers) Init(names []string) error {
	h.names = slices.Clone(names) // the client has shuffled them
	return nil
}

func (h *servers) Len() int { return len(h.names) }

// Next also makes the client look whether it was closed, if it was.
func (h *servers) Next() (server string, pause bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	name := h.names[h.next%len(h.names)]
	h.next++
	h.tries++
	return name, h.closed
}

func (h *servers) Connected() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tries, h.hollow, h.reported = 0, nil, nil
}

func (h *servers) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
}

// failed notes why a server could not be used. Once all were tried it reports, of
// each when it is news, and not too often.
func (h *servers) failed(name string, err error) {
	const often = 10 * time.Second
	h.mu.Lock()
	h.why = err
	before, now := h.reported[name], time.Now()
	news := h.tries >= len(h.names) && !h.closed && before.why != err.Error() && now.Sub(before.at) >= often
	if news {
		if h.reported == nil {
			h.reported = make(map[string]reported)
		}
		h.reported[name] = reported{err.Error(), now}
	}
	h.mu.Unlock()
	if news {
		h.tell(err)
	}
}

func (h *servers) reason() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.why
}

// empty notes that a server accepted a connection and gave no session.
func (h *servers) empty(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.hollow == nil {
		h.hollow = make(map[string]bool)
	}
	h.hollow[name] = true
}

// from are all servers in the order in which they are tried from this one on:
// at last those that accepted a connection and gave no session.
func (h *servers) from(name string) (list []candidate, rounds int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := max(slices.Index(h.names, name), 0)
	for _, hollow := range []bool{false, true} {
		for _, n := range slices.Concat(h.names[i:], h.names[:i]) {
			if h.hollow[n] == hollow {
				list = append(list, candidate{server: n, hollow: hollow})
			}
		}
	}
	return list, (h.tries - 1) / len(h.names)
}

// used notes which server the client is connected to: the next is another one.
func (h *servers) used(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.next = slices.Index(h.names, name) + 1
}

// all are all servers.
func (h *servers) all() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.names)
}

// prefer has the client try this server next.
func (h *servers) prefer(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i := slices.Index(h.names, name); i >= 0 {
		h.next = i
	}
}

// tried notes that one more is tried at the same time as others.
func (h *servers) tried() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tries++
}

// pause is how long to wait before the next try: nothing while there are
// servers that were not tried, then longer and longer, up to most.
func (h *servers) pause(most time.Duration) time.Duration {
	const least = 20 * time.Millisecond
	h.mu.Lock()
	rounds := (h.tries - 1) / len(h.names)
	h.mu.Unlock()
	if rounds <= 0 {
		return 0
	}
	d := max(min(least<<min(rounds, 10), most), least)
	return d/2 + rand.N(d/2)
}

// dial is the client's dialer. It connects to the server that the client has
// chosen, or to another one that lets us in while that is silent.
func (s *Session) dial(network, address string, _ time.Duration) (net.Conn, error) {
	<-s.started
	if pause := s.servers.pause(s.longestPause()); pause > 0 {
		timer := time.NewTimer(pause)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-s.dialing.Done():
		}
	}
	s.mu.Lock()
	refuse := s.id != 0 && s.conn.SessionID() == 0
	s.mu.Unlock()
	if refuse { // the client forgot the session that ended, and wants another
		<-s.dialing.Done()
		return nil, errRefused
	}
	conn, server, err := s.race(network, address)
	if err != nil {
		return nil, err
	}
	s.servers.used(server)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dialing.Err() != nil { // nothing would close it
		_ = conn.Close()
		return nil, errRefused
	}
	s.wires++
	s.wire = &wire{Conn: conn, in: bufio.NewReaderSize(conn, 32<<10), s: s, to: server, gone: make(chan struct{})}
	return s.wire, nil
}

// expects is T, or what will be asked for.
func (s *Session) expects() time.Duration {
	if t := s.Timeout(); t != 0 {
		return t
	}
	return s.o.SessionTimeout
}

// patience is how long one server may take to let us in.
func (s *Session) patience() time.Duration {
	return max(min(s.expects()/6, 5*time.Second), 100*time.Millisecond)
}

// headStart is how long a server has before the next one is tried beside it. One
// that has accepted a connection and gave no session would win for ever against a
// better one that is slower: that has more time, and if no session is at stake the
// more the longer it takes.
func (s *Session) headStart(hollow bool, rounds int) time.Duration {
	d := max(min(s.expects()/48, 500*time.Millisecond), 50*time.Millisecond)
	switch {
	case !hollow:
		return d
	case s.Timeout() != 0:
		return 2 * d
	}
	return min(d<<min(rounds, 10), s.patience())
}

// silence is how long an address may not answer at all. A lost packet is sent
// again after one second, three and seven.
func (s *Session) silence() time.Duration {
	return max(min(s.expects()/16, 3*time.Second), 300*time.Millisecond)
}

// longestPause is how long servers that refuse are left alone at most. A session
// that may still be saved does not wait for long.
func (s *Session) longestPause() time.Duration {
	if t := s.Timeout(); t != 0 {
		return max(min(t/48, time.Second), 200*time.Millisecond)
	}
	return time.Second
}

// candidate is an address that may let us in.
type candidate struct {
	server  string // as in the list, host:port
	address string // host:port, the host looked up; empty: not looked up yet
	hollow  bool   // it accepted a connection before, and gave no session
}

// outcome is what became of a candidate: its addresses, a connection, or neither.
type outcome struct {
	candidate
	addresses []string
	conn      net.Conn
	err       error
}

// race connects to the first server that lets us in. They are tried in their
// order, each with a head start on the next: a machine that is gone does not
// refuse, it is silent. It returns once nothing of it is under way.
func (s *Session) race(network, first string) (net.Conn, string, error) {
	ctx, cancel := context.WithCancel(s.dialing)
	defer cancel()
	waiting, rounds := s.servers.from(first)
	results := make(chan outcome)
	var won *outcome
	var last error
	running, begun := 0, 0
	next := time.NewTimer(0)
	defer next.Stop()
	for running > 0 || (won == nil && len(waiting) > 0) {
		select {
		case <-next.C:
			if won != nil || len(waiting) == 0 {
				continue
			}
			c := waiting[0]
			waiting = waiting[1:]
			if running++; c.address == "" {
				if begun++; begun > 1 { // the client has counted the first
					s.servers.tried()
				}
			}
			go func() { results <- s.try(ctx, network, c) }() // received below
			if len(waiting) > 0 {
				next.Reset(s.headStart(waiting[0].hollow, rounds))
			}
		case r := <-results:
			running--
			switch {
			case r.conn != nil && won == nil:
				won = &r
				cancel()
			case r.conn != nil:
				_ = r.conn.Close()
			case won != nil:
			case r.err != nil:
				last = r.err
				s.servers.failed(r.server, r.err)
				if running == 0 || (len(waiting) > 0 && !waiting[0].hollow) {
					next.Reset(0)
				}
			default: // it is this server's turn
				for _, a := range r.addresses {
					waiting = slices.Insert(waiting, 0, candidate{r.server, a, r.hollow})
				}
				next.Reset(0)
			}
		}
	}
	if won == nil {
		return nil, "", last
	}
	return won.conn, won.server, nil
}

// try finds the addresses of a server, in random order, or connects to one.
func (s *Session) try(ctx context.Context, network string, c candidate) (r outcome) {
	ctx, cancel := context.WithTimeout(ctx, s.patience())
	defer cancel()
	r.candidate = c
	host, port, err := net.SplitHostPort(c.server)
	if err != nil {
		r.err = err
		return r
	}
	if c.address == "" {
		found, err := s.o.lookup(ctx, host)
		if err == nil && len(found) == 0 {
			err = fmt.Errorf("%s has no address", host)
		}
		for _, i := range rand.Perm(len(found)) {
			r.addresses = append(r.addresses, net.JoinHostPort(found[i], port))
		}
		r.err = err
		return r
	}
	conn, err := (&net.Dialer{Timeout: s.silence()}).DialContext(ctx, network, c.address)
	if err != nil {
		r.err = err
		return r
	}
	if s.o.TLS == nil {
		r.conn = conn
		return r
	}
	config := s.o.TLS.Clone()
	if config.ServerName == "" {
		config.ServerName = host
	}
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		r.err = fmt.Errorf("TLS with %s: %w", c.server, err)
		return r
	}
	r.conn = secure
	return r
}
