package auth

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/wasmjob/wasmjob/host/event/operation"
)

// PlacesOptions say how many may use something at once.
type PlacesOptions struct {
	// What is the plural of what takes a place, for messages, such as "streams".
	What string
	// All is how many there are, Each how many of them one principal may have. Reserved are
	// left for principals who may operate some job: others get none of the last.
	All, Each, Reserved int
	// Wait is how long one waits for a place.
	Wait time.Duration
	// Retry is when a client that got none may come back.
	Retry time.Duration
}

// Places shares what a host has a number of among principals. It is safe for concurrent use.
type Places struct {
	o PlacesOptions

	mu   sync.Mutex
	open int
	of   map[string]int // by principal
	// freed is closed when a place is given back; nil if nobody waits.
	freed chan struct{}
}

// NewPlaces makes places, none of which is taken.
func NewPlaces(o PlacesOptions) *Places { return &Places{o: o, of: make(map[string]int)} }

// Take takes a place for the context's principal; leave gives it back and is called once. It
// waits for one if there is a time to wait, until the context is done. The error is a *Problem
// that says which limit was reached, and how many are open.
func (p *Places) Take(ctx context.Context) (leave func(), err error) {
	leave, freed, err := p.try(ctx)
	if err == nil || p.o.Wait == 0 {
		return leave, err
	}
	over := time.NewTimer(p.o.Wait)
	defer over.Stop()
	for err != nil {
		select {
		case <-freed:
			leave, freed, err = p.try(ctx)
		case <-over.C:
			return nil, err
		case <-ctx.Done():
			return nil, err
		}
	}
	return leave, nil
}

// try takes a place if there is one, else freed is closed with the next one that is given back.
func (p *Places) try(ctx context.Context) (leave func(), freed <-chan struct{}, err error) {
	who := From(ctx)
	name := who.String()
	most := p.o.All
	if !who.Any(operation.Operate) {
		most -= p.o.Reserved
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.refuse(name, most); err != nil {
		if p.freed == nil {
			p.freed = make(chan struct{})
		}
		return nil, p.freed, err
	}
	p.open++
	p.of[name]++
	return func() { p.leave(name) }, nil, nil
}

// refuse says which limit leaves no place to a principal that may have one of so many.
func (p *Places) refuse(name string, most int) error {
	switch {
	case p.of[name] >= p.o.Each:
		return p.full("%d %s of %s are open at this host, of at most %d for one user or token; close some, or come back later", p.of[name], p.o.What, name, p.o.Each)
	case p.open >= most && most < p.o.All:
		return p.full("%d %s are open at this host, of at most %d, of which the last %d are for operators; ask another host, or come back later", p.open, p.o.What, p.o.All, p.o.Reserved)
	case p.open >= most:
		return p.full("%d %s are open at this host, which is the most; ask another host, or come back later", p.open, p.o.What)
	}
	return nil
}

func (p *Places) leave(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open--
	if p.of[name]--; p.of[name] == 0 {
		delete(p.of, name)
	}
	if p.freed != nil {
		close(p.freed)
		p.freed = nil
	}
}

func (p *Places) full(format string, args ...any) *Problem {
	no := NewProblem(TooMany, http.StatusTooManyRequests, format, args...)
	no.Header = http.Header{"Retry-After": {strconv.Itoa(int(p.o.Retry.Seconds()))}}
	return no
}
