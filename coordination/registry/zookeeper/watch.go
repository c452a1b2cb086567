package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

// entry is a watched query. All watches of it share it: ZooKeeper holds one watch for it, and a change costs
// one read. Everything is guarded by watches.mu.
type entry struct {
	query   registry.Query
	node    registry.Node
	watches map[*watch]struct{}

	// changes counts the events about the node and the connections. known is the count that node reflects, 0 if
	// it was never read; due is the count that it must reflect before it may be sent, so that no snapshot
	// misses an answered commit of our own.
	changes, known, due uint64
}

// watch is one caller of Watch.
type watch struct {
	entries []*entry
	ch      chan registry.Snapshot
	news    bool          // there is something to send
	first   chan struct{} // closed when the first snapshot was sent
	begun   bool
	closed  bool
	err     error // why it ended before the first snapshot
	stop    func() bool
}

// watches are the watches of all callers. The dispatcher reads the watched nodes and sends snapshots.
type watches struct {
	o        *Options
	life     *life
	link     *link
	requests *requests
	wake     chan struct{} // wakes the dispatcher: stale or forgotten is not empty

	mu      sync.Mutex
	entries map[registry.Query]*entry
	stale   map[*entry]struct{} // entries whose node may have changed
	unread  map[*entry]struct{} // entries that could not be read
	open    map[*watch]struct{}
	// forgotten are paths that are no longer watched.
	forgotten map[string]struct{}
}

func newWatches(o *Options, r *requests) *watches {
	return &watches{
		o: o, life: r.life, link: r.link, requests: r,
		wake:    make(chan struct{}, 1),
		entries: make(map[registry.Query]*entry),
		stale:   make(map[*entry]struct{}),
		unread:  make(map[*entry]struct{}),
		open:    make(map[*watch]struct{}), forgotten: make(map[string]struct{}),
	}
}

// close ends all watches. The session is over: none is added.
func (ws *watches) close() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for w := range ws.open {
		ws.unwatch(w)
	}
}

// watched reports whether a read is for a watch. The path is as ZooKeeper has it.
func (ws *watches) watched(op int32, path string) bool {
	path = ws.requests.mine(path)
	ws.mu.Lock()
	defer ws.mu.Unlock()
	data, children := ws.entries[registry.Data(path)], ws.entries[registry.Children(path)]
	switch op {
	case opGetData:
		return data != nil
	case opGetChildren:
		return children != nil
	}
	return data != nil || children != nil
}

// touched notes that an event came about a node, whose path is as ZooKeeper
// has it.
func (ws *watches) touched(path string, what zk.EventType) {
	path = ws.requests.mine(path)
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if what != zk.EventNodeChildrenChanged {
		ws.touch(ws.entries[registry.Data(path)])
	}
	if what != zk.EventNodeDataChanged {
		ws.touch(ws.entries[registry.Children(path)])
	}
}

// hidden notes that a request about a node was denied, and reads its watched queries again: a server does not
// notify a client that may not read the node, and then forgets the watch.
func (ws *watches) hidden(path string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.touch(ws.entries[registry.Data(path)])
	ws.touch(ws.entries[registry.Children(path)])
}

// allTouched marks everything to be read again: watches end with their connection.
func (ws *watches) allTouched() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, e := range ws.entries {
		ws.touch(e)
	}
}

// unreadPause is how often a watched node that cannot be read is tried again.
const unreadPause = 5 * time.Second

// touchUnread marks the unreadable entries to be read again.
func (ws *watches) touchUnread() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for e := range ws.unread {
		ws.touch(e)
	}
}

// touch marks an entry, which may be nil, to be read. ws.mu is held.
func (ws *watches) touch(e *entry) {
	if e == nil {
		return
	}
	e.changes++
	ws.stale[e] = struct{}{}
	select {
	case ws.wake <- struct{}{}:
	default: // it is about to look
	}
}

// owned notes that a commit of this session was answered: its events came before the answer, and every later
// snapshot must include them.
func (ws *watches) owned() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for e := range ws.stale {
		e.due = e.changes
	}
}

// dispatch reads what may have changed and notifies those who watch it.
func (ws *watches) dispatch() {
	var again <-chan time.Time // when to read unreadable nodes again: no event reports a change of an ACL
	for {
		select {
		case <-ws.wake:
		case <-again:
			ws.touchUnread()
		case <-ws.life.lost:
			return
		}
		type job struct {
			of      *entry
			query   registry.Query
			changes uint64
		}
		var jobs []job
		ws.mu.Lock()
		for e := range ws.stale {
			jobs = append(jobs, job{e, e.query, e.changes})
		}
		unwatch := ws.unneeded()
		ws.mu.Unlock()
		// Before the reads: a path that is watched again meanwhile gets its watch by its next read.
		unwatch()
		type finding struct {
			node registry.Node
			err  error
		}
		found, err := parallel(ws.life.ctx, ws.life, jobs, func(ctx context.Context, j job) (finding, error) {
			node, err := ws.observe(ctx, j.query)
			if err != nil && ws.life.over() != nil {
				return finding{}, err
			}
			return finding{node, err}, nil
		})
		if err != nil {
			return
		}
		ws.mu.Lock()
		for i, j := range jobs {
			ws.found(j.of, j.changes, found[i].node, found[i].err)
		}
		for _, j := range jobs {
			for w := range j.of.watches {
				ws.show(w)
			}
		}
		if again = nil; len(ws.unread) > 0 {
			again = time.After(unreadPause)
		}
		if len(ws.stale) > 0 {
			select {
			case ws.wake <- struct{}{}:
			default:
			}
		}
		ws.mu.Unlock()
	}
}

// unneeded removes ZooKeeper's watches that have no reader left: the nodes may never change again, and their
// paths may be new ones each time. Call the result without ws.mu, which is held here.
func (ws *watches) unneeded() func() {
	forgotten := ws.forgotten
	ws.forgotten = make(map[string]struct{})
	up, w, _ := ws.link.present() // watches end with their connection
	remove := make(map[string]int32)
	for path := range forgotten {
		data, children := ws.entries[registry.Data(path)], ws.entries[registry.Children(path)]
		switch {
		case children != nil: // may wait for the node itself, too
		case data != nil:
			remove[path] = watchChildren
		default:
			remove[path] = watchAny
		}
	}
	return func() {
		for path, what := range remove {
			if up != 0 {
				w.unwatch(ws.requests.real(path), what)
			}
		}
	}
}

// observe reads a node and leaves a watch for its next change; the wire sets
// it on the reads of what is watched.
func (ws *watches) observe(ctx context.Context, q registry.Query) (registry.Node, error) {
	for {
		node, err := ws.requests.fetch(ctx, q)
		if err != nil || node.Exists {
			return node, err
		}
		// A read of what does not exist leaves no watch.
		stat, err := ws.requests.status(ctx, q.Path)
		if err != nil || stat == nil {
			return node, err
		}
	}
}

// found stores the result of a read. ws.mu is held.
func (ws *watches) found(e *entry, changes uint64, node registry.Node, err error) {
	if ws.entries[e.query] != e {
		delete(ws.stale, e) // it has no watcher any more
		return
	}
	first := e.known == 0
	e.known = changes
	if e.changes == changes {
		delete(ws.stale, e)
	}
	if err != nil {
		if e.node.Unread == nil {
			ws.o.Logger.Error("a watched node cannot be read", zap.String("path", e.query.Path), zap.Error(err))
		}
		node = e.node // as it was last known
		node.Query, node.Unread = e.query, err
		ws.unread[e] = struct{}{}
	} else {
		delete(ws.unread, e)
	}
	if first || differs(e.node, node) {
		e.node = node
		for w := range e.watches {
			w.news = true
		}
	}
}

// differs reports whether watchers must be notified. For a node whose children are watched only their names and
// its identity count.
func differs(a, b registry.Node) bool {
	if a.Exists != b.Exists || a.Czxid != b.Czxid || (a.Unread == nil) != (b.Unread == nil) {
		return true
	}
	if a.Children {
		return !slices.Equal(a.Names, b.Names)
	}
	return a.Mzxid != b.Mzxid || a.Version != b.Version
}

// show replaces the snapshot in a watch's channel, if a node has changed and all of them may be sent. ws.mu is
// held.
func (ws *watches) show(w *watch) {
	if !w.news || w.closed {
		return
	}
	for _, e := range w.entries {
		if e.known == 0 || e.known < e.due {
			return // the dispatcher calls again when it has read the node
		}
	}
	if !w.begun {
		if w.err = unreadEntries(w.entries); w.err != nil {
			ws.unwatch(w)
			return
		}
	}
	snapshot := make(registry.Snapshot, len(w.entries))
	for _, e := range w.entries {
		snapshot[e.query] = e.node
	}
	select {
	case <-w.ch:
	default:
	}
	w.ch <- snapshot
	w.news = false
	if !w.begun {
		w.begun = true
		close(w.first)
	}
}

// unreadEntries returns why entries could not be read; nil if all could.
func unreadEntries(entries []*entry) error {
	denied := make(map[registry.Query]error)
	for _, e := range entries {
		if err := e.node.Unread; errors.Is(err, ErrNoAuth) {
			denied[e.query] = err
		} else if err != nil {
			return err
		}
	}
	if len(denied) == 0 {
		return nil
	}
	return &registry.UnreadableError{Denied: denied}
}

// watch registers a watch and returns with its first snapshot.
func (ws *watches) watch(ctx context.Context, queries []registry.Query) (<-chan registry.Snapshot, error) {
	w, err := ws.enlist(ctx, queries)
	if err != nil {
		return nil, err
	}
	select {
	case <-w.first:
	case <-ws.life.lost:
		return nil, ws.life.over()
	case <-ctx.Done():
		return nil, fmt.Errorf("registry: watch: %w", ctx.Err())
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	switch {
	case w.err != nil:
		return nil, w.err
	case !w.closed:
		return w.ch, nil
	case ws.life.over() != nil:
		return nil, ws.life.over()
	}
	return nil, fmt.Errorf("registry: watch: %w", ctx.Err())
}

// enlist registers a watch.
func (ws *watches) enlist(ctx context.Context, queries []registry.Query) (*watch, error) {
	w := &watch{ch: make(chan registry.Snapshot, 1), first: make(chan struct{}), news: true}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.life.stage.Load() != live {
		return nil, ws.life.over()
	}
	for _, q := range queries {
		e := ws.entries[q]
		if e == nil {
			e = &entry{query: q, watches: make(map[*watch]struct{})}
			ws.entries[q] = e
			ws.touch(e)
		} else if e.node.Unread != nil {
			e.known = 0 // it may be readable by now
			ws.touch(e)
		}
		if !slices.Contains(w.entries, e) {
			w.entries = append(w.entries, e)
		}
		e.watches[w] = struct{}{}
	}
	ws.open[w] = struct{}{}
	ws.life.work.Add(1) // the end of the session waits for ws.mu, and Close for that end
	w.stop = context.AfterFunc(ctx, func() {
		defer ws.life.work.Done()
		ws.mu.Lock()
		defer ws.mu.Unlock()
		ws.unwatch(w)
	})
	ws.show(w)
	return w, nil
}

// unwatch forgets a watch and closes its channel. ws.mu is held.
func (ws *watches) unwatch(w *watch) {
	if w.closed {
		return
	}
	w.closed = true
	delete(ws.open, w)
	for _, e := range w.entries {
		delete(e.watches, w)
		if len(e.watches) == 0 && ws.entries[e.query] == e {
			delete(ws.entries, e.query)
			delete(ws.stale, e)
			delete(ws.unread, e)
			ws.forgotten[e.query.Path] = struct{}{}
			select {
			case ws.wake <- struct{}{}:
			default: // the dispatcher is about to look
			}
		}
	}
	close(w.ch)
	if !w.begun {
		w.begun = true
		close(w.first)
	}
	if w.stop() {
		ws.life.work.Done()
	}
}
