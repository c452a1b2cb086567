package cluster

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host"
	"github.com/wasmjob/wasmjob/host/admin"
)

const (
	// patience is how long a page waits for hosts that do not answer.
	patience = time.Second
	// longestFetch is how long a host may take for an answer that no page waits for
	// any more: the first one is large.
	longestFetch = 10 * time.Second
	// livePace lies between two rounds while somebody watches.
	livePace = 750 * time.Millisecond
)

// Host is one host of the namespace.
type Host struct {
	// ID names the host among its peers, for one session.
	ID       string    `json:"id"`
	ServerIP string    `json:"serverIp"`
	API      string    `json:"api,omitempty"`
	Version  string    `json:"version"`
	Started  time.Time `json:"started"`
	// Here: it is the host that answers.
	Here bool `json:"here,omitempty"`
	// Silent says why it does not answer, empty if it does; Seen is when it did last,
	// zero if it never did.
	Silent string    `json:"silent,omitempty"`
	Seen   time.Time `json:"seen,omitzero"`
	// Report is what it said last; nil if it never did.
	Report *admin.Report `json:"report,omitempty"`
	// Jobs counts those that it has, Running its items that run.
	Jobs    int `json:"jobs"`
	Running int `json:"running"`
}

// Peer is the host as it is asked.
func (h *Host) Peer() Peer {
	return Peer{h.ID, tree.ClusterDetail{ServerIP: h.ServerIP, API: h.API, Version: h.Version, Started: h.Started}}
}

// Peer is a host to ask.
type Peer struct {
	ID string
	tree.ClusterDetail
}

// Fetch asks a peer what has changed.
type Fetch func(ctx context.Context, p Peer, epoch string, since uint64) (Delta, error)

// Options are what a cluster is shown from.
type Options struct {
	Local *Local
	// Self describes this host; its id is empty before the first session.
	Self  func() Peer
	Peers func() []Peer
	Fetch Fetch
}

// Cluster knows what all hosts of a namespace do. It is safe for concurrent use, and
// answers while Run runs.
type Cluster struct {
	o       Options
	rounds  chan chan struct{}
	watches chan int      // +1, -1
	ended   chan struct{} // closed when Run has returned

	mu         sync.RWMutex
	at         time.Time // of the newest round
	generation uint64
	self       string // the id of this host
	hosts      map[string]*known
	jobs       map[string]listed
	changed    chan struct{} // closed with the next change
}

// known is what is known of one host.
type known struct {
	peer   Peer
	epoch  string
	since  uint64
	report *admin.Report
	jobs   map[string]host.JobStatus
	silent string
	seen   time.Time
}

// listed is a job and the generation in which it came to be so; a job that is gone has
// no hosts.
type listed struct {
	Job
	generation uint64
}

// ErrEnded says that the host ends.
var ErrEnded = errors.New("this host is ending")

// New returns a cluster that knows nothing before Run.
func New(o Options) *Cluster {
	return &Cluster{o: o, rounds: make(chan chan struct{}), watches: make(chan int), ended: make(chan struct{}), hosts: make(map[string]*known), jobs: make(map[string]listed),
		changed: make(chan struct{})}
}

// answer is what became of one question to one host.
type answer struct {
	peer  Peer
	delta Delta
	err   error
}

// asking is one call of Run: the questions under way.
type asking struct {
	*Cluster
	answers chan answer
	// open are the ids of the hosts that have not answered, late those of which no
	// page waits any more.
	open, late map[string]bool
	waiting    []chan struct{}
	fetches    sync.WaitGroup
}

// Run asks the hosts when somebody wants to know, until ctx is done.
func (c *Cluster) Run(ctx context.Context) error {
	a := &asking{Cluster: c, answers: make(chan answer), open: make(map[string]bool), late: make(map[string]bool)}
	ctx, cancel := context.WithCancel(ctx)
	defer close(c.ended)
	defer a.fetches.Wait()
	defer cancel()
	watchers := 0
	limit := time.NewTimer(0)
	<-limit.C
	pace := time.NewTicker(livePace)
	defer pace.Stop()
	pace.Stop()
	for {
		select {
		case <-ctx.Done():
			a.finish()
			return nil
		case w := <-c.rounds:
			a.waiting = append(a.waiting, w)
			if len(a.waiting) == 1 {
				a.begin(ctx)
				limit.Reset(patience)
			}
		case n := <-c.watches:
			if watchers += n; watchers == 0 {
				pace.Stop()
			} else if watchers == n {
				pace.Reset(livePace)
			}
		case <-pace.C:
			if len(a.waiting) == 0 {
				a.waiting = append(a.waiting, make(chan struct{}))
				a.begin(ctx)
				limit.Reset(patience)
			}
		case r := <-a.answers:
			c.take(r)
			delete(a.open, r.peer.ID)
			delete(a.late, r.peer.ID)
		case <-limit.C:
			for id := range a.open {
				a.late[id] = true
				c.silence(id, "it has not answered within "+patience.String())
			}
			clear(a.open)
		}
		if len(a.waiting) > 0 && len(a.open) == 0 {
			a.finish()
		}
	}
}

// begin asks all hosts that are not being asked.
func (a *asking) begin(ctx context.Context) {
	self := a.o.Self()
	a.take(answer{peer: self, delta: a.local(self.ID)})
	peers := a.o.Peers()
	a.forget(self, peers)
	for _, p := range peers {
		if a.late[p.ID] {
			continue
		}
		a.open[p.ID] = true
		epoch, since := a.knows(p.ID)
		a.fetches.Go(func() { // joined by Run
			fetching, cancel := context.WithTimeout(ctx, longestFetch)
			defer cancel()
			d, err := a.o.Fetch(fetching, p, epoch, since)
			select {
			case a.answers <- answer{p, d, err}:
			case <-ctx.Done():
			}
		})
	}
}

// finish ends a round: who waited reads on.
func (a *asking) finish() {
	defer func() {
		for _, w := range a.waiting {
			close(w)
		}
		a.waiting = nil
	}()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at = time.Now()
	late := make(map[string]bool)
	for name, j := range a.jobs {
		if j.Health == HealthOK && isLate(&j.Job, a.at) {
			late[name] = true
		}
	}
	a.merge(late)
}

func (c *Cluster) local(id string) Delta {
	epoch, since := c.knows(id)
	return c.o.Local.Delta(epoch, since)
}

// knows says up to where a host's answers are known.
func (c *Cluster) knows(id string) (epoch string, since uint64) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if k := c.hosts[id]; k != nil {
		return k.epoch, k.since
	}
	return "", 0
}

// forget removes hosts that are no more.
func (c *Cluster) forget(self Peer, peers []Peer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.self = self.ID
	stale := make(map[string]bool)
	for id, k := range c.hosts {
		if id == self.ID || slices.ContainsFunc(peers, func(p Peer) bool { return p.ID == id }) {
			continue
		}
		for name := range k.jobs {
			stale[name] = true
		}
		delete(c.hosts, id)
	}
	for _, p := range peers {
		if c.hosts[p.ID] == nil {
			c.hosts[p.ID] = &known{peer: p, jobs: make(map[string]host.JobStatus)}
		}
	}
	c.merge(stale)
}

// silence notes why a host does not answer.
func (c *Cluster) silence(id, why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := c.hosts[id]; k != nil {
		k.silent = why
	}
}

// take takes in what a host answered.
func (c *Cluster) take(a answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.hosts[a.peer.ID]
	if k == nil {
		k = &known{jobs: make(map[string]host.JobStatus)}
		c.hosts[a.peer.ID] = k
	}
	k.peer = a.peer
	if a.err != nil {
		k.silent = a.err.Error()
		return
	}
	stale := make(map[string]bool)
	if a.delta.Whole {
		for name := range k.jobs {
			stale[name] = true
		}
		clear(k.jobs)
	}
	for _, j := range a.delta.Jobs {
		k.jobs[j.Name], stale[j.Name] = j, true
	}
	for _, name := range a.delta.Gone {
		delete(k.jobs, name)
		stale[name] = true
	}
	report := a.delta.Report
	k.epoch, k.since, k.report, k.silent, k.seen = a.delta.Epoch, a.delta.Generation, &report, "", time.Now()
	c.merge(stale)
}

// merge puts jobs together anew, and wakes who watches. The caller holds c.mu.
func (c *Cluster) merge(names map[string]bool) {
	if len(names) == 0 {
		return
	}
	c.generation++
	now := time.Now()
	for name := range names {
		j := Job{Name: name}
		if parts := c.parts(name); len(parts) > 0 {
			j = merge(parts, now)
		}
		c.jobs[name] = listed{j, c.generation}
	}
	close(c.changed)
	c.changed = make(chan struct{})
}

// parts are what hosts say of a job, by host. The caller holds c.mu.
func (c *Cluster) parts(name string) []part {
	var parts []part
	for _, id := range slices.Sorted(maps.Keys(c.hosts)) {
		if j, ok := c.hosts[id].jobs[name]; ok {
			parts = append(parts, part{id, j})
		}
	}
	return parts
}

// Expire has the next Refresh ask all hosts anew.
func (c *Cluster) Expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = time.Time{}
}

// Refresh waits until what is known is fresh, for at most a second. An error is that
// of the context.
func (c *Cluster) Refresh(ctx context.Context) error {
	c.mu.RLock()
	fresh := time.Since(c.at) < freshness
	c.mu.RUnlock()
	if fresh {
		return nil
	}
	done := make(chan struct{})
	select {
	case c.rounds <- done:
	case <-c.ended:
		return ErrEnded
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Ended is closed when Run has returned.
func (c *Cluster) Ended() <-chan struct{} { return c.ended }

// Hosts are all hosts, this one first, the others by address.
func (c *Cluster) Hosts() []Host {
	c.mu.RLock()
	defer c.mu.RUnlock()
	list := make([]Host, 0, len(c.hosts))
	for id, k := range c.hosts {
		h := Host{ID: id, ServerIP: k.peer.ServerIP, API: k.peer.API, Version: k.peer.Version, Started: k.peer.Started, Here: id == c.self,
			Silent: k.silent, Seen: k.seen, Report: k.report, Jobs: len(k.jobs)}
		for _, j := range k.jobs {
			for _, i := range j.Items {
				if i.Running {
					h.Running++
				}
			}
		}
		list = append(list, h)
	}
	slices.SortFunc(list, func(a, b Host) int {
		switch {
		case a.Here != b.Here && a.Here:
			return -1
		case a.Here != b.Here:
			return 1
		}
		return strings.Compare(a.ServerIP+a.API+a.ID, b.ServerIP+b.API+b.ID)
	})
	return list
}

// Jobs are all jobs, by name.
func (c *Cluster) Jobs() []Job {
	c.mu.RLock()
	defer c.mu.RUnlock()
	list := make([]Job, 0, len(c.jobs))
	for _, j := range c.jobs {
		if len(j.Hosts) > 0 {
			list = append(list, j.Job)
		}
	}
	slices.SortFunc(list, func(a, b Job) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// Job is one job with its items, and its status on each of its hosts by their ids; ok
// is false if no host has it.
func (c *Cluster) Job(name string) (j Job, items []Item, on map[string]host.JobStatus, ok bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	parts := c.parts(name)
	if len(parts) == 0 {
		return Job{}, nil, nil, false
	}
	on = make(map[string]host.JobStatus, len(parts))
	for _, p := range parts {
		on[p.host] = p.JobStatus
	}
	return c.jobs[name].Job, itemsOf(parts), on, true
}

// Changes are the jobs that have changed since a generation, and the present one; a
// job that is gone has no hosts. more is closed with the next change.
func (c *Cluster) Changes(since uint64) (jobs []Job, generation uint64, more <-chan struct{}) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, j := range c.jobs {
		if j.generation > since {
			jobs = append(jobs, j.Job)
		}
	}
	slices.SortFunc(jobs, func(a, b Job) int { return strings.Compare(a.Name, b.Name) })
	return jobs, c.generation, c.changed
}

// Watch has the hosts asked again and again until end is called.
func (c *Cluster) Watch(ctx context.Context) (end func(), err error) {
	select {
	case c.watches <- 1:
	case <-c.ended:
		return nil, ErrEnded
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return func() {
		select {
		case c.watches <- -1:
		case <-c.ended:
		}
	}, nil
}
