package zookeeper

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// servers is the client's list of servers. It returns names, not addresses: they are resolved at every
// connection.
type servers struct {
	tell func(error)

	mu       sync.Mutex
	names    []string
	next     int
	tries    int // since the last session
	closed   bool
	why      error           // of the last failure
	hollow   map[string]bool // accepted a connection but granted no session, since the last session
	reported map[string]reported
}

// reported is what was logged of a server's failure, and when.
type reported struct {
	why string
	at  time.Time
}

// Init, Len, Next and Connected implement zk.HostProvider.
func (h *servers) Init(names []string) error {
	for _, name := range names { // the client has shuffled them
		if !slices.Contains(h.names, name) {
			h.names = append(h.names, name)
		}
	}
	return nil
}

func (h *servers) Len() int { return len(h.names) }

// Next also makes the client notice that it was closed.
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

// failed notes why a server could not be used. Once all were tried it reports each new failure, rate-limited.
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

// from returns all servers in the order in which to try them, from this one on; hollow ones come last.
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

// used notes which server the client is connected to, so that the next one differs.
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

// prefer makes the client try this server next.
func (h *servers) prefer(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i := slices.Index(h.names, name); i >= 0 {
		h.next = i
	}
}

// tried counts a server that is tried in parallel.
func (h *servers) tried() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tries++
}

// pause is how long to wait before the next try: 0 while untried servers remain, then longer and longer, up to
// most.
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
