package cluster

import (
	"context"
	"sync"
	"time"

	"github.com/wasmjob/wasmjob/host/control/cluster/orphans"
)

const (
	// oldest is the greatest age of the round that a page shows.
	oldest = time.Second
	// patience is how long a page waits for hosts that do not answer.
	patience = time.Second
	// lookPatience is how long it waits for the registry at least.
	lookPatience = 200 * time.Millisecond
	// longestFetch is how long a host may take for an answer that no page waits for any more: the first answer
	// is large.
	longestFetch = 10 * time.Second
	// livePace is the interval of rounds while there are watchers or frequent requests.
	livePace = 750 * time.Millisecond
	// idlePace is the interval of rounds otherwise: so it is known when a host last answered, even after it has
	// gone.
	idlePace = time.Minute
)

// answer is the result of one question to one host, or to the registry.
type answer struct {
	id     string
	delta  Delta
	unheld []orphans.Job
	err    error
}

// registryID stands for the registry among the ids of hosts.
const registryID = "registry"

// asking is one call of Run: the questions under way. It belongs to its goroutine.
type asking struct {
	*Cluster
	answers chan answer
	// open are the ids of hosts that have not answered, late those that no page waits for any more.
	open, late map[string]bool
	under      bool // a round is under way
	looked     bool // the registry was asked in it
	begun      time.Time
	expiries   uint64 // how often Expire was called before it began
	// waiting are those who wait for it, next those for the one after it.
	waiting, next []chan struct{}
	watchers      int
	limit         *time.Timer
	pace          *time.Ticker
	fetches       sync.WaitGroup
}

// Run asks the hosts on request, and otherwise once a minute, until ctx is done.
func (c *Cluster) Run(ctx context.Context) error {
	a := &asking{Cluster: c, answers: make(chan answer), open: make(map[string]bool), late: make(map[string]bool),
		limit: time.NewTimer(patience), pace: time.NewTicker(idlePace)}
	a.limit.Stop()
	defer a.limit.Stop()
	defer a.pace.Stop()
	ctx, cancel := context.WithCancel(ctx)
	defer close(c.ended)
	defer a.fetches.Wait()
	defer cancel()
	if c.o.Changes != nil {
		a.fetches.Go(func() { c.o.Local.Remember(ctx, c.o.Changes) })
	}
	if c.o.Events != nil {
		a.fetches.Go(func() { c.o.Local.RememberGone(ctx, c.o.Events) })
	}
	for {
		select {
		case <-ctx.Done():
			a.waiting = append(a.waiting, a.next...)
			a.finish()
			return nil
		case w := <-c.rounds:
			a.wait(ctx, w)
		case n := <-c.watches:
			a.watch(n)
		case <-a.pace.C:
			a.begin(ctx)
		case r := <-a.answers:
			a.learn(r)
			delete(a.open, r.id)
			delete(a.late, r.id)
		case <-a.limit.C:
			for id := range a.open {
				a.late[id] = true
				c.silence(id, errLate.Error())
			}
			clear(a.open)
		}
		for a.under && len(a.open) == 0 {
			if !a.looked {
				a.look(ctx)
				continue
			}
			a.finish()
			if a.waiting, a.next = a.next, nil; len(a.waiting) > 0 {
				a.begin(ctx)
			}
		}
	}
}

// wait adds a caller that waits for the end of a round.
func (a *asking) wait(ctx context.Context, w asked) {
	if a.under && a.expiries < w.expiries {
		a.next = append(a.next, w.done)
		return
	}
	a.waiting = append(a.waiting, w.done)
	a.begin(ctx)
}

// watch counts who watches.
func (a *asking) watch(n int) {
	before := a.watchers
	a.watchers += n
	switch {
	case a.watchers == 0:
		a.pace.Reset(idlePace)
	case before == 0:
		a.pace.Reset(livePace)
	}
}

// begin begins a round, unless one is in progress: it asks all hosts that are not being asked, and reads this
// host's state meanwhile.
func (a *asking) begin(ctx context.Context) {
	if a.under {
		return
	}
	a.under, a.looked, a.begun = true, false, time.Now()
	self, peers := a.o.Self(), a.o.Peers()
	a.expiries = a.list(self, peers)
	for _, p := range peers {
		if a.late[p.ID] || p.ID == self.ID {
			continue
		}
		epoch, since := a.knows(p.ID)
		a.ask(ctx, p.ID, func(ctx context.Context) answer {
			d, err := a.o.Fetch(ctx, p, epoch, since)
			return answer{id: p.ID, delta: d, err: err}
		})
	}
	a.limit.Reset(patience)
	epoch, since := a.knows(self.ID)
	a.take(answer{id: self.ID, delta: a.o.Local.Delta(epoch, since)})
}

// ask puts a question; Run joins it.
func (a *asking) ask(ctx context.Context, id string, question func(ctx context.Context) answer) {
	a.open[id] = true
	a.fetches.Go(func() {
		fetching, cancel := context.WithTimeout(ctx, longestFetch)
		defer cancel()
		r := question(fetching)
		select {
		case a.answers <- r:
		case <-ctx.Done():
		}
	})
}

// look asks for the jobs that no host has, once the hosts have answered.
func (a *asking) look(ctx context.Context) {
	a.looked = true
	if a.o.Registry == nil || a.late[registryID] {
		return
	}
	alone, before := a.alone()
	if len(alone)+before == 0 {
		return
	}
	a.limit.Reset(max(patience-time.Since(a.begun), lookPatience))
	a.ask(ctx, registryID, func(ctx context.Context) answer {
		list, err := a.o.Registry.Look(ctx, alone)
		return answer{id: registryID, unheld: list, err: err}
	})
}

// learn takes in an answer. Without one from the registry its jobs are as they were.
func (a *asking) learn(r answer) {
	if r.id != registryID {
		a.take(r)
	} else if r.err == nil {
		a.takeUnheld(r.unheld)
	}
}

// finish ends a round: who waited reads on.
func (a *asking) finish() {
	a.rounded(a.expiries)
	a.under = false
	for _, w := range a.waiting {
		close(w)
	}
	a.waiting = nil
}
