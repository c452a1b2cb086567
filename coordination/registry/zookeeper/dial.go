package zookeeper

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"time"
)

// dialer connects to servers, and decides how long each step may take.
type dialer struct {
	o       *Options
	life    *life
	servers servers

	ctx  context.Context
	stop context.CancelFunc // of ctx
}

func newDialer(o *Options, l *life) *dialer {
	d := &dialer{o: o, life: l}
	d.ctx, d.stop = context.WithCancel(context.Background())
	return d
}

// expects is the session timeout T, or the one that will be requested.
func (d *dialer) expects() time.Duration {
	if t := d.life.trust.granted(); t != 0 {
		return t
	}
	return d.o.SessionTimeout
}

// patience is how long one server may take to grant a session.
func (d *dialer) patience() time.Duration {
	return max(min(d.expects()/6, 5*time.Second), 100*time.Millisecond)
}

// headStart is how long a server has before the next one is tried in parallel. A hollow server, which accepted
// a connection but granted no session, would always beat a slower working one: so that one gets more time, and
// if no session is at stake more with each round.
func (d *dialer) headStart(hollow bool, rounds int) time.Duration {
	least := max(min(d.expects()/48, 500*time.Millisecond), 50*time.Millisecond)
	switch {
	case !hollow:
		return least
	case d.life.trust.granted() != 0:
		return 2 * least
	}
	return min(least<<min(rounds, 10), d.patience())
}

// silence is how long an address may be silent. A lost packet is sent again after one second, three and seven.
func (d *dialer) silence() time.Duration {
	return max(min(d.expects()/16, 3*time.Second), 300*time.Millisecond)
}

// longestPause is the longest pause between tries while all servers refuse. It is short while a session may
// still be saved.
func (d *dialer) longestPause() time.Duration {
	if t := d.life.trust.granted(); t != 0 {
		return max(min(t/48, time.Second), 200*time.Millisecond)
	}
	return time.Second
}

// candidate is a server address to try.
type candidate struct {
	server  string // as in the list, host:port
	address string // host:port, the host looked up; empty: not looked up yet
	hollow  bool   // it accepted a connection before, and gave no session
}

// outcome is the result of a candidate: its addresses, a connection, or neither.
type outcome struct {
	candidate
	addresses []string
	conn      net.Conn
	err       error
}

// race connects to the first server that grants a session. It tries them in order, each with a head start on
// the next: a machine that is gone does not refuse, it is silent. It returns when all attempts have ended.
func (d *dialer) race(network, first string) (net.Conn, string, error) {
	ctx, cancel := context.WithCancel(d.ctx)
	defer cancel()
	waiting, rounds := d.servers.from(first)
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
					d.servers.tried()
				}
			}
			go func() { results <- d.try(ctx, network, c) }() // received below
			if len(waiting) > 0 {
				next.Reset(d.headStart(waiting[0].hollow, rounds))
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
				d.servers.failed(r.server, r.err)
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
func (d *dialer) try(ctx context.Context, network string, c candidate) (r outcome) {
	ctx, cancel := context.WithTimeout(ctx, d.patience())
	defer cancel()
	r.candidate = c
	host, port, err := net.SplitHostPort(c.server)
	if err != nil {
		r.err = err
		return r
	}
	if c.address == "" {
		found, err := d.o.lookup(ctx, host)
		if err == nil && len(found) == 0 {
			err = fmt.Errorf("%s has no address", host)
		}
		for _, i := range rand.Perm(len(found)) {
			r.addresses = append(r.addresses, net.JoinHostPort(found[i], port))
		}
		r.err = err
		return r
	}
	conn, err := (&net.Dialer{Timeout: d.silence()}).DialContext(ctx, network, c.address)
	if err != nil {
		r.err = err
		return r
	}
	if d.o.TLS == nil {
		r.conn = conn
		return r
	}
	config := d.o.TLS.Clone()
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

// question asks all servers whether they live.
type question struct {
	from   <-chan string // the servers that answered, as in the list; each may answer more than once
	cancel context.CancelFunc
	heard  signs
}

func (q *question) end() {
	if q.cancel != nil {
		q.cancel()
	}
	*q = question{}
}

// whoLives asks all servers for a sign of life, each on its own connection, again and again until it answers or
// the question is ended.
func (d *dialer) whoLives() question {
	ctx, cancel := context.WithCancel(d.life.ctx)
	from := make(chan string)
	for _, server := range d.servers.all() {
		d.life.spawn(func() {
			for ctx.Err() == nil {
				if d.lives(ctx, server) {
					select {
					case from <- server:
					case <-ctx.Done():
					}
					return
				}
				pause := time.NewTimer(d.headStart(true, 0))
				select {
				case <-pause.C:
				case <-ctx.Done():
				}
				pause.Stop()
			}
		})
	}
	return question{from: from, cancel: cancel}
}

// lives reports whether a server answers one of ZooKeeper's four-letter words; any answer counts, even that the
// word is not allowed.
func (d *dialer) lives(ctx context.Context, server string) bool {
	found := d.try(ctx, "tcp", candidate{server: server})
	for _, address := range found.addresses {
		r := d.try(ctx, "tcp", candidate{server: server, address: address})
		if r.conn == nil {
			continue
		}
		ends := context.AfterFunc(ctx, func() { _ = r.conn.Close() })
		_ = r.conn.SetDeadline(time.Now().Add(d.patience()))
		_, err := r.conn.Write([]byte("ruok"))
		if err == nil {
			_, err = r.conn.Read(make([]byte, 1))
		}
		ends()
		_ = r.conn.Close()
		if err == nil {
			return true
		}
	}
	return false
}

// conf is the server's answer to "conf", on a connection of its own; "" if there
// is none.
func (d *dialer) conf(server, address string) string {
	ctx, cancel := context.WithTimeout(d.life.ctx, 5*time.Second)
	defer cancel()
	r := d.try(ctx, "tcp", candidate{server: server, address: address})
	if r.conn == nil {
		return ""
	}
	defer r.conn.Close()
	defer context.AfterFunc(ctx, func() { _ = r.conn.Close() })()
	if _, err := io.WriteString(r.conn, "conf"); err != nil {
		return ""
	}
	text, err := io.ReadAll(r.conn)
	if err != nil && len(text) == 0 {
		return ""
	}
	return string(text)
}
