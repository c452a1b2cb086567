package service

import (
	"slices"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/host/config/timetable"
	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/engine"
)

// Link is a job in a chain of jobs that come after each other.
type Link struct {
	Job string `json:"job"`
	// After are the jobs that it comes after, with what is demanded of each.
	After []jobconfig.After `json:"after,omitempty"`
	// Depth is how many jobs lie between it and the first of the chain.
	Depth  int             `json:"depth"`
	Health cluster.Health  `json:"health"`
	State  engine.JobState `json:"state"`
	// Last is its newest fire that ended; nil if none is known.
	Last *cluster.Last `json:"last,omitempty"`
}

// OK reports whether the newest fire ended well.
func (l *Link) OK() bool { return l.Last != nil && l.Last.Outcome == abi.OutcomeOK }

// mostLinks bounds the jobs of a chain that are listed.
const mostLinks = 200

// chainOf are the jobs before and after one, and that one: each once, after one that it comes after, as a tree in the
// order of names. It is nil for a job that is in no chain.
func chainOf(name string, all []*cluster.Job) []Link {
	jobs := make(map[string]*cluster.Job)
	after, followers := make(map[string][]jobconfig.After), make(map[string][]string)
	for _, j := range all {
		jobs[j.Name] = j
		after[j.Name] = timetable.AfterOf(j.Terms)
	}
	for _, j := range all {
		for _, a := range after[j.Name] {
			if jobs[a.Job] != nil {
				followers[a.Job] = append(followers[a.Job], j.Name)
			}
		}
	}
	before := func(job string) (names []string) {
		for _, a := range after[job] {
			if jobs[a.Job] != nil {
				names = append(names, a.Job)
			}
		}
		return names
	}
	inChain := map[string]bool{name: true}
	gather(name, inChain, before)
	gather(name, inChain, func(job string) []string { return followers[job] })
	if len(after[name]) == 0 && len(inChain) == 1 {
		return nil
	}
	var chain []Link
	listed := make(map[string]bool)
	var list func(job string, depth int)
	list = func(job string, depth int) {
		if !inChain[job] || listed[job] || len(chain) == mostLinks {
			return
		}
		listed[job] = true
		j := jobs[job]
		if j == nil {
			return
		}
		chain = append(chain, Link{Job: job, After: after[job], Depth: depth, Health: j.Health, State: j.State, Last: j.Last})
		next := slices.Sorted(slices.Values(followers[job]))
		for _, f := range next {
			list(f, depth+1)
		}
	}
	var first []string
	for job := range inChain {
		if !slices.ContainsFunc(before(job), func(b string) bool { return inChain[b] }) {
			first = append(first, job)
		}
	}
	slices.Sort(first)
	for _, job := range append(first, name) {
		list(job, 0)
	}
	return chain
}

// gather adds all jobs that a way leads to from one.
func gather(from string, found map[string]bool, ways func(string) []string) {
	for todo := []string{from}; len(todo) > 0; {
		job := todo[0]
		todo = todo[1:]
		for _, next := range ways(job) {
			if !found[next] {
				found[next] = true
				todo = append(todo, next)
			}
		}
	}
}
