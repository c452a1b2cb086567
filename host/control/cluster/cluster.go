package cluster

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/control/cluster/orphans"
	"github.com/wasmjob/wasmjob/host/control/report"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// Host is one host of the namespace.
type Host struct {
	// ID names the host among its peers, for one session.
	ID string `json:"id"`
	// Name is what the host is called: the server's address, with that of its API if several
	// hosts have the server.
	Name     string `json:"name"`
	ServerIP string `json:"serverIp"`
	// API is the URL of its API, empty if other hosts cannot reach it.
	API     string    `json:"api,omitempty"`
	Version string    `json:"version"`
	Started time.Time `json:"started"`
	// Sessions are the instance ids that its process had, the newest last.
	Sessions []string `json:"-"`
	// Here: it is the host that answers.
	Here bool `json:"here,omitempty"`
	// Silent says why it does not answer, empty if it does; Seen is when it last did, zero if never.
	Silent string    `json:"silent,omitempty"`
	Seen   time.Time `json:"seen,omitzero"`
	// Report is its last answer; nil if there is none.
	Report *report.Report `json:"report,omitempty"`
	// State is what it does, as of Report: "draining" also while it leaves all its jobs because an operator has
	// stopped them there, and "stopped" when it has; empty without a Report.
	State engine.HostState `json:"state,omitempty"`
	// Jobs counts its jobs, Items the items that it owns or runs, Running those that run, Queued those that
	// have begun and wait for a slot; only jobs that may be seen count.
	Jobs    int `json:"jobs"`
	Items   int `json:"items"`
	Running int `json:"running"`
	Queued  int `json:"queued"`
	// Stopped counts the jobs that an operator has stopped there; they are not in Jobs.
	Stopped int `json:"stopped,omitempty"`
	// Disabled are the jobs, by name, that its server is disabled for while another may run them.
	Disabled []string `json:"disabled,omitempty"`
	// Draining are the jobs that it is leaving, those with running items first, by name.
	Draining []Draining `json:"draining,omitempty"`
}

// Draining is a job that a host leaves when what it runs of it has ended.
type Draining struct {
	Job string `json:"job"`
	// Items are those that still run there, ascending.
	Items []int `json:"items"`
}

// Peer is the host as it is asked.
func (h *Host) Peer() Peer {
	return Peer{h.ID, tree.ClusterDetail{ServerIP: h.ServerIP, API: h.API, Version: h.Version, Started: h.Started, Sessions: h.Sessions}}
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
	// Registry knows the jobs that no host has; nil if there are none to show.
	Registry Registry
	// Changes finds changes in this host's store, to show who has paused jobs; nil if it has none.
	Changes func(context.Context, history.Filter) (history.Page[history.Change], error)
	// Events finds events in this host's store, to show which hosts are gone; nil if it has none.
	Events func(context.Context, history.Filter) (history.Page[event.Event], error)
}

// Registry is what the registry has of jobs; see [orphans.Jobs].
type Registry interface {
	Names() []string
	Look(ctx context.Context, names []string) ([]orphans.Job, error)
}

// Cluster knows what all hosts of a namespace do. It is safe for concurrent use, and
// answers while Run runs.
type Cluster struct {
	o       Options
	epoch   string
	rounds  chan asked
	watches chan int      // +1, -1
	ended   chan struct{} // closed when Run has returned

	mu         sync.RWMutex
	at         time.Time // of the newest round
	expiries   uint64    // how often Expire was called
	shown      uint64    // how many of them came before the newest round began
	generation uint64
	self       string // the id of this host
	hosts      map[string]*known
	jobs       map[string]*Job // what one points to is never changed
	unheld     map[string]orphans.Job
	pauses     pauses
	sorted     []*Job // jobs by name, never changed; nil if it has to be made
	log        changes
	changed    chan struct{} // closed with the next change
}

// known is what is known of one host.
type known struct {
	peer   Peer
	epoch  string
	since  uint64
	report *report.Report
	jobs   map[string]*engine.JobStatus
	tally
	sightings []event.Event // the newest mostSightings at most
	// silent says why it does not answer, as of hushed or the newest round; seen is when it last did.
	silent       string
	hushed, seen time.Time
	// slow says why a page got no answer from its history, as of slowAt.
	slow   string
	slowAt time.Time
}

// tally counts the items of a host's jobs, those that run or are queued, and the jobs that it does not run
// on: disabled, stopped by an operator, removed, or draining.
type tally struct{ items, running, queued, disabled, stopped, removed, draining int }

// add counts a job, or with -1 no longer; nil is none.
func (t *tally) add(j *engine.JobStatus, sign int) {
	if j == nil {
		return
	}
	t.items += sign * len(j.Items)
	running, queued := begun(j)
	t.running += sign * running
	t.queued += sign * queued
	switch j.State {
	case engine.JobDisabled:
		t.disabled += sign
	case engine.JobStopped:
		t.stopped += sign
	case engine.JobRemoved:
		t.removed += sign
	case engine.JobDraining:
		t.draining += sign
	}
}

// state is what the host does; see Host.State.
func (k *known) state() engine.HostState {
	if k.report == nil {
		return ""
	}
	state := k.report.Status.State
	leaves := k.stopped+k.draining > 0 && k.stopped+k.draining+k.removed == len(k.jobs)
	switch {
	case state != engine.HostLive || !leaves:
		return state
	case k.draining > 0:
		return engine.HostDraining
	}
	return engine.HostStopped
}

// of counts the jobs that may be seen.
func (k *known) of(see See) (t tally, jobs int) {
	if see == nil {
		return k.tally, len(k.jobs)
	}
	for name, j := range k.jobs {
		if see(name) {
			t.add(j, 1)
			jobs++
		}
	}
	return t, jobs
}

// leaving are the jobs that the host is leaving, of those that may be seen; see Host.Draining.
func (k *known) leaving(see See) (list []Draining) {
	if k.draining == 0 {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(k.jobs)) {
		if k.jobs[name].State != engine.JobDraining || (see != nil && !see(name)) {
			continue
		}
		d := Draining{Job: name, Items: []int{}}
		for _, i := range k.jobs[name].Items {
			if i.Begun() {
				d.Items = append(d.Items, i.Item)
			}
		}
		list = append(list, d)
	}
	slices.SortStableFunc(list, func(a, b Draining) int { return cmp.Compare(min(len(b.Items), 1), min(len(a.Items), 1)) })
	return list
}

// disabledFor are the jobs that the host's server is disabled for, of those that may be seen; see
// Host.Disabled. all are the jobs over all hosts.
func (k *known) disabledFor(all map[string]*Job, see See) (list []string) {
	if k.disabled == 0 {
		return nil
	}
	for name, j := range k.jobs {
		elsewhere := all[name] != nil && all[name].State != engine.JobDisabled
		if j.State == engine.JobDisabled && elsewhere && (see == nil || see(name)) {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return list
}

// ErrEnded says that the host ends.
var ErrEnded = errors.New("this host is ending")

// New returns a cluster that knows nothing before Run.
func New(o Options) *Cluster {
	return &Cluster{o: o, epoch: strings.ToLower(rand.Text()), rounds: make(chan asked), watches: make(chan int), ended: make(chan struct{}),
		hosts: make(map[string]*known), jobs: make(map[string]*Job), pauses: make(pauses), changed: make(chan struct{})}
}

// knows returns how far a host's answers are known.
func (c *Cluster) knows(id string) (epoch string, since uint64) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if k := c.hosts[id]; k != nil {
		return k.epoch, k.since
	}
	return "", 0
}

// list updates the list of hosts, and forgets those that are gone. It returns how often Expire was called
// before.
func (c *Cluster) list(self Peer, peers []Peer) (expiries uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.self = self.ID
	there := map[string]bool{self.ID: true}
	for _, p := range append(slices.Clone(peers), self) {
		there[p.ID] = true
		if k := c.hosts[p.ID]; k != nil {
			k.peer = p
			continue
		}
		c.hosts[p.ID] = &known{peer: p, jobs: make(map[string]*engine.JobStatus)}
	}
	stale := make(map[string]bool)
	for id, k := range c.hosts {
		if there[id] {
			continue
		}
		for name := range k.jobs {
			stale[name] = true
		}
		delete(c.hosts, id)
	}
	c.merge(stale)
	return c.expiries
}

// alone returns the registry's jobs without a host, and how many there were before.
func (c *Cluster) alone() (names []string, before int) {
	all := c.o.Registry.Names()
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, name := range all {
		if j, ok := c.jobs[name]; !ok || len(j.Hosts) == 0 {
			names = append(names, name)
		}
	}
	return names, len(c.unheld)
}

// takeUnheld takes in which jobs no host has.
func (c *Cluster) takeUnheld(list []orphans.Job) {
	c.mu.Lock()
	defer c.mu.Unlock()
	stale := make(map[string]bool)
	for name := range c.unheld {
		stale[name] = true
	}
	c.unheld = make(map[string]orphans.Job, len(list))
	for _, u := range list {
		c.unheld[u.Name] = u
		if reflect.DeepEqual(c.jobs[u.Name], c.unheldJob(u)) {
			delete(stale, u.Name)
		} else {
			stale[u.Name] = true
		}
	}
	c.merge(stale)
}

// unheldJob is a job that no host has. The caller holds c.mu.
func (c *Cluster) unheldJob(u orphans.Job) *Job {
	for _, k := range c.hosts {
		if k.report == nil {
			continue
		}
		for _, m := range k.report.Compiling {
			if slices.Contains(m.Jobs, u.Name) {
				return jobOf(u, engine.JobJoining, HealthOK, "its module "+m.Module+" is being compiled")
			}
		}
	}
	if u.Instances > 0 {
		return jobOf(u, StateElsewhere, HealthOK, words.Count(u.Instances, "instance")+" of hosts that this cluster does not know: of ElasticJob, or of an earlier version")
	}
	remove := "if it is not needed any more: " + words.Command("job remove", u.Name)
	if c.undefined(u) {
		return jobOf(u, StateUndefined, HealthPaused, "none of its servers has a definition of it any more; "+remove)
	}
	return jobOf(u, StateNoHost, HealthError, "no host has it: those that had it are gone, or its files are; "+remove)
}

// undefined reports whether the definition of a job that no host has was taken away on all
// its servers: each has a host that answers and that refuses no definition. The caller holds c.mu.
func (c *Cluster) undefined(u orphans.Job) bool {
	answering := make(map[string]bool)
	for _, k := range c.hosts {
		if k.report == nil || k.silent != "" {
			continue
		}
		answering[k.peer.ServerIP] = true
		for _, r := range k.report.Status.Refused {
			if filepath.Ext(r.File) != ".wasm" && !r.Kept {
				return false // it may define the job
			}
		}
	}
	return len(u.Servers) > 0 && !slices.ContainsFunc(u.Servers, func(ip string) bool { return !answering[ip] })
}

// silence notes why a host does not answer.
func (c *Cluster) silence(id, why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := c.hosts[id]; k != nil {
		c.hush(k, why)
	}
}

// NoteSlow notes why a page got no answer from a host's history. The request may have been too large: the host
// does not count as silent.
func (c *Cluster) NoteSlow(id, why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := c.hosts[id]; k != nil {
		k.slow, k.slowAt = why, time.Now()
	}
}

// WhySilent says why a host's history is not asked: the host has not answered in the last second or round, or
// NoteSlow was called in the last second. It is empty otherwise.
func (c *Cluster) WhySilent(id string) string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	k := c.hosts[id]
	switch {
	case k == nil:
		return ""
	case k.silent != "" && (time.Since(c.at) < oldest || time.Since(k.hushed) < oldest):
		return k.silent
	case time.Since(k.slowAt) < oldest:
		return k.slow
	}
	return ""
}

// hush notes why a host does not answer; its reports about jobs then count less. The caller holds c.mu.
func (c *Cluster) hush(k *known, why string) {
	answered := k.silent == ""
	k.silent, k.hushed = why, time.Now()
	if answered {
		c.merge(names(k.jobs))
	}
}

func names(jobs map[string]*engine.JobStatus) map[string]bool {
	set := make(map[string]bool, len(jobs))
	for name := range jobs {
		set[name] = true
	}
	return set
}

// take takes in what a host answered. One that is gone meanwhile is not brought back.
func (c *Cluster) take(a answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.hosts[a.id]
	if k == nil {
		return
	}
	if a.err != nil {
		c.hush(k, a.err.Error())
		return
	}
	stale := make(map[string]bool)
	if a.delta.Whole || k.silent != "" {
		stale = names(k.jobs)
	}
	if a.delta.Whole {
		clear(k.jobs)
		k.tally, k.sightings = tally{}, nil
	}
	k.sightings = slices.Concat(k.sightings, a.delta.Sightings, a.delta.Back)
	k.sightings = slices.Delete(k.sightings, 0, max(len(k.sightings)-mostSightings, 0))
	for _, j := range a.delta.Jobs {
		if j == nil { // JSON's null
			continue
		}
		k.add(k.jobs[j.Name], -1)
		k.add(j, 1)
		k.jobs[j.Name], stale[j.Name] = j, true
	}
	for _, name := range a.delta.Gone {
		k.add(k.jobs[name], -1)
		delete(k.jobs, name)
		stale[name] = true
	}
	c.notePauses(a.delta.Pauses, stale)
	report := a.delta.Report
	k.epoch, k.since, k.report, k.silent, k.seen = a.delta.Epoch, a.delta.Generation, &report, "", time.Now()
	c.merge(stale)
}

// begun counts the items that run, and those that are queued.
func begun(j *engine.JobStatus) (running, queued int) {
	for _, i := range j.Items {
		if i.Running {
			running++
		}
		if i.Queued {
			queued++
		}
	}
	return running, queued
}

// rounded notes the end of a round; expiries is how often Expire was called before its begin. Late jobs depend
// on the clock alone.
func (c *Cluster) rounded(expiries uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at, c.shown = time.Now(), expiries
	late := make(map[string]bool)
	for name, j := range c.jobs {
		if j.Health == HealthOK && isLate(j, c.at) {
			late[name] = true
		}
	}
	c.merge(late)
}

// merge recomputes jobs, and wakes watchers if one may have changed. The caller holds c.mu.
func (c *Cluster) merge(stale map[string]bool) {
	if len(stale) == 0 {
		return
	}
	now := time.Now()
	c.generation++
	sorted := slices.Clone(c.sorted)
	for name := range stale {
		at, known := slices.BinarySearchFunc(sorted, name, func(j *Job, name string) int { return strings.Compare(j.Name, name) })
		j := c.together(name, now)
		switch {
		case known && j != nil:
			sorted[at] = j
		case known || j != nil:
			sorted = nil
		}
		if c.jobs[name] = j; j == nil {
			delete(c.jobs, name)
		}
		c.log.add(c.generation, name)
	}
	c.log.trim(2*len(c.jobs) + leastLog)
	c.sorted = sorted
	close(c.changed)
	c.changed = make(chan struct{})
}

// together merges a job from all hosts that know it; nil if none does. The caller holds c.mu.
func (c *Cluster) together(name string, now time.Time) *Job {
	if parts := c.parts(name); len(parts) > 0 {
		j := merge(parts, now)
		c.noteWho(j)
		return j
	}
	if u, ok := c.unheld[name]; ok {
		return c.unheldJob(u)
	}
	return nil
}

// parts are what hosts say of a job, by host. The caller holds c.mu.
func (c *Cluster) parts(name string) []part {
	var parts []part
	for id, k := range c.hosts {
		if j, ok := k.jobs[name]; ok {
			parts = append(parts, part{id, k.silent != "", j})
		}
	}
	slices.SortFunc(parts, func(a, b part) int { return strings.Compare(a.host, b.host) })
	return parts
}

// Note is called after a change that this host has carried out, or tried to; known data may be outdated, as
// after Expire.
func (c *Cluster) Note(change history.Change) {
	c.o.Local.Note(change)
	c.Expire()
}

// Expire makes each later Refresh wait for a round that begins after it.
func (c *Cluster) Expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expiries++
}

// asked is a caller that waits for a round after so many calls of Expire.
type asked struct {
	done     chan struct{}
	expiries uint64
}

// Refresh returns when a round has ended at most a second ago; it waits at most one second, after Expire two.
// If the last round is older than livePace, the next one begins in the background for the next caller. In a
// round, a host may answer with data as old as freshness. An error is that of the context, or ErrEnded.
func (c *Cluster) Refresh(ctx context.Context) error {
	c.mu.RLock()
	age, expired := time.Since(c.at), c.shown < c.expiries
	w := asked{make(chan struct{}), c.expiries}
	c.mu.RUnlock()
	if !expired && age < livePace {
		return nil
	}
	if !expired && age < oldest {
		select {
		case c.rounds <- w:
		case <-c.ended:
			return ErrEnded
		default: // Run is at work on a round
		}
		return nil
	}
	select {
	case c.rounds <- w:
	case <-c.ended:
		return ErrEnded
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Ended is closed when Run has returned.
func (c *Cluster) Ended() <-chan struct{} { return c.ended }

// Hosts are all hosts, this one first, the others by address.
func (c *Cluster) Hosts() []Host { return c.HostsOf(nil) }

// HostsOf are the same with the counts of those jobs alone that may be seen; nil is all.
func (c *Cluster) HostsOf(see See) []Host {
	c.mu.RLock()
	defer c.mu.RUnlock()
	list := make([]Host, 0, len(c.hosts))
	name := namesOf(c.peers())
	for id, k := range c.hosts {
		t, jobs := k.of(see)
		list = append(list, Host{ID: id, Name: name(k.peer), ServerIP: k.peer.ServerIP, API: k.peer.API, Version: k.peer.Version, Started: k.peer.Started, Sessions: k.peer.Sessions, Here: id == c.self,
			Silent: c.why(k), Seen: k.seen, Report: k.report, State: k.state(), Jobs: jobs - t.stopped, Stopped: t.stopped, Items: t.items, Running: t.running, Queued: t.queued,
			Disabled: k.disabledFor(c.jobs, see), Draining: k.leaving(see)})
	}
	slices.SortFunc(list, func(a, b Host) int {
		if a.Here != b.Here {
			if a.Here {
				return -1
			}
			return 1
		}
		return cmp.Or(strings.Compare(a.ServerIP, b.ServerIP), strings.Compare(a.API, b.API), strings.Compare(a.ID, b.ID))
	})
	return list
}

// peers are all hosts, in no order. The caller holds c.mu.
func (c *Cluster) peers() []Peer {
	list := make([]Peer, 0, len(c.hosts))
	for _, k := range c.hosts {
		list = append(list, k.peer)
	}
	return list
}

// Silent are the hosts that do not answer, each with the reason.
func (c *Cluster) Silent() (list []string) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	name := namesOf(c.peers())
	for _, id := range slices.Sorted(maps.Keys(c.hosts)) {
		if k := c.hosts[id]; k.silent != "" {
			list = append(list, name(k.peer)+": "+c.why(k))
		}
	}
	return list
}

// why says why a host does not answer; empty if it does. A host that was killed and restarted is listed twice
// until the earlier session has ended, and only the later process answers at its address. The caller holds
// c.mu.
func (c *Cluster) why(k *known) string {
	for _, o := range c.hosts {
		same := o != k && o.peer.API != "" && o.peer.API == k.peer.API && o.peer.ServerIP == k.peer.ServerIP
		if k.silent != "" && same && o.peer.Started.After(k.peer.Started) {
			return "an earlier process of this host, which was started again: it is listed until its session has ended"
		}
	}
	return k.silent
}

// Jobs are all jobs, by name. They are shared: neither may be changed.
func (c *Cluster) Jobs() []*Job {
	c.mu.RLock()
	list := c.sorted
	c.mu.RUnlock()
	if list != nil {
		return list
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sorted == nil {
		c.sorted = slices.SortedFunc(maps.Values(c.jobs), func(a, b *Job) int { return strings.Compare(a.Name, b.Name) })
	}
	return c.sorted
}

// Job is one job with its items, and its status on each of its hosts by their ids, both
// empty if no host has it; ok is false if the registry has no such job either.
func (c *Cluster) Job(name string) (j Job, items []Item, on map[string]*engine.JobStatus, ok bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	known, parts := c.jobs[name], c.parts(name)
	if known == nil {
		return Job{}, nil, nil, false
	}
	return *known, itemsOf(parts), byHost(parts), true
}

// On is what the hosts that have a job say of it, by their ids.
func (c *Cluster) On(name string) map[string]*engine.JobStatus {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return byHost(c.parts(name))
}

// Each yields each host's status of each of its jobs, in no order. yield must not call the Cluster.
func (c *Cluster) Each(yield func(id string, s *engine.JobStatus)) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for id, k := range c.hosts {
		for _, j := range k.jobs {
			yield(id, j)
		}
	}
}

func byHost(parts []part) map[string]*engine.JobStatus {
	on := make(map[string]*engine.JobStatus, len(parts))
	for _, p := range parts {
		on[p.host] = p.JobStatus
	}
	return on
}

// Watch keeps asking the hosts until end is called.
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
