package inspect

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/step"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/internal/labels"
)

// Shards is one job, item by item and instance by instance, as the registry
// has it. The nodes are not all of one instant.
type Shards struct {
	Job           string
	Configuration jobconfig.Configuration
	// Leader is the leader's instance id, empty while there is none.
	Leader string
	// Sharding is set while a division of the items is asked for or made.
	Sharding  bool
	Instances []ShardInstance // by id
	Items     []ShardItem     // by number
	// DisabledServers are those that an operator has disabled for the job, ascending, whether
	// an instance is on them or not.
	DisabledServers []string
	// Words say who disabled these servers, and why.
	Words tree.Words
}

// ShardInstance is one instance of a job.
type ShardInstance struct {
	ID, ServerIP string
	// Java is an instance that is no host of ours.
	Java bool
	// Gone: the instance has died, and its unfinished items are not settled yet.
	Gone bool
	// Disabled: an operator has disabled its server for the job.
	Disabled bool
	// State is READY, RUNNING or DRAINING; empty for a Java host and for one
	// that is gone.
	State  string
	Detail tree.HostDetail
	Items  tree.Items // owned by this instance
	// Runs are the items that it has begun and not completed; for a Java host, the items that it has marked as
	// running.
	Runs tree.Items
	// Begun and Completed are the newest times at which the instance began and ended a run; zero for none. A
	// run counts only while no other host has begun its item since.
	Begun, Completed time.Time
}

// ShardState is what an item is doing.
type ShardState string

// The states of an item. Apart from FAILOVER and HELD they are those of
// ElasticJob's console.
const (
	ShardDisabled ShardState = "DISABLED"
	ShardRunning  ShardState = "RUNNING"
	// ShardFailover: its host died while it ran, and it waits for another.
	ShardFailover ShardState = "FAILOVER"
	// ShardSharding: its owner is gone, or it has none; it waits for a division.
	ShardSharding ShardState = "SHARDING_FLAG"
	ShardPending  ShardState = "PENDING"
	// ShardHeld: hosts in a row died in its runs; an operator is to release it.
	ShardHeld ShardState = "HELD"
)

// ShardItem is one sharding item.
type ShardItem struct {
	Item      int
	Parameter string
	Owner     string // instance id, empty for none
	State     ShardState
	Disabled  bool
	Said      tree.Word // who disabled it, if a program of ours did
	Misfired  bool
	// RunningOn is the instance that runs the item, empty for none. Failover is set when it repeats a run of a
	// crashed host.
	RunningOn string
	Failover  bool
	// Moves: another host gets the item when this run is completed.
	Moves  bool
	Record tree.Record
	// Fence is the token of the run that is open, 0 for none.
	Fence int64
	// Unreadable says which part of the item the registry does not permit to read, and why; that part is left
	// out.
	Unreadable string
}

// ReadShards reads a job for an operator. It returns tree.ErrRemoved for one that
// is not in the registry.
func ReadShards(ctx context.Context, r registry.Center, l tree.Layout) (Shards, error) {
	s := shardReading{layout: l}
	err := step.Perform(ctx, r, "read shards", s.run)
	return s.out, err
}

// shardReading turns what ReadShards has read into what it reports.
type shardReading struct {
	layout             tree.Layout
	nodes              registry.Snapshot
	instances, details []string
	pending            tree.Items
	unread             map[int]error // why something of an item cannot be read
	out                Shards
}

func (s *shardReading) run(ctx context.Context, x *step.Exchange) error {
	l := s.layout
	n, hidden, err := x.ReadSome(ctx, registry.Data(l.Config()), registry.Children(l.Instances()), registry.Children(l.Servers()), registry.Data(l.Leader()), registry.Children(l.ShardingFlags()),
		registry.Data(l.Members()), registry.Data(l.Assignment()), registry.Children(l.Details()), registry.Children(l.Runs()), registry.Children(l.Sharding()), registry.Data(l.Wanted()))
	if err != nil {
		return err
	}
	for q, why := range hidden {
		if q.Path != l.Config() { // the items can be shown without the configuration; the job's hosts say that it is hidden
			return &registry.UnreadableError{Denied: map[registry.Query]error{q: why}}
		}
	}
	if len(hidden) == 0 && !n.Data(l.Config()).Exists {
		return tree.ErrRemoved
	}
	config, _, err := jobconfig.Parse(n.Data(l.Config()).Data)
	if err != nil {
		config = jobconfig.Configuration{JobName: l.Job} // the items can be shown all the same
	}
	s.out = Shards{Job: l.Job, Configuration: config, Leader: string(n.Data(l.Leader()).Data),
		Sharding: len(n.Children(l.ShardingFlags())) > 0}
	s.instances, s.details, s.pending = n.Children(l.Instances()), n.Children(l.Details()), tree.ParseDivision(n.Data(l.Assignment()).Data).Pending
	ids := slices.Concat(s.instances, s.details, n.Children(l.Runs()), tree.ParseMembers(n.Data(l.Members()).Data))
	slices.Sort(ids)
	ids = slices.Compact(ids)
	var items tree.Items
	for _, name := range n.Children(l.Sharding()) {
		if i, ok := tree.ItemNumber(name); ok {
			items = append(items, i)
		}
	}
	slices.Sort(items)

	var read []registry.Query
	for _, id := range ids {
		read = append(read, registry.Data(l.Detail(id)), registry.Data(l.RunsOf(id)))
	}
	for _, ip := range n.Children(l.Servers()) {
		read = append(read, registry.Data(l.Server(ip)))
	}
	itemOf := make(map[registry.Query]int)
	for _, i := range items {
		for _, path := range []string{l.ItemInstance(i), l.ItemDisabled(i), l.ItemRunning(i), l.ItemFailover(i), l.ItemFailovering(i), l.ItemMisfire(i), l.FailoverItem(i), l.Record(i)} {
			read, itemOf[registry.Data(path)] = append(read, registry.Data(path)), i
		}
	}
	var denied map[registry.Query]error
	if s.nodes, denied, err = x.ReadSome(ctx, read...); err != nil {
		return err
	}
	s.unread = make(map[int]error)
	for q, why := range denied {
		i, ofItem := itemOf[q]
		if !ofItem {
			return &registry.UnreadableError{Denied: map[registry.Query]error{q: why}}
		}
		if s.unread[i] == nil || why.Error() < s.unread[i].Error() {
			s.unread[i] = why
		}
		if q.Path == l.ItemDisabled(i) { // it is there
			s.nodes[q] = registry.Node{Query: q, Exists: true}
		}
	}
	for _, ip := range n.Children(l.Servers()) {
		if !tree.IsEnabled(s.nodes.Data(l.Server(ip)).Data) {
			s.out.DisabledServers = append(s.out.DisabledServers, ip)
		}
	}
	slices.Sort(s.out.DisabledServers)
	s.out.Words = tree.ParseWanted(n.Data(l.Wanted()).Data).Disabled
	s.report(ids, items)
	return nil
}

func (s *shardReading) lives(id string) bool {
	return slices.Contains(s.instances, id) || slices.Contains(s.details, id)
}

func (s *shardReading) report(ids []string, items tree.Items) {
	l, out := s.layout, &s.out
	at := make(map[string]*ShardInstance, len(ids))
	out.Instances = make([]ShardInstance, len(ids))
	runsOn := make(map[int]string)
	for k, id := range ids {
		detail := s.nodes.Data(l.Detail(id))
		i := ShardInstance{ID: id, ServerIP: tree.ServerOf(id), Java: slices.Contains(s.instances, id) && !detail.Exists, Gone: !s.lives(id),
			Disabled: !tree.IsEnabled(s.nodes.Data(l.Server(tree.ServerOf(id))).Data), Detail: tree.ParseDetail(detail.Data)}
		if runs, err := tree.ParseRuns(s.nodes.Data(l.RunsOf(id)).Data); err == nil {
			i.Runs = runs.Items()
		}
		if detail.Exists {
			i.State = tree.DetailReady
			if len(i.Runs) > 0 {
				i.State = tree.DetailRunning
			}
			if i.Detail.State == tree.DetailDraining {
				i.State = tree.DetailDraining
			}
		}
		for _, item := range i.Runs {
			runsOn[item] = id
		}
		out.Instances[k] = i
		at[id] = &out.Instances[k]
	}
	parameters, err := jobconfig.ParseItemParameters(out.Configuration.ShardingItemParameters)
	if err != nil {
		parameters = nil
	}
	for _, i := range items {
		it := s.item(i, runsOn[i])
		it.Parameter = parameters[i]
		if host := at[it.Owner]; host != nil {
			host.Items = append(host.Items, i)
		}
		if host := at[it.RunningOn]; host != nil && host.Java {
			host.Runs = append(host.Runs, i)
		}
		if host := at[it.Record.Owner]; host != nil {
			host.Begun = newer(host.Begun, it.Record.Begun)
			host.Completed = newer(host.Completed, it.Record.Ended)
		}
		out.Items = append(out.Items, it)
	}
}

func newer(t time.Time, ms int64) time.Time {
	if u := time.UnixMilli(ms); ms != 0 && u.After(t) {
		return u
	}
	return t
}

// item describes one item. begun is the host of ours that has it in its list of runs.
func (s *shardReading) item(i int, begun string) ShardItem {
	l, n := s.layout, s.nodes
	running, failovering, record := n.Data(l.ItemRunning(i)), n.Data(l.ItemFailovering(i)), n.Data(l.Record(i))
	it := ShardItem{Item: i, Owner: string(n.Data(l.ItemInstance(i)).Data), Disabled: n.Data(l.ItemDisabled(i)).Exists, Misfired: n.Data(l.ItemMisfire(i)).Exists, Moves: s.pending.Contains(i),
		Record: tree.ParseRecord(record.Data), RunningOn: begun}
	if err := s.unread[i]; err != nil {
		it.Unreadable = err.Error()
	}
	if it.Disabled {
		it.Said, _ = tree.ParseMark(n.Data(l.ItemDisabled(i)).Data)
	}
	if begun == "" && running.Exists {
		it.RunningOn = string(running.Data)
	}
	owed := n.Data(l.FailoverItem(i)).Exists || (failovering.Exists && !s.lives(string(failovering.Data)))
	if it.RunningOn != "" && !s.lives(it.RunningOn) {
		it.RunningOn, owed = "", true
	}
	it.Failover = n.Data(l.ItemFailover(i)).Exists || owed
	if it.RunningOn != "" && it.Record.Owner == it.RunningOn && it.Record.Open() {
		it.Fence = it.Record.Token(record.Mzxid)
	}
	switch {
	case it.Record.Held != 0 && it.RunningOn == "":
		it.State = ShardHeld
	case it.Disabled:
		it.State = ShardDisabled
	case it.RunningOn != "":
		it.State = ShardRunning
	case it.Failover:
		it.State = ShardFailover
	case !slices.Contains(s.instances, it.Owner):
		it.State = ShardSharding
	default:
		it.State = ShardPending
	}
	return it
}

// JobBrief is one job of a namespace, in a line.
type JobBrief struct {
	Name        string
	Description string
	Cron        string
	TimeZone    string
	Terms       string // other settings of the schedule; see jobconfig.Configuration.Terms
	Labels      labels.Set
	Total       int // sharding total count
	Held        int // items that are held back
	Status      JobBriefStatus
	// Instances counts those that take part, Java of them are not ours.
	Instances, Java int
	Leader          string
	// LastOutcome is the worst outcome of the newest fire, LastEnded when it
	// ended; empty if none has.
	LastOutcome string
	// LastReason is the reason of an item with that outcome, if it failed.
	LastReason string
	LastEnded  time.Time
	// Error says why the configuration cannot be read, and then Cron, TimeZone, Total and Description are
	// empty; or which other node the registry does not permit to read.
	Error string
}

// JobBriefStatus is ElasticJob's word for how a job is.
type JobBriefStatus string

// The states of a job, as ElasticJob's console has them.
const (
	JobCrashed      JobBriefStatus = "CRASHED" // no instance
	JobDisabled     JobBriefStatus = "DISABLED"
	JobShardingFlag JobBriefStatus = "SHARDING_FLAG" // some item has no owner that lives
	JobOK           JobBriefStatus = "OK"
	// Job1x is a job of ElasticJob 1.x: it has a node for each setting, and other
	// nodes for hosts and items.
	Job1x JobBriefStatus = "1.x"
)

// ReadJobs lists the jobs of a namespace, by name. A namespace that is not
// there has none.
func ReadJobs(ctx context.Context, r registry.Center, namespace string) (jobs []JobBrief, err error) {
	err = step.Perform(ctx, r, "read jobs", func(ctx context.Context, x *step.Exchange) error {
		all := registry.Children(tree.JobsPath(namespace))
		n, err := x.Read(ctx, all)
		if err != nil {
			return err
		}
		for part := range slices.Chunk(n[all].Names, jobsAtOnce) {
			briefs, err := readJobs(ctx, x, namespace, part)
			if err != nil {
				return err
			}
			jobs = append(jobs, briefs...)
		}
		return nil
	})
	return jobs, err
}

// Namespaces returns namespaces with jobs that had a host of ours; if there are many, only some. It takes two
// requests.
func Namespaces(ctx context.Context, r registry.Center) (list []string, err error) {
	err = step.Perform(ctx, r, "read namespaces", func(ctx context.Context, x *step.Exchange) error {
		root := registry.Children("/")
		n, err := x.Read(ctx, root)
		if err != nil {
			return err
		}
		var queries []registry.Query
		for _, name := range n[root].Names {
			if ns, ours := strings.CutSuffix(name, ".wasmjob"); ours && slices.Contains(n[root].Names, ns) && len(queries) < jobsAtOnce {
				queries = append(queries, registry.Children(tree.JobsPath(ns)))
			}
		}
		if n, err = x.Read(ctx, queries...); err != nil {
			return err
		}
		for _, q := range queries {
			if len(n[q].Names) > 0 {
				list = append(list, strings.TrimPrefix(q.Path, "/"))
			}
		}
		return nil
	})
	return list, err
}

// jobsAtOnce bounds what one read of ReadJobs asks for.
const jobsAtOnce = 100

func readJobs(ctx context.Context, x *step.Exchange, namespace string, names []string) (briefs []JobBrief, err error) {
	var read []registry.Query
	for _, name := range names {
		l := tree.NewLayout(namespace, name)
		read = append(read, registry.Data(l.Config()), registry.Children(l.Instances()), registry.Children(l.Servers()), registry.Data(l.Leader()), registry.Children(l.Sharding()), registry.Children(l.Details()), registry.Children(l.Config()))
	}
	n, denied, err := x.ReadSome(ctx, read...)
	if err != nil {
		return nil, err
	}
	read = nil
	for _, name := range names {
		l := tree.NewLayout(namespace, name)
		for _, ip := range n.Children(l.Servers()) {
			read = append(read, registry.Data(l.Server(ip)))
		}
		for _, item := range n.Children(l.Sharding()) {
			if i, ok := tree.ItemNumber(item); ok {
				read = append(read, registry.Data(l.ItemInstance(i)), registry.Data(l.Record(i)))
			}
		}
	}
	more, deniedBelow, err := x.ReadSome(ctx, read...)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		l := tree.NewLayout(namespace, name)
		b, ok := jobBrief(l, n, more)
		if why := unreadable(l, denied, deniedBelow); why != "" && !ok {
			instances := len(n.Children(l.Instances()))
			b, ok = JobBrief{Name: name, Error: why, Instances: instances, Status: jobStatus(instances > 0, true, true)}, true
		} else if b.Error == "" {
			b.Error = why
		}
		if ok {
			briefs = append(briefs, b)
		}
	}
	return briefs, nil
}

// unreadable says why the first of a job's nodes cannot be read; empty if none is among those denied.
func unreadable(l tree.Layout, denied ...map[registry.Query]error) (why string) {
	for _, some := range denied {
		for q, err := range some {
			ofJob := strings.HasPrefix(q.Path, l.Root()+"/") || strings.HasPrefix(q.Path, l.Sibling()+"/")
			if text := err.Error(); ofJob && (why == "" || text < why) {
				why = text
			}
		}
	}
	return why
}

// jobBrief describes one job; ok is false if the node of the namespace is no job. more has the job's servers
// and items, n its other nodes.
func jobBrief(l tree.Layout, n, more registry.Snapshot) (JobBrief, bool) {
	config, instances := n.Data(l.Config()), n.Children(l.Instances())
	if !config.Exists {
		return JobBrief{}, false
	}
	if settings := n.Children(l.Config()); len(settings) > 0 {
		return JobBrief{Name: l.Job, Status: Job1x, Error: "a job of ElasticJob 1.x; take it over with 'wasmjob job import elasticjob'"}, true
	}
	b := JobBrief{Name: l.Job, Instances: len(instances), Leader: string(n.Data(l.Leader()).Data)}
	c, _, err := jobconfig.Parse(config.Data)
	if err != nil {
		b.Error = strings.Join(strings.Fields(err.Error()), " ")
	} else {
		b.Labels = c.Labels()
		b.Description, b.Cron, b.TimeZone, b.Terms, b.Total = c.Description, c.Cron, c.TimeZone, c.Terms(), c.ShardingTotalCount
	}
	for _, id := range instances {
		if !slices.Contains(n.Children(l.Details()), id) {
			b.Java++
		}
	}
	anyEnabled := slices.ContainsFunc(n.Children(l.Servers()), func(ip string) bool { return tree.IsEnabled(more.Data(l.Server(ip)).Data) })
	owned, orphaned := false, false
	records := make(map[int]tree.Record)
	for _, name := range n.Children(l.Sharding()) {
		if i, ok := tree.ItemNumber(name); ok {
			owner := more.Data(l.ItemInstance(i))
			owned = owned || owner.Exists
			orphaned = orphaned || (owner.Exists && !slices.Contains(instances, string(owner.Data)))
			records[i] = tree.ParseRecord(more.Data(l.Record(i)).Data)
			if records[i].Held != 0 {
				b.Held++
			}
		}
	}
	if fire, ok := NewestFire(records); ok {
		b.LastOutcome, b.LastReason, b.LastEnded = fire.Outcome, fire.Reason, fire.Ended
	}
	b.Status = jobStatus(len(instances) > 0, anyEnabled, owned && !orphaned)
	return b, true
}

func jobStatus(instances, enabled, owned bool) JobBriefStatus {
	if !instances {
		return JobCrashed
	}
	if !enabled {
		return JobDisabled
	}
	if !owned {
		return JobShardingFlag
	}
	return JobOK
}
