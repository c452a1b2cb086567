package cluster

import (
	"crypto/rand"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/wasmjob/wasmjob/host/control/report"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
)

// freshness is how old a host's report about itself may be.
const freshness = 500 * time.Millisecond

// Delta is what has changed on a host since it was asked before.
type Delta struct {
	// Epoch changes when the host is restarted, Generation is the number of this answer: send both with the
	// next question.
	Epoch      string `json:"epoch"`
	Generation uint64 `json:"generation"`
	// Whole: Jobs are all jobs, not only those that changed.
	Whole bool `json:"whole,omitempty"`
	// Report is about the host, without its jobs.
	Report report.Report       `json:"report"`
	Jobs   []*engine.JobStatus `json:"jobs,omitempty"`
	// Gone are the names of jobs that the host has no more.
	Gone []string `json:"gone,omitempty"`
	// Pauses are those on record at the host, of any jobs.
	Pauses []Pause `json:"pauses,omitempty"`
	// Sightings are events in which it has noticed that other hosts are gone, Back that they were back.
	Sightings []event.Event `json:"sightings,omitempty"`
	Back      []event.Event `json:"back,omitempty"`
}

// Local is what this host says of itself, to its own pages and to its peers. It is
// safe for concurrent use.
type Local struct {
	report func() report.Report
	epoch  string

	mu         sync.Mutex
	at         time.Time
	generation uint64
	host       report.Report
	jobs       []numbered // by name
	gone       changes    // jobs that it had, and has no more
	pauses     pauses
	sightings  []sighting // oldest first
	peers      []Peer     // which hosts there are
}

// numbered is a job's status and the generation in which it changed.
type numbered struct {
	status     *engine.JobStatus
	generation uint64
}

func (n numbered) compare(name string) int { return strings.Compare(n.status.Name, name) }

// NewLocal returns a Local; report must not ask the registry.
func NewLocal(report func() report.Report) *Local {
	return &Local{report: report, epoch: rand.Text(), pauses: make(pauses)}
}

// Invalidate makes the next question read the present state: something has happened that people look for at
// once.
func (l *Local) Invalidate() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at = time.Time{}
}

// Delta returns what has changed since an earlier answer; everything if that was before a restart, or if there
// was none.
func (l *Local) Delta(epoch string, since uint64) Delta {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); now.Sub(l.at) >= freshness {
		l.look()
		l.at = now
	}
	d := Delta{Epoch: l.epoch, Generation: l.generation, Report: l.host, Whole: epoch != l.epoch || since > l.generation || since < l.gone.forgotten}
	if d.Whole {
		since = 0
	}
	for _, j := range l.jobs {
		if j.generation > since {
			d.Jobs = append(d.Jobs, j.status)
		}
	}
	for _, p := range l.pauses {
		if p.generation > since {
			d.Pauses = append(d.Pauses, p.Pause)
		}
	}
	for _, s := range l.sightings {
		switch {
		case s.generation <= since:
		case s.Kind == event.HostBack:
			d.Back = append(d.Back, s.Event)
		default:
			d.Sightings = append(d.Sightings, s.Event)
		}
	}
	if d.Whole {
		return d
	}
	for name := range l.gone.after(since) {
		if _, back := slices.BinarySearchFunc(l.jobs, name, numbered.compare); !back {
			d.Gone = append(d.Gone, name)
		}
	}
	slices.Sort(d.Gone)
	return d
}

// look compares the host's present state with the last one. The caller holds l.mu.
func (l *Local) look() {
	l.generation++
	l.host = l.report()
	jobs, before := l.host.Status.Jobs, l.jobs // both by name
	l.host.Status.Jobs = nil
	l.jobs = make([]numbered, 0, len(jobs))
	for _, j := range jobs {
		for len(before) > 0 && before[0].status.Name < j.Name {
			l.gone.add(l.generation, before[0].status.Name)
			before = before[1:]
		}
		now := numbered{j, l.generation}
		if len(before) > 0 && before[0].status.Name == j.Name {
			if reflect.DeepEqual(before[0].status, j) { // at once if it is the same pointer
				now.generation = before[0].generation
			}
			before = before[1:]
		}
		l.jobs = append(l.jobs, now)
	}
	for _, j := range before {
		l.gone.add(l.generation, j.status.Name)
	}
	l.gone.trim(2*len(l.jobs) + leastLog)
}
