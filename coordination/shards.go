package coordination

import (
	"slices"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
)

// What an operator sees of jobs: read on request, nothing of it is watched.

// Shards is one job, item by item and instance by instance, as the registry
// has it. The nodes are not all of one instant.
type Shards struct {
	Job           string
	Configuration jobconfig.Configuration
	// Leader is the leader's instance id, empty while there is none; OurLeader
	// is false for one that is a Java host.
	Leader    string
	OurLeader bool
	// Sharding is set while a division of the items is asked for or made.
	Sharding  bool
	Instances []ShardInstance // by id
	Items     []ShardItem     // by number
}

// ShardInstance is one instance of a job.
type ShardInstance struct {
	ID, ServerIP string
	// Java is an instance that is no host of ours.
	Java bool
	// Gone is one that has died, and whose unfinished items are not yet
	// settled.
	Gone bool
	// Disabled: an operator has disabled its server for the job.
	Disabled bool
	// State is READY, RUNNING or DRAINING; empty for a Java host and for one
	// that is gone.
	State  string
	Detail HostDetail
	Items  Items // that it owns
	// Runs are the items that it has begun and not completed. Of a Java host
	// they are those that it has marked.
	Runs Items
	// Begun and Completed are the newest times at which the instance began and
	// ended a run of an item that no host has begun since; zero for none.
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
	Misfired  bool
	// RunningOn is the instance that runs the item, empty for none. Failover
	// is set when it repeats what a host that died had begun.
	RunningOn string
	Failover  bool
	// Moves: the item stays with its host only until it is completed.
	Moves  bool
	Record Record
	// Fence is the token of the run that is open, 0 for none.
	Fence int64
}

// ReadShards reads a job for an operator. It returns ErrRemoved for one that
// is not in the registry.
func ReadShards(l Layout, out *Shards) Move {
	read := []registry.Query{registry.Data(l.config()), registry.Children(l.instances()), registry.Children(l.servers()), registry.Data(l.leader()), registry.Children(l.shardingFlags()),
		registry.Data(l.members()), registry.Data(l.assignment()), registry.Children(l.details()), registry.Children(l.runs()), registry.Children(l.sharding())}
	return Move{Name: "read shards", Read: read, Then: func(n []registry.Node, _ []registry.Result) (Move, error) {
		if !n[0].Exists {
			return Move{}, ErrRemoved
		}
		config, _, err := jobconfig.Parse(n[0].Data)
		if err != nil {
			config = jobconfig.Configuration{JobName: l.Job} // the items can be shown all the same
		}
		*out = Shards{Job: l.Job, Configuration: config, Leader: string(n[3].Data), OurLeader: n[3].Exists && n[3].Version == 1,
			Sharding: len(n[4].Names) > 0}
		ids := slices.Concat(n[1].Names, n[7].Names, n[8].Names, parseMembers(n[5].Data))
		slices.Sort(ids)
		ids = slices.Compact(ids)
		servers := n[2].Names
		var items Items
		for _, name := range n[9].Names {
			if i, ok := itemNumber(name); ok {
				items = append(items, i)
			}
		}
		slices.Sort(items)
		var read []registry.Query
		for _, id := range ids {
			read = append(read, registry.Data(l.detail(id)), registry.Data(l.runsOf(id)))
		}
		for _, ip := range servers {
			read = append(read, registry.Data(l.server(ip)))
		}
		for _, i := range items {
			for _, path := range l.shardNodes(i) {
				read = append(read, registry.Data(path))
			}
		}
		if len(read) == 0 {
			return Done()
		}
		pending, instances, details := parseDivision(n[6].Data).Pending, n[1].Names, n[7].Names
		return Move{Read: read, Then: func(nodes []registry.Node, _ []registry.Result) (Move, error) {
			byQuery := make(registry.Snapshot, len(nodes))
			for _, node := range nodes {
				byQuery[node.Query] = node
			}
			s := shardReading{layout: l, nodes: byQuery, instances: instances, details: details, pending: pending, out: out}
			s.read(ids, items)
			return Done()
		}}, nil
	}}
}

// shardNodes are the nodes of one item that ReadShards reads.
func (l Layout) shardNodes(i int) [8]string {
	return [8]string{l.itemInstance(i), l.itemDisabled(i), l.itemRunning(i), l.itemFailover(i), l.itemFailovering(i), l.itemMisfire(i),
		l.failoverItem(i), l.record(i)}
}

// shardReading turns what ReadShards has read into what it reports.
type shardReading struct {
	layout             Layout
	nodes              registry.Snapshot
	instances, details []string
	pending            Items
	out                *Shards
}

func (s shardReading) lives(id string) bool {
	return slices.Contains(s.instances, id) || slices.Contains(s.details, id)
}

func (s shardReading) read(ids []string, items Items) {
	l, out := s.layout, s.out
	at := make(map[string]*ShardInstance, len(ids))
	out.Instances = make([]ShardInstance, len(ids))
	runsOn := make(map[int]string)
	for k, id := range ids {
		detail := s.nodes.Data(l.detail(id))
		i := ShardInstance{ID: id, ServerIP: serverOf(id), Java: slices.Contains(s.instances, id) && !detail.Exists, Gone: !s.lives(id),
			Disabled: !enabled(s.nodes.Data(l.server(serverOf(id))).Data), Detail: parseDetail(detail.Data)}
		if runs, err := parseRuns(s.nodes.Data(l.runsOf(id)).Data); err == nil {
			i.Runs = runs.Items()
		}
		if detail.Exists {
			i.State = DetailReady
			if len(i.Runs) > 0 {
				i.State = DetailRunning
			}
			if i.Detail.State == DetailDraining {
				i.State = DetailDraining
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

// item understands one item. begun is the host of ours in whose list of runs
// it is.
func (s shardReading) item(i int, begun string) ShardItem {
	var n [8]registry.Node
	for k, path := range s.layout.shardNodes(i) {
		n[k] = s.nodes.Data(path)
	}
	owner, disabled, running, failover, failovering, misfire, mark, record := n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7]
	it := ShardItem{Item: i, Owner: string(owner.Data), Disabled: disabled.Exists, Misfired: misfire.Exists, Moves: s.pending.Contains(i),
		Record: parseRecord(record.Data), RunningOn: begun}
	if begun == "" && running.Exists {
		it.RunningOn = string(running.Data)
	}
	owed := mark.Exists || (failovering.Exists && !s.lives(string(failovering.Data)))
	if it.RunningOn != "" && !s.lives(it.RunningOn) {
		it.RunningOn, owed = "", true
	}
	it.Failover = failover.Exists || owed
	if it.RunningOn != "" && it.Record.Owner == it.RunningOn && it.Record.Open() {
		it.Fence = record.Mzxid
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
	Total       int // sharding total count
	Held        int // items that are held back
	Status      JobBriefStatus
	// Instances counts those that take part, Java of them are not ours.
	Instances, Java int
	Leader          string
	// LastOutcome is the worst outcome of the newest fire, LastEnded when it
	// ended; empty if none has.
	LastOutcome string
	// LastReason is what an item of that outcome has said, if it failed.
	LastReason string
	LastEnded  time.Time
	// Error says why the configuration cannot be read; then Cron, TimeZone,
	// Total and Description are empty.
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
func ReadJobs(namespace string, out *[]JobBrief) Move {
	return Move{Name: "read jobs", Read: []registry.Query{registry.Children(JobsPath(namespace))}, Then: func(n []registry.Node, _ []registry.Result) (Move, error) {
		*out = nil
		return readJob(namespace, n[0].Names, out)
	}}
}

// jobsAtOnce bounds what one read of ReadJobs asks for.
const jobsAtOnce = 100

func readJob(namespace string, names []string, out *[]JobBrief) (Move, error) {
	if len(names) == 0 {
		return Done()
	}
	part, rest := names[:min(len(names), jobsAtOnce)], names[min(len(names), jobsAtOnce):]
	const each = 7
	var read []registry.Query
	for _, name := range part {
		l := NewLayout(namespace, name)
		read = append(read, registry.Data(l.config()), registry.Children(l.instances()), registry.Children(l.servers()), registry.Data(l.leader()), registry.Children(l.sharding()), registry.Children(l.details()), registry.Children(l.config()))
	}
	return Move{Read: read, Then: func(n []registry.Node, _ []registry.Result) (Move, error) {
		var read []registry.Query
		for k, name := range part {
			l := NewLayout(namespace, name)
			for _, ip := range n[each*k+2].Names {
				read = append(read, registry.Data(l.server(ip)))
			}
			for _, item := range n[each*k+4].Names {
				if i, ok := itemNumber(item); ok {
					read = append(read, registry.Data(l.itemInstance(i)), registry.Data(l.record(i)))
				}
			}
		}
		brief := func(nodes []registry.Node, _ []registry.Result) (Move, error) {
			byQuery := make(registry.Snapshot, len(nodes))
			for _, node := range nodes {
				byQuery[node.Query] = node
			}
			for k, name := range part {
				if b, ok := jobBrief(NewLayout(namespace, name), n[each*k:each*k+each], byQuery); ok {
					*out = append(*out, b)
				}
			}
			return readJob(namespace, rest, out)
		}
		if len(read) == 0 {
			return brief(nil, nil)
		}
		return Move{Read: read, Then: brief}, nil
	}}, nil
}

// jobBrief is one job; false for a node of the namespace that is none.
func jobBrief(l Layout, n []registry.Node, more registry.Snapshot) (JobBrief, bool) {
	config, instances, servers, leader, items, details := n[0], n[1], n[2], n[3], n[4], n[5]
	if !config.Exists {
		return JobBrief{}, false
	}
	if settings := n[6]; len(settings.Names) > 0 {
		return JobBrief{Name: l.Job, Status: Job1x, Error: "a job of ElasticJob 1.x; take it over with 'wasmjob import elasticjob'"}, true
	}
	b := JobBrief{Name: l.Job, Instances: len(instances.Names), Leader: string(leader.Data), Status: JobOK}
	c, _, err := jobconfig.Parse(config.Data)
	if err != nil {
		b.Error = strings.Join(strings.Fields(err.Error()), " ")
	} else {
		b.Description, b.Cron, b.TimeZone, b.Total = c.Description, c.Cron, c.TimeZone, c.ShardingTotalCount
	}
	for _, id := range instances.Names {
		if !slices.Contains(details.Names, id) {
			b.Java++
		}
	}
	disabled := 0
	for _, ip := range servers.Names {
		if !enabled(more.Data(l.server(ip)).Data) {
			disabled++
		}
	}
	owned, orphaned := false, false
	records := make(map[int]Record)
	for _, name := range items.Names {
		if i, ok := itemNumber(name); ok {
			owner := more.Data(l.itemInstance(i))
			owned = owned || owner.Exists
			orphaned = orphaned || (owner.Exists && !slices.Contains(instances.Names, string(owner.Data)))
			records[i] = parseRecord(more.Data(l.record(i)).Data)
			if records[i].Held != 0 {
				b.Held++
			}
		}
	}
	if fire, ok := NewestFire(records); ok {
		b.LastOutcome, b.LastReason, b.LastEnded = fire.Outcome, fire.Reason, fire.Ended
	}
	switch {
	case len(instances.Names) == 0:
		b.Status = JobCrashed
	case disabled == len(servers.Names):
		b.Status = JobDisabled
	case !owned, orphaned:
		b.Status = JobShardingFlag
	}
	return b, true
}
