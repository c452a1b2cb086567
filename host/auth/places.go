package auth

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// PlacesOptions say how many may use something at once.
type PlacesOptions struct {
	// What is the plural of what takes a place, for messages, such as "streams".
	What string
	// All is how many there are, Each how many of them one principal may have. Reserved are
	// left for principals who may operate some job: others get none of the last.
	All, Each, Reserved int
	// Retry is when a client that got none may come back.
	Retry time.Duration
}

// Places shares what a host has a number of among principals. It is safe for concurrent use.
type Places struct {
	o PlacesOptions

	mu   sync.Mutex
	open int
	of   map[string]int // by principal
}

// NewPlaces makes places, none of which is taken.
func NewPlaces(o PlacesOptions) *Places { return &Places{o: o, of: make(map[string]int)} }

// Take takes a place for the context's principal; leave gives it back and is called once. The
// error is a *Problem that says which limit was reached, and how many are open.
func (p *Places) Take(ctx context.Context) (leave func(), err error) {
	who := From(ctx)
	name := who.String()
	most := p.o.All
	if !who.Any(Operate) {
		most -= p.o.Reserved
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.of[name] >= p.o.Each:
		return nil, p.full("%d %s of %s are open at this host, of at most %d for one user or token; close some, or come back later", p.of[name], p.o.What, name, p.o.Each)
	case p.open >= most && most < p.o.All:
		return nil, p.full("%d %s are open at this host, of at most %d, of which the last %d are for operators; ask another host, or come back later", p.open, p.o.What, p.o.All, p.o.Reserved)
	case p.open >= most:
		return nil, p.full("%d %s are open at this host, which is the most; ask another host, or come back later", p.open, p.o.What)
	}
	p.open++
	p.of[name]++
	return func() { p.leave(name) }, nil
}

func (p *Places) leave(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open--
	if p.of[name]--; p.of[name] == 0 {
		delete(p.of, name)
	}
}

func (p *Places) full(format string, args ...any) *Problem {
	no := NewProblem(TooMany, http.StatusTooManyRequests, format, args...)
	no.Header = http.Header{"Retry-After": {strconv.Itoa(int(p.o.Retry.Seconds()))}}
	return no
}
