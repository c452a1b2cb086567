package coordination

import (
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/strategy"
)

// commitBudget is the size in bytes beyond which a resharding is cut into
// several commits: half of the request limit that a ZooKeeper server has by
// default.
const commitBudget = 512 << 10

// Sharded says what a resharding did.
type Sharded struct {
	Division Division
	// Items are the new owners, index = item.
	Items strategy.Assignment
	// Commits is how many commits it took.
	Commits int
}

// Reshard divides the items over the instances whose server is enabled. Only
// the leader calls it. An item that runs on a live host stays there for now
// and moves when it is completed; no other host waits for it.
//
// A small division is one commit. A large one is several, in an order that is
// safe to stop after any of them: first every host loses what will move, then
// the items change hands, at last every host gains what is now its own and the
// flag goes. Until then the flag stands, and the next leader starts over.
//
// now is the host's clock. If View.Clock is set, that is taken in its place.
func Reshard(v View, now time.Time, result *Sharded) Move {
	if !v.Clock.IsZero() {
		if !v.FlagSeen.IsZero() {
			v.FlagSeen = v.FlagSeen.Add(v.Clock.Sub(now))
		}
		now = v.Clock
	}
	l := v.Layout
	read := []registry.Query{registry.Data(l.config()), registry.Children(l.instances()), registry.Data(l.members()), registry.Data(l.term()), registry.Data(l.assignment()),
		registry.Children(l.sharding()), registry.Children(l.records()), registry.Children(l.shardingFlags()), registry.Children(l.runs()), registry.Children(l.assignment()), registry.Children(l.servers()), registry.Data(l.leader()),
		registry.Children(l.details()), registry.Data(l.epoch()), registry.Data(l.triggers()), registry.Children(l.triggers())}
	return Move{Name: "reshard", Read: read, Then: func(n []registry.Node, _ []registry.Result) (Move, error) {
		s := sharding{view: v, now: now, result: result, epoch: n[13], round: n[14].Mzxid, triggered: n[15].Names,
			config: n[0], members: n[2], term: n[3], division: n[4], leader: n[11],
			instances: slices.Clone(n[1].Names), items: n[5].Names, records: n[6].Names, flags: n[7].Names, runsOf: n[8].Names, assigned: n[9].Names, details: n[12].Names}
		switch {
		case !s.config.Exists:
			return Move{}, ErrRemoved
		case string(s.leader.Data) != v.Self.ID || s.leader.Version != 1:
			return Done() // no longer the leader
		}
		for _, node := range []registry.Node{s.members, s.term, s.division, s.epoch} {
			if !node.Exists {
				return Move{}, fmt.Errorf("node %s is gone; the job's hosts make it when they are started again", node.Path)
			}
		}
		return s.readDetails(n[10].Names)
	}}
}

// sharding is one resharding, step by step.
type sharding struct {
	view   View
	now    time.Time
	result *Sharded

	config, members, term, division, leader, epoch registry.Node
	// details are the hosts of ours whose session lives. One that is not among
	// the instances was stopped by an operator and finishes what it runs.
	instances, items, records, flags, runsOf, assigned, details []string
	round                                                       int64    // of the newest trigger, 0 for none
	triggered                                                   []string // instances that have not consumed theirs

	cfg       jobconfig.Configuration
	refused   bool // cfg is not what the registry has
	before    Division
	disabled  map[string]bool          // server address → disabled
	draining  map[string]bool          // instance id
	java      []string                 // instances that are not ours
	running   map[int]string           // item → live host that runs it
	onJava    map[int]bool             // of running, those that a Java host runs
	runs      map[string]registry.Node // live host → its runs node
	holds     map[string]registry.Node // instance id → its assignment node
	instance  map[int]registry.Node    // item → its instance node, where the item's node exists
	surplus   []registry.Node          // children of item nodes beyond the total
	stuck     map[string]bool          // item nodes beyond the total with more below than marks
	recordOf  map[int]registry.Node    // records of items that are new since the last division, or may come from Java hosts
	hasRecord map[int]bool
}

func (s sharding) readDetails(servers []string) (Move, error) {
	l := s.view.Layout
	var read []registry.Query
	for _, ip := range servers {
		read = append(read, registry.Data(l.server(ip)))
	}
	for _, id := range s.instances {
		read = append(read, registry.Data(l.detail(id)))
	}
	for _, id := range s.runsOf {
		read = append(read, registry.Data(l.runsOf(id)))
	}
	for _, id := range s.assigned {
		read = append(read, registry.Data(l.assignmentOf(id)))
	}
	before := parseDivision(s.division.Data)
	members := parseMembers(s.members.Data)
	s.before = before
	s.java = slices.DeleteFunc(slices.Clone(s.instances), func(id string) bool { return slices.Contains(members, id) })
	// Items may come from Java hosts.
	mixed := len(s.java) > 0 || before.Java || len(before.Foreigners) > 0
	cfg, _, err := readConfiguration(l.Job, s.config.Data, s.view.Config, s.view.Accept)
	if err != nil {
		// The last good one stays in force. What all hosts agree on is the
		// last division; a host that came later has never seen a good one.
		switch {
		case before.Total > 0:
			cfg.ShardingTotalCount, cfg.JobShardingStrategyType = before.Total, before.Strategy
		case cfg.ShardingTotalCount <= 0:
			return Move{}, fmt.Errorf("the items cannot be divided: %w", err)
		}
	}
	s.cfg, s.refused = cfg, err != nil
	s.hasRecord = make(map[int]bool, len(s.records))
	for _, name := range s.records {
		if i, ok := itemNumber(name); ok {
			s.hasRecord[i] = true
			if mixed || (i >= before.Total && i < cfg.ShardingTotalCount) {
				read = append(read, registry.Data(l.record(i)))
			}
		}
	}
	for _, name := range s.items {
		if i, ok := itemNumber(name); ok {
			read = append(read, registry.Data(l.itemInstance(i)))
			if len(s.java) > 0 {
				read = append(read, registry.Data(l.itemRunning(i)))
			}
			if i >= cfg.ShardingTotalCount {
				read = append(read, registry.Children(l.item(i)))
			}
		}
	}
	return Move{Read: read, Then: func(nodes []registry.Node, _ []registry.Result) (Move, error) {
		byQuery := make(registry.Snapshot, len(nodes))
		for _, n := range nodes {
			byQuery[n.Query] = n
		}
		s.disabled, s.draining = make(map[string]bool), make(map[string]bool)
		for _, ip := range servers {
			s.disabled[ip] = !enabled(byQuery.Data(l.server(ip)).Data)
		}
		for _, id := range s.instances {
			s.draining[id] = parseDetail(byQuery.Data(l.detail(id)).Data).State == DetailDraining
		}
		s.running, s.onJava, s.runs = make(map[int]string), make(map[int]bool), make(map[string]registry.Node)
		for _, id := range s.runsOf {
			if !s.lives(id) {
				continue // what it ran is owed, not running
			}
			runs, err := parseRuns(byQuery.Data(l.runsOf(id)).Data)
			if err != nil && !slices.Contains(members, id) {
				continue // no host of ours, which would recreate it: an external edit has written it
			}
			if err != nil {
				return Move{}, fmt.Errorf("node %s cannot be read: %w", l.runsOf(id), err)
			}
			s.runs[id] = byQuery.Data(l.runsOf(id))
			for _, i := range runs.Items() {
				// One that never was an item does not run, wherever that comes from.
				if i < cfg.ShardingTotalCount || slices.Contains(s.items, itoa(i)) {
					s.running[i] = id
				}
			}
		}
		s.holds = make(map[string]registry.Node)
		for _, id := range s.assigned {
			s.holds[id] = byQuery.Data(l.assignmentOf(id))
		}
		s.instance, s.recordOf = make(map[int]registry.Node), make(map[int]registry.Node)
		for _, name := range s.items {
			i, ok := itemNumber(name)
			if !ok {
				continue
			}
			s.instance[i] = byQuery.Data(l.itemInstance(i))
			if mark := byQuery.Data(l.itemRunning(i)); mark.Exists && s.running[i] == "" && slices.Contains(s.java, string(mark.Data)) {
				s.running[i], s.onJava[i] = string(mark.Data), true
			}
			for _, child := range byQuery.Children(l.item(i)) {
				if i >= cfg.ShardingTotalCount && s.running[i] == "" {
					s.surplus = append(s.surplus, registry.Node{Query: registry.Data(l.item(i) + "/" + child)})
				}
			}
		}
		for i := range s.hasRecord {
			if n := byQuery.Data(l.record(i)); n.Exists {
				s.recordOf[i] = n
			}
		}
		return s.lookBelow()
	}}, nil
}

// lookBelow finds the items beyond the total that cannot be removed: what is
// below a mark an external edit has made, and it may go on for ever.
func (s sharding) lookBelow() (Move, error) {
	if len(s.surplus) == 0 {
		return s.divide()
	}
	read := make([]registry.Query, 0, len(s.surplus))
	for _, n := range s.surplus {
		read = append(read, registry.Children(n.Path))
	}
	return Move{Read: read, Then: func(nodes []registry.Node, _ []registry.Result) (Move, error) {
		s.stuck = make(map[string]bool)
		for _, n := range nodes {
			if len(n.Names) > 0 {
				s.stuck[path.Dir(n.Path)] = true
			}
		}
		s.surplus = slices.DeleteFunc(s.surplus, func(n registry.Node) bool { return s.stuck[path.Dir(n.Path)] })
		return s.divide()
	}}, nil
}

// lives reports whether a host may still run something.
func (s sharding) lives(id string) bool {
	return slices.Contains(s.instances, id) || slices.Contains(s.details, id)
}

// divide decides who gets what and turns it into commits.
func (s sharding) divide() (Move, error) {
	total := s.cfg.ShardingTotalCount
	d := Division{Instances: strategy.Sorted(s.instances), Foreigners: s.java, Total: total, Strategy: s.cfg.JobShardingStrategyType}
	if d.JavaSeen = s.before.JavaSeen; s.before.Java || len(s.before.Foreigners) > 0 {
		d.JavaSeen = s.now.UnixMilli()
	}
	if s.refused {
		d.Refused = s.config.Mzxid
	}
	for _, id := range d.Instances {
		switch {
		case s.disabled[serverOf(id)]:
			d.Excluded = append(d.Excluded, id)
		case s.draining[id]:
			d.Draining = append(d.Draining, id)
		default:
			d.Members = append(d.Members, id)
		}
	}
	divide, name, err := strategy.ByName(d.Strategy)
	if err != nil {
		return Move{}, err
	}
	d.Strategy = name
	owners := make(strategy.Assignment, total)
	if len(d.Members) > 0 {
		owners = divide(s.view.Job, d.Members, total, s.now)
		if len(owners) != total {
			return Move{}, fmt.Errorf("strategy %s divided %d items of %d", name, len(owners), total)
		}
	}
	if s.cfg.StaticSharding {
		owners, d.Static = s.keep(owners, d.Members)
	}
	// What runs stays where it is until it is completed.
	for i, host := range s.running {
		switch {
		case i >= total:
			d.Pending = append(d.Pending, i)
		case owners[i] != host:
			owners[i] = host
			d.Pending = append(d.Pending, i)
		default:
			continue
		}
		if s.onJava[i] {
			d.Foreign = append(d.Foreign, i)
		}
	}
	slices.Sort(d.Pending)
	slices.Sort(d.Foreign)
	s.deferMoves(&d, owners)
	s.owing(&d, owners)
	if s.result != nil {
		s.result.Division, s.result.Items = d, owners
	}
	return s.commits(d, owners)
}

// deferMoves keeps what our hosts began shortly before the flag, or later, away
// from Java hosts. A Java host that found the flag at an instant waits, and begins
// that instant with the items that it has after this division.
func (s sharding) deferMoves(d *Division, owners strategy.Assignment) {
	if len(s.java) == 0 || s.view.FlagSeen.IsZero() {
		return
	}
	fresh := s.view.FlagSeen.Add(-JavaLag).UnixMilli()
	if s.before.At != 0 && s.view.FlagSeen.UnixMilli()-s.before.At < JavaLag.Milliseconds() {
		fresh = min(fresh, s.before.Fresh) // it may not have noticed the division before
	}
	d.Fresh, d.At = fresh, s.now.UnixMilli()
	members := parseMembers(s.members.Data)
	for i, owner := range owners {
		record, read := s.recordOf[i]
		had := string(s.instance[i].Data)
		if !read || !slices.Contains(s.java, owner) || !slices.Contains(members, had) {
			continue
		}
		if r := parseRecord(record.Data); (r.Begun == 0) || (max(r.Begun, r.Instant) < fresh) {
			continue
		}
		owners[i] = s.view.Self.ID
		if slices.Contains(d.Members, had) {
			owners[i] = had
		}
		d.Deferred = append(d.Deferred, i)
	}
}

// owingKept is how long an item owes a trigger that it missed by moving.
const owingKept = 5 * time.Minute

// owing notes which items may miss the newest trigger because they move away
// from an instance that has not consumed it, and may be gone: to one that has,
// or does before it hears of them, or that was not there when it was given.
func (s sharding) owing(d *Division, owners strategy.Assignment) {
	if s.round == 0 {
		return
	}
	at := s.now.UnixMilli()
	still := s.before.Round == s.round && at-s.before.OwingSince < owingKept.Milliseconds()
	d.OwingSince = s.before.OwingSince
	for i, owner := range owners {
		had := string(s.instance[i].Data)
		switch {
		case had != owner && slices.Contains(s.triggered, had): // the record shows whether it has run in the round
			d.OwingSince = at
		case !still || !s.before.Owing.Contains(i):
			continue
		}
		d.Owing = append(d.Owing, i)
	}
	if d.Round = s.round; len(d.Owing) == 0 {
		d.Round, d.OwingSince = 0, 0
	}
}

// keep leaves every item with its owner as long as that is there.
func (s sharding) keep(owners strategy.Assignment, members []string) (strategy.Assignment, bool) {
	kept := false
	for i := range owners {
		if owner := string(s.instance[i].Data); slices.Contains(members, owner) {
			owners[i], kept = owner, true
		}
	}
	return owners, kept
}

func (s sharding) commits(d Division, owners strategy.Assignment) (Move, error) {
	l := s.view.Layout
	members := parseMembers(s.members.Data)
	ours := func(id string) bool { return slices.Contains(members, id) }
	// The items change hands. A node that one of ours has written has a version
	// above 0: Java recreates it with every division.
	var items []registry.Op
	undone := len(s.epoch.Data) > 0
	for i, owner := range owners {
		n := s.instance[i]
		undone = undone || (n.Exists && n.Version == 0)
		had := string(n.Data)
		fromJava := n.Exists && ours(owner) && (slices.Contains(s.java, had) || slices.Contains(s.before.Foreigners, had) || (s.before.Java && !ours(had)))
		if n.Exists && had != owner && slices.Contains(s.java, had) {
			items = append(items, registry.Absent(l.itemRunning(i))) // it has not begun since it was read
		}
		items = append(items, s.handOver(i, owner)...)
		baseline := Record{Instant: s.now.UnixMilli()}
		if fromJava && !s.view.FlagSeen.IsZero() && s.view.FlagSeen.Before(s.now) {
			baseline.Instant = s.view.FlagSeen.UnixMilli() // from then on Java hosts wait
		}
		if !s.hasRecord[i] {
			items = append(items, registry.Create(l.record(i), baseline.data()))
		} else if old, read := s.recordOf[i]; read && s.running[i] == "" && (fromJava || i >= s.before.Total) {
			// The item comes back after the total count was lowered, or from a
			// Java host, which keeps no record: what was due in between is not
			// owed. An open run is, and stays as it is.
			if r := parseRecord(old.Data); !r.Open() {
				r.Instant = max(r.Instant, baseline.Instant)
				if fromJava {
					r.Owner = "" // somebody else ran it since
				}
				items = append(items, registry.Set(l.record(i), r.data(), old.Version))
			}
		}
	}
	for _, i := range d.Pending {
		// Beyond the total an instance node may still name who was to have the
		// item, and not who took it over. It is that host's anchor.
		if i >= d.Total && ours(s.running[i]) {
			items = append(items, s.handOver(i, s.running[i])...)
		}
	}
	for _, id := range s.triggered {
		if !s.lives(id) { // what it would have run is noted as owed
			items = append(items, registry.Delete(l.trigger(id), registry.AnyVersion))
		}
	}
	for _, n := range s.surplus {
		items = append(items, registry.Delete(n.Path, registry.AnyVersion))
	}
	for _, name := range s.items {
		if i, ok := itemNumber(name); ok && i >= d.Total && s.running[i] == "" && !s.stuck[l.item(i)] {
			items = append(items, registry.Delete(l.item(i), registry.AnyVersion))
		}
	}

	// Every host's share.
	shares := make(map[string]Items)
	for i, owner := range owners {
		if owner != "" {
			shares[owner] = append(shares[owner], i)
		}
	}
	for _, i := range d.Pending {
		if i >= d.Total { // until it is completed it belongs to who runs it
			shares[s.running[i]] = append(shares[s.running[i]], i)
		}
	}
	var revoke, grant []registry.Op
	for _, id := range s.assigned {
		node := s.holds[id]
		had, err := ParseItems(string(node.Data)) // unreadable: it has nothing
		var stays Items
		for _, i := range had {
			if shares[id].Contains(i) {
				stays = append(stays, i)
			}
		}
		runs, hasRuns := s.runs[id]
		if len(stays) < len(had) && hasRuns {
			// What moves away must not have been begun since it was read.
			revoke = append(revoke, registry.Check(runs.Path, runs.Version))
		}
		switch {
		case !slices.Contains(s.instances, id) && len(shares[id]) == 0:
			revoke = append(revoke, registry.Delete(node.Path, registry.AnyVersion))
		case len(stays) < len(had):
			revoke = append(revoke, registry.Set(node.Path, []byte(stays.String()), registry.AnyVersion))
		}
		if share := shares[id]; !slices.Equal(stays, share) || (err != nil && node.Exists && slices.Contains(s.instances, id)) {
			grant = append(grant, registry.Set(node.Path, []byte(share.String()), registry.AnyVersion))
		}
	}
	for id, share := range shares {
		if slices.Contains(members, id) && slices.Contains(s.instances, id) && !slices.Contains(s.assigned, id) {
			// Deleted by an external edit.
			grant = append(grant, registry.Create(l.assignmentOf(id), []byte(share.String())))
		}
	}
	last := []registry.Op{registry.Set(l.assignment(), d.data(), s.division.Version)}
	if undone {
		// A division of Java's is undone: who still begins by it must not.
		revoke = append([]registry.Op{registry.Set(l.epoch(), nil, s.epoch.Version)}, revoke...)
	}
	for _, flag := range []string{"necessary", "processing"} {
		if slices.Contains(s.flags, flag) {
			last = append(last, registry.Delete(l.shardingFlags()+"/"+flag, registry.AnyVersion))
		}
	}

	// Every commit proves that the term, the leader, the membership and the
	// configuration are those that were read. The leader node is recreated
	// with every term, so that its version alone proves nothing but that it is
	// one of ours; who else of ours takes over begins a new term.
	guards := []registry.Op{registry.Check(l.term(), s.term.Version), registry.Check(l.leader(), 1), registry.Check(l.members(), s.members.Version), registry.Check(l.config(), s.config.Version)}
	guarded := func(ops ...registry.Op) []registry.Op { return append(slices.Clone(guards), ops...) }
	if size(revoke)+size(items)+size(grant)+size(last) <= commitBudget {
		return s.commitAll([][]registry.Op{guarded(slices.Concat(revoke, items, grant, last)...)})
	}
	first := []registry.Op{registry.Ensure(l.shardingFlags())}
	if !slices.Contains(s.flags, "processing") {
		first = append(first, registry.CreateEphemeral(l.processing(), nil))
		last = append(last, registry.Delete(l.processing(), registry.AnyVersion))
	}
	if !slices.Contains(s.flags, "necessary") {
		first = append(first, registry.Create(l.necessary(), nil))
		last = append(last, registry.Delete(l.necessary(), registry.AnyVersion))
	}
	chunks := [][]registry.Op{guarded(first...)}
	for _, ops := range [][]registry.Op{revoke, items, grant} {
		for part := range parts(ops, commitBudget) {
			chunks = append(chunks, guarded(part...))
		}
	}
	return s.commitAll(append(chunks, guarded(last...)))
}

// handOver makes the item's instance node name the owner, with a version above
// 0; "" is none.
func (s sharding) handOver(item int, owner string) []registry.Op {
	var ops []registry.Op
	n, exists := s.instance[item]
	if !exists {
		ops = append(ops, registry.Ensure(s.view.Layout.item(item)))
	}
	path, had := s.view.Layout.itemInstance(item), string(n.Data)
	switch {
	case n.Exists && had == owner && n.Version > 0:
	case n.Exists && owner == "":
		ops = append(ops, registry.Delete(path, registry.AnyVersion))
	case n.Exists:
		ops = append(ops, registry.Set(path, []byte(owner), n.Version))
	case owner != "":
		ops = append(ops, registry.Create(path, []byte(owner)), registry.Set(path, []byte(owner), 0))
	}
	return ops
}

func (s sharding) commitAll(chunks [][]registry.Op) (Move, error) {
	if len(chunks) == 0 {
		return Done()
	}
	return Move{
		Commit: chunks[0],
		Then: func([]registry.Node, []registry.Result) (Move, error) {
			if s.result != nil {
				s.result.Commits++
			}
			return s.commitAll(chunks[1:])
		},
		// Something moved: look again, while still the leader.
		Else: func(*registry.OpError) (Move, error) { return Reshard(s.view, s.now, s.result), nil },
	}, nil
}

// size estimates the bytes of a request with these ops.
func size(ops []registry.Op) int {
	n := 0
	for _, op := range ops {
		n += opSize(op)
	}
	return n
}

// opSize is what an op takes in a ZooKeeper multi: its header, the lengths,
// the version, and for what makes a node its flags and one short ACL entry.
func opSize(op registry.Op) int {
	const header, makes = 21, 35
	n := header + len(op.Path) + len(op.Data)
	switch op.Kind {
	case registry.OpCreate, registry.OpEphemeral, registry.OpSequential, registry.OpEnsure:
		n += makes
	case registry.OpAbsent: // a create and a delete
		n += header + len(op.Path) + makes
	}
	return n
}

// parts cuts ops into parts of about limit bytes. A check stays with the op
// that follows it, and a delete with the create of the same path.
func parts(ops []registry.Op, limit int) func(yield func([]registry.Op) bool) {
	return func(yield func([]registry.Op) bool) {
		start, bytes := 0, 0
		for i, op := range ops {
			together := i > 0 && (ops[i-1].Kind == registry.OpCheck || (ops[i-1].Kind == registry.OpDelete && ops[i-1].Path == op.Path))
			if bytes+opSize(op) > limit && i > start && !together {
				if !yield(ops[start:i]) {
					return
				}
				start, bytes = i, 0
			}
			bytes += opSize(op)
		}
		if start < len(ops) {
			yield(ops[start:])
		}
	}
}
