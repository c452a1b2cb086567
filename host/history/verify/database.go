package verify

import (
	"context"

	"github.com/wasmjob/wasmjob/host/event"
)

// Database is a history that several hosts may write, and that is read in pages.
type Database interface {
	// Name is how findings call it.
	Name() string
	// Events are those of a page, oldest first. after is empty for the first page; next is
	// that of the page behind it, empty if there is none. A page may be empty.
	Events(ctx context.Context, after string) (events []event.Event, next string, err error)
}

// pages reads the events of a database, one after the other.
type pages struct {
	ctx  context.Context // of the check, which the pages do not outlive
	from Database
	// left counts the events of each process that are still to come: what a process of a file writes last
	// is the file's end, and here other processes write on.
	left  map[string]int64
	list  []event.Event
	after string
	over  bool // there is no further page
	read  int  // events
}

// newPages counts the events of each process.
func newPages(ctx context.Context, from Database) (*pages, error) {
	p := &pages{ctx: ctx, from: from, left: make(map[string]int64)}
	for {
		e, ok, err := p.next()
		if err != nil {
			return nil, err
		}
		if !ok {
			break
		}
		p.left[event.ProcessOf(e.Host)]++
	}
	p.list, p.after, p.over, p.read = nil, "", false, 0
	return p, nil
}

// next is the next event; ok is false at the end.
func (p *pages) next() (e event.Event, ok bool, err error) {
	for len(p.list) == 0 {
		if p.over {
			return e, false, nil
		}
		if err := p.ctx.Err(); err != nil {
			return e, false, err
		}
		var next string
		if p.list, next, err = p.from.Events(p.ctx, p.after); err != nil {
			return e, false, err
		}
		p.over, p.after = next == "" || next == p.after, next
	}
	e, p.list = p.list[0], p.list[1:]
	p.read++
	return e, true, nil
}
