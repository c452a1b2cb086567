package service

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event/operation"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// The answers to whether a host may restart.
const (
	RestartYes     = "yes"
	RestartNo      = "no"      // a run would be stopped, a job would have no host, or the others have no room
	RestartUnknown = "unknown" // nothing says no, and some host cannot be asked
)

// Restart says what a restart of a host would do.
type Restart struct {
	// Host is the name of the host.
	Host string `json:"host"`
	// Answer is yes, no or unknown.
	Answer string `json:"answer"`
	// Runs are what runs there now: a restart waits for them as long as the host drains, and then stops them.
	Runs []RestartRun `json:"runs"`
	// Only are the jobs that no other host can run.
	Only []RestartJob `json:"only"`
	// Slots is how many items the other hosts can run at once.
	Slots int `json:"slots"`
	// Free is how many of Slots are unused.
	Free int `json:"free"`
	// Needed is how many items run or wait for a slot on the host.
	Needed int `json:"needed"`
	// Unknown says what cannot be known now, and why.
	Unknown []string `json:"unknown"`
}

// RestartRun is an item that runs.
type RestartRun struct {
	// Job is the name of the job.
	Job string `json:"job"`
	// Item is the number of the item.
	Item int `json:"item"`
	// Since is when the attempt began.
	Since time.Time `json:"since"`
}

// RestartJob is a job that other hosts cannot run.
type RestartJob struct {
	// Job is the name of the job.
	Job string `json:"job"`
	// Why says of each other host why it cannot: it has not the job, or its module, grants or settings, or it is disabled there.
	Why []string `json:"why"`
}

// Restart says what a restart of a host would do, by its name, its id or its server's address; "" is the host that answers. It
// needs to see all jobs.
func (s *Service) Restart(ctx context.Context, host string) (*Restart, error) {
	if err := auth.Require(ctx, operation.View, ""); err != nil {
		return nil, err
	}
	if err := s.o.Cluster.Refresh(ctx); err != nil {
		return nil, err
	}
	hosts := s.o.Cluster.Hosts()
	named := func(h cluster.Host) bool {
		return (host == "" && h.Here) || (host != "" && (host == h.ID || host == h.Name || host == h.ServerIP))
	}
	var found []cluster.Host
	for _, h := range hosts {
		if named(h) {
			found = append(found, h)
		}
	}
	switch {
	case len(found) == 0:
		return nil, &NotFoundError{fmt.Sprintf("there is no host %q; 'wasmjob host list' lists those that there are", words.Clip(host))}
	case len(found) > 1:
		names := make([]string, len(found))
		for i, h := range found {
			names[i] = h.Name
		}
		return nil, &InputError{Where: "query.host", Problem: fmt.Sprintf("found %s, which %s have; expected one of their names", words.Clip(host), strings.Join(names, ", "))}
	}
	on := make(map[string]map[string]*engine.JobStatus) // by host and job
	s.o.Cluster.Each(func(id string, j *engine.JobStatus) {
		if on[id] == nil {
			on[id] = make(map[string]*engine.JobStatus)
		}
		on[id][j.Name] = j
	})
	return mayRestart(found[0], hosts, on), nil
}

// unsure returns why the data about a host may be wrong; empty if it is reliable.
func unsure(h *cluster.Host) string {
	switch {
	case h.Silent != "":
		return fmt.Sprintf("host %s does not answer: %s", h.Name, h.Silent)
	case h.Report == nil:
		return fmt.Sprintf("host %s has not answered yet", h.Name)
	case h.State == engine.HostStarting || h.State == engine.HostSuspect:
		return fmt.Sprintf("host %s has no session with the registry that is sure to live", h.Name)
	}
	return ""
}

// mayRestart judges by what hosts say. Pure.
func mayRestart(h cluster.Host, hosts []cluster.Host, on map[string]map[string]*engine.JobStatus) *Restart {
	r := &Restart{Host: h.Name, Runs: []RestartRun{}, Only: []RestartJob{}, Unknown: []string{}}
	var others []cluster.Host
	for _, o := range hosts {
		if why := unsure(&o); why != "" {
			r.Unknown = append(r.Unknown, why)
		}
		if o.ID == h.ID {
			continue
		}
		others = append(others, o)
		if unsure(&o) == "" && o.State == engine.HostLive {
			r.Slots += o.Report.Status.Slots.Total
			r.Free += max(0, o.Report.Status.Slots.Total-o.Report.Status.Slots.Used)
		}
	}
	for _, j := range on[h.ID] {
		for _, i := range j.Items {
			if i.Begun() {
				r.Needed++
			}
			if i.Running {
				r.Runs = append(r.Runs, RestartRun{j.Name, i.Item, i.Since})
			}
		}
		if able(j) != "" {
			continue // it does not run there either
		}
		why, elsewhere := []string{}, false
		for _, o := range others {
			cannot := ""
			if unsure(&o) != "" {
				cannot = "it is not known" // which is no answer
			} else if o.State != engine.HostLive {
				cannot = "the host is " + string(o.State)
			} else if there := on[o.ID][j.Name]; there == nil {
				cannot = "it does not have the job"
			} else {
				cannot = able(there)
			}
			if cannot == "" {
				elsewhere = true
				break
			}
			why = append(why, o.Name+": "+cannot)
		}
		if java := slices.ContainsFunc(j.Hosts, func(i engine.InstanceStatus) bool { return i.Java }); !elsewhere && !java {
			r.Only = append(r.Only, RestartJob{j.Name, why})
		}
	}
	slices.SortFunc(r.Only, func(a, b RestartJob) int { return strings.Compare(a.Job, b.Job) })
	slices.SortFunc(r.Runs, func(a, b RestartRun) int {
		if a.Job != b.Job {
			return strings.Compare(a.Job, b.Job)
		}
		return a.Item - b.Item
	})
	r.Answer = r.judge(others)
	return r
}

// judge returns the answer. If a host cannot be asked, its jobs and slots are unknown.
func (r *Restart) judge(others []cluster.Host) string {
	asked := !slices.ContainsFunc(others, func(o cluster.Host) bool { return unsure(&o) != "" })
	switch {
	case len(r.Runs) > 0, len(r.Only) > 0 && asked, r.Needed > r.Free && asked:
		return RestartNo
	case len(r.Unknown) > 0:
		return RestartUnknown
	}
	return RestartYes
}

// able says why a host does not run items of a job; empty: it does.
func able(j *engine.JobStatus) string {
	switch j.State {
	case engine.JobReady, engine.JobRunning, engine.JobQueued, engine.JobSharding, engine.JobJoining:
		return ""
	}
	if j.Reason != "" {
		return words.State(j.State) + ": " + words.FirstLine(j.Reason)
	}
	return words.State(j.State)
}
