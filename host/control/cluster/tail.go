package cluster

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wasmjob/wasmjob/host/history"
)

// Tail passes on what guests of this host log to those who follow it. It is safe for
// concurrent use.
type Tail struct {
	count     atomic.Int64 // of followers, so that a line costs nothing without any
	mu        sync.Mutex
	followers map[*Follower]bool
}

// NewTail returns a tail without followers.
func NewTail() *Tail { return &Tail{followers: make(map[*Follower]bool)} }

// Add passes a line on. It does not block: slow followers lose lines.
func (t *Tail) Add(l history.Line) {
	if t.count.Load() == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for f := range t.followers {
		if !f.filter.MatchLine(&l) {
			continue
		}
		select {
		case f.lines <- Tailed{Line: l}:
		default:
			f.lost.Add(1)
		}
	}
}

// Follower follows a tail.
type Follower struct {
	tail   *Tail
	filter history.Filter
	lines  chan Tailed
	lost   atomic.Int64
}

// Tailed is a line that comes.
type Tailed struct {
	history.Line
	// Lost counts the lines before it that came too fast.
	Lost int64 `json:"lost,omitempty"`
}

// followed is how many lines wait for a follower.
const followed = 1000

// Follow begins to follow lines that match the filter; Close ends it.
func (t *Tail) Follow(f history.Filter) *Follower {
	x := &Follower{tail: t, filter: f, lines: make(chan Tailed, followed)}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.followers[x] = true
	t.count.Add(1)
	return x
}

// Close ends following. It may be called once.
func (f *Follower) Close() {
	f.tail.mu.Lock()
	defer f.tail.mu.Unlock()
	delete(f.tail.followers, f)
	f.tail.count.Add(-1)
}

// Lines are those that come.
func (f *Follower) Lines() <-chan Tailed { return f.lines }

// Lost is how many were lost since it was asked before.
func (f *Follower) Lost() int64 { return f.lost.Swap(0) }

// PathTail is where a peer passes on its lines as they come, each as JSON on a line of
// its own; an empty one shows that it lives.
const PathTail = "/v1/peer/logs/stream"

const (
	// peersPace lies between two looks whether there are other hosts than before.
	peersPace = time.Second
	// tailSilence is how long a peer may say nothing: it shows that it lives more often.
	tailSilence = 45 * time.Second
)

// Follow sends the lines of all hosts that match the filter, from now on until ctx is done, to out in the order
// of arrival. It returns when nothing more is sent.
func (h *Histories) Follow(ctx context.Context, f history.Filter, out chan<- Tailed) {
	send := func(l Tailed) {
		select {
		case out <- l:
		case <-ctx.Done():
		}
	}
	var following sync.WaitGroup
	defer following.Wait()
	following.Go(func() { h.followHere(ctx, f, send) })
	ends := make(map[string]context.CancelFunc)
	look := time.NewTicker(peersPace)
	defer look.Stop()
	for {
		peers := h.Peers()
		for id, end := range ends {
			if !slices.ContainsFunc(peers, func(p Peer) bool { return p.ID == id }) {
				end()
				delete(ends, id)
			}
		}
		for _, p := range peers {
			if ends[p.ID] == nil {
				peer, end := context.WithCancel(ctx)
				ends[p.ID] = end
				following.Go(func() { h.followPeer(peer, p, f, send) })
			}
		}
		select {
		case <-ctx.Done():
			for _, end := range ends {
				end()
			}
			return
		case <-look.C:
		}
	}
}

func (h *Histories) followHere(ctx context.Context, f history.Filter, send func(Tailed)) {
	local := h.Tail.Follow(f)
	defer local.Close()
	for {
		select {
		case l := <-local.Lines():
			l.Lost = local.Lost()
			send(l)
		case <-ctx.Done():
			return
		}
	}
}

// followPeer follows a peer, and again when the connection is lost.
func (h *Histories) followPeer(ctx context.Context, p Peer, f history.Filter, send func(Tailed)) {
	again := time.NewTicker(peersPace)
	defer again.Stop()
	for {
		h.followOnce(ctx, p, f, send)
		select {
		case <-again.C:
		case <-ctx.Done():
			return
		}
	}
}

func (h *Histories) followOnce(ctx context.Context, p Peer, f history.Filter, send func(Tailed)) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	silence := time.AfterFunc(tailSilence, cancel)
	defer silence.Stop()
	_ = h.Stream(ctx, p, PathTail+"?"+Query(f).Encode(), func(line []byte) { // its pages say that it is silent
		silence.Reset(tailSilence)
		var l Tailed
		if len(line) > 0 && json.Unmarshal(line, &l) == nil {
			send(l)
		}
	})
}
