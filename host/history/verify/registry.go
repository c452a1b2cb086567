package verify

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// Registry looks for what is left behind in a registry that has come to rest:
// no host came, went or was cut off for some seconds, and nothing was to be
// divided. It reads the nodes by their names, which are ElasticJob's and the
// product's, and by nothing that wrote them. Marks of hosts that are alive, and
// what belongs to ElasticJob's own hosts, are in order. It writes nothing.
//
// A registry that is not at rest shows findings that a second look a little
// later does not; see [LeftBehind].
func Registry(ctx context.Context, rc registry.Center, namespace string) ([]Finding, error) {
	_, findings, err := lookAround(ctx, rc, namespace)
	return findings, err
}

// RegistryReport says what was looked at in a registry.
type RegistryReport struct {
	Namespace string `json:"namespace"`
	// Jobs have a configuration. Of the Idle ones among them no host is there
	// that could have cleared away, so that nothing is said about them.
	Jobs int `json:"jobs"`
	Idle int `json:"idle"`
	// Unused are servers without an instance, by job and address, of jobs that
	// have hosts. They are no findings: the janitor removes enabled ones in time.
	Unused []UnusedServer `json:"unused,omitempty"`
	// Looks is how often all was looked at.
	Looks int `json:"looks"`
}

// UnusedServer is a server of a job that has no instance there.
type UnusedServer struct {
	Job    string `json:"job"`
	Server string `json:"server"`
	// Disabled ones are never removed.
	Disabled bool `json:"disabled,omitempty"`
	// Since is when the janitor first saw it without one; zero if it has not yet.
	Since time.Time `json:"since,omitzero"`
}

// JavaJobs are the jobs of a namespace in which a Java host takes part now.
func JavaJobs(ctx context.Context, rc registry.Center, namespace string) ([]string, error) {
	jobs, err := rc.Read(ctx, registry.Children(tree.JobsPath(namespace)))
	if err != nil {
		return nil, fmt.Errorf("reading the jobs of namespace %s: %w", namespace, err)
	}
	var java []string
	for _, name := range jobs[0].Names {
		l := tree.NewLayout(namespace, name)
		n, err := rc.Read(ctx, registry.Children(l.Root()+"/instances"), registry.Children(l.Sibling()+"/instances"))
		if err != nil {
			return nil, fmt.Errorf("job %s: %w", name, err)
		}
		if slices.ContainsFunc(n[0].Names, func(id string) bool { return !slices.Contains(n[1].Names, id) }) {
			java = append(java, name)
		}
	}
	return java, nil
}

// lookAgain lies between two looks.
const lookAgain = time.Second

// LeftBehind looks until nothing is left of what the first look found, at most
// for so long, and returns what was there in every look: what is begun or given
// up at the moment of a look is no finding. Negative patience is one look.
func LeftBehind(ctx context.Context, rc registry.Center, namespace string, patience time.Duration) (*RegistryReport, []Finding, error) {
	end := time.Now().Add(patience)
	var left []Finding
	for looks := 1; ; looks++ {
		r, found, err := lookAround(ctx, rc, namespace)
		if err != nil {
			return nil, nil, err
		}
		if r.Looks = looks; looks == 1 {
			left = found
		} else {
			left = slices.DeleteFunc(left, func(f Finding) bool { return !slices.ContainsFunc(found, f.same) })
		}
		rest := time.Until(end)
		if len(left) == 0 || rest <= 0 {
			return r, left, nil
		}
		again := time.NewTimer(min(rest, lookAgain))
		select {
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			return nil, nil, ctx.Err()
		}
	}
}

// same reports whether two looks at the registry found the same.
func (f Finding) same(other Finding) bool {
	return f.Job == other.Job && f.Item == other.Item && f.Text == other.Text && slices.Equal(f.Nodes, other.Nodes)
}

// AddRegistry adds what a look at the registry found.
func (r *Report) AddRegistry(looked *RegistryReport, findings []Finding) {
	r.Registry = looked
	r.Checked[Settled] += int64(looked.Jobs - looked.Idle)
	r.Violations += len(findings)
	r.Findings = append(r.Findings, findings...)
	for _, f := range findings {
		if i := slices.IndexFunc(r.Jobs, func(j JobReport) bool { return j.Job == f.Job }); i >= 0 {
			r.Jobs[i].Violations++
		}
	}
}

// lookAround is one look at all jobs.
func lookAround(ctx context.Context, rc registry.Center, namespace string) (*RegistryReport, []Finding, error) {
	jobs, err := rc.Read(ctx, registry.Children(tree.JobsPath(namespace)))
	if err != nil {
		return nil, nil, fmt.Errorf("reading the jobs of namespace %s: %w", namespace, err)
	}
	r := &RegistryReport{Namespace: namespace}
	var findings []Finding
	for _, name := range jobs[0].Names {
		l := tree.NewLayout(namespace, name)
		s := &survey{ctx: ctx, rc: rc, job: name, root: l.Root(), sibling: l.Sibling()}
		s.look()
		if s.err != nil {
			return nil, nil, fmt.Errorf("job %s: %w", name, s.err)
		}
		findings = append(findings, s.findings...)
		r.Unused = append(r.Unused, s.unused...)
		if s.configured {
			r.Jobs++
			if len(s.alive) == 0 {
				r.Idle++
			}
		}
	}
	return r, findings, nil
}

// survey is one look at one job.
type survey struct {
	ctx                context.Context
	rc                 registry.Center
	job, root, sibling string
	alive              map[string]bool // an instance of the job, or of ours and on its way out
	java               map[string]bool
	configured         bool
	findings           []Finding
	unused             []UnusedServer
	err                error
}

func (s *survey) read(q ...registry.Query) []registry.Node {
	if s.err == nil && len(q) > 0 {
		var nodes []registry.Node
		if nodes, s.err = s.rc.Read(s.ctx, q...); s.err == nil {
			return nodes
		}
	}
	return make([]registry.Node, len(q))
}

func (s *survey) children(path string) []string {
	return s.read(registry.Children(path))[0].Names
}

func (s *survey) find(item int, path, format string, args ...any) {
	s.findings = append(s.findings, Finding{Invariant: Settled, Class: Violated, Job: s.job, Item: item,
		Text: fmt.Sprintf(format, args...), Nodes: []string{path}})
}

func (s *survey) look() {
	if !s.read(registry.Data(s.root + "/config"))[0].Exists {
		return // removed, or no job of anybody's
	}
	s.configured = true
	instances, details := s.children(s.root+"/instances"), s.children(s.sibling+"/instances")
	s.alive, s.java = make(map[string]bool), make(map[string]bool)
	for _, id := range details {
		s.alive[id] = true
		if !slices.Contains(instances, id) {
			s.find(-1, s.sibling+"/instances/"+id, "%s is no instance of the job any more and has not left it", id)
		}
	}
	for _, id := range instances {
		s.alive[id] = true
		s.java[id] = !slices.Contains(details, id)
	}
	if len(s.alive) == 0 {
		return // no host is there that could have cleared away
	}
	s.servers(instances, details)
	s.leader()
	s.membership()
	s.items()
}

// servers lists those without an instance.
func (s *survey) servers(instances, details []string) {
	noted := s.read(registry.Data(s.sibling + "/servers"))[0]
	list := tree.UnusedServers(s.children(s.root+"/servers"), instances, details, noted.Data)
	for _, ip := range slices.Sorted(maps.Keys(list)) {
		state := strings.TrimSpace(string(s.read(registry.Data(s.root + "/servers/" + ip))[0].Data))
		s.unused = append(s.unused, UnusedServer{Job: s.job, Server: ip, Disabled: strings.EqualFold(state, "DISABLED"), Since: list[ip]})
	}
}

func (s *survey) leader() {
	n := s.read(registry.Data(s.root + "/leader/election/instance"))[0]
	if id := string(n.Data); n.Exists && !s.alive[id] {
		s.find(-1, n.Path, "the leader %s is gone", id)
	}
	for _, flag := range s.children(s.root + "/leader/sharding") {
		s.find(-1, s.root+"/leader/sharding/"+flag, "the items are still to be sharded: flag %s stands", flag)
	}
	for _, item := range s.children(s.root + "/leader/failover/items") {
		s.find(-1, s.root+"/leader/failover/items/"+item, "crashed item %s waits for a host to take it", item)
	}
	for _, id := range s.children(s.root + "/trigger") {
		if !s.alive[id] {
			s.find(-1, s.root+"/trigger/"+id, "a trigger waits for %s, which is gone", id)
		}
	}
}

func (s *survey) membership() {
	members := s.read(registry.Data(s.sibling + "/members"))[0]
	for _, id := range strings.Fields(string(members.Data)) {
		if !s.alive[id] {
			s.find(-1, members.Path, "%s is gone and still a member: what it left behind was not taken", id)
		}
	}
	held := make(map[int]string)
	for _, id := range s.children(s.sibling + "/assignment") {
		n := s.read(registry.Data(s.sibling + "/assignment/" + id))[0]
		if n.Exists && !s.alive[id] {
			s.find(-1, n.Path, "%s is gone and has items: %q", id, n.Data)
		}
		items, err := tree.ParseItems(string(n.Data))
		if err != nil {
			s.find(-1, n.Path, "the items of %s cannot be read: %v", id, err)
		}
		for _, i := range items {
			if other, taken := held[i]; taken {
				s.find(i, n.Path, "the item belongs to %s and to %s", other, id)
			}
			held[i] = id
		}
	}
	for _, id := range s.children(s.sibling + "/runs") {
		if n := s.read(registry.Data(s.sibling + "/runs/" + id))[0]; n.Exists && !s.alive[id] {
			s.find(-1, n.Path, "%s is gone and its list of runs is there: %q", id, n.Data)
		}
	}
}

// runs is as much of a host's list of runs as is needed here.
type runs struct {
	Runs []struct {
		Items tree.Items `json:"items"`
	} `json:"runs"`
}

func (s *survey) items() {
	running := s.running()
	for _, name := range s.children(s.root + "/sharding") {
		s.item(name, running)
	}
}

// running is who runs each item, by the lists of those that live.
func (s *survey) running() map[int]string {
	running := make(map[int]string)
	for id := range s.alive {
		var list runs
		n := s.read(registry.Data(s.sibling + "/runs/" + id))[0]
		if len(n.Data) > 0 && json.Unmarshal(n.Data, &list) != nil {
			s.find(-1, n.Path, "the list of runs of %s cannot be read", id)
		}
		for _, run := range list.Runs {
			for _, i := range run.Items {
				if other, twice := running[i]; twice && other != id {
					s.find(i, n.Path, "the item runs on %s and on %s", other, id)
				}
				running[i] = id
			}
		}
	}
	return running
}

// item looks at one item's owner, marks and record.
func (s *survey) item(name string, running map[int]string) {
	i, err := strconv.Atoi(name)
	if err != nil || i < 0 {
		return
	}
	path := s.root + "/sharding/" + name
	marks := s.read(registry.Data(path+"/instance"), registry.Data(path+"/running"), registry.Data(path+"/failover"),
		registry.Data(path+"/failovering"), registry.Data(s.sibling+"/sharding/"+name))
	if owner := string(marks[0].Data); marks[0].Exists && !s.alive[owner] {
		s.find(i, marks[0].Path, "the item belongs to %s, which is gone", owner)
	}
	for _, m := range marks[1:4] {
		id := string(m.Data)
		switch {
		case !m.Exists:
		case !s.alive[id] && id != "":
			s.find(i, m.Path, "the mark is of %s, which is gone", id)
		case id != "" && !s.java[id] && running[i] != id:
			s.find(i, m.Path, "the mark is of %s, which does not run the item", id)
		}
	}
	var record struct {
		Owner string
		Begun int64
		Ended int64
	}
	if n := marks[4]; len(n.Data) > 0 && json.Unmarshal(n.Data, &record) == nil && record.Begun != 0 && record.Ended == 0 && running[i] != record.Owner {
		s.find(i, n.Path, "the run that %s began is open, and no host runs it", record.Owner)
	}
}
