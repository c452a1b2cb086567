package coordination

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strconv"
	"time"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/step"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/strategy"
)

// Sharded is the result of a resharding.
type Sharded struct {
	Division tree.Division
	// Items are the new owners, index = item.
	Items strategy.Assignment
	// Commits is how many commits it took.
	Commits int
}

// Reshard divides the items over the instances whose server is enabled. Only the leader calls it. An item that
// runs on a live host stays there and moves when it is completed; no other host waits for it.
//
// A small resharding is one commit. A large one is several, in an order that is safe to stop after any of them:
// first every host loses the items that will move, then the items change owners, at last every host gets its
// new items and the flag is deleted. If the leader dies before that, the flag remains and the next leader
// starts over.
//
// now is the host's clock. If View.Clock is set, it is used instead.
func (m *Member) Reshard(ctx context.Context, now time.Time) (Sharded, error) {
	v := m.View
	if !v.Clock.IsZero() {
		if !v.FlagSeen.IsZero() {
			v.FlagSeen = v.FlagSeen.Add(v.Clock.Sub(now))
		}
		now = v.Clock
	}
	var out Sharded
	err := m.perform(ctx, "reshard", func(ctx context.Context, x *step.Exchange) error {
		for {
			s := sharding{view: v, now: now}
			leads, err := s.read(ctx, x)
			if err != nil || !leads {
				return err
			}
			d, owners, err := s.divide()
			if err != nil {
				return err
			}
			out.Division, out.Items = d, owners
			done, err := commitEach(ctx, x, s.commits(d, owners), &out.Commits)
			if err != nil || done {
				return err
			}
		}
	})
	return out, err
}

// commitEach makes the commits one after the other. done is false after a conflict: read again.
func commitEach(ctx context.Context, x *step.Exchange, commits [][]registry.Op, made *int) (done bool, err error) {
	for _, ops := range commits {
		_, err := x.Commit(ctx, ops...)
		if step.ConflictOf(err) != nil {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		*made++
	}
	return true, nil
}

// sharding is the state of one resharding.
type sharding struct {
	view View
	now  time.Time

	config, members, term, division, leader, epoch registry.Node
	ends, triggers                                 registry.Node // ends is read if it is there
	// details are our hosts with a live session. One that is not among the instances was stopped by an operator
	// and finishes what it runs.
	instances, items, records, flags, runsOf, assigned, details []string
	round                                                       int64 // of the newest trigger, 0 for none
	args                                                        tree.TriggerArgs
	queued                                                      bool     // whether triggers were ever queued
	triggered                                                   []string // instances that have not consumed theirs

	cfg       jobconfig.Configuration
	refused   bool // the registry's configuration was refused; cfg is another one
	before    tree.Division
	disabled  map[string]bool // server address → disabled
	draining  map[string]bool // instance id
	ours      tree.Members
	java      []string                 // instances that are not ours
	running   map[int]string           // item → live host that runs it
	onJava    map[int]bool             // of running, those that a Java host runs
	runs      map[string]registry.Node // live host → its runs node
	holds     map[string]registry.Node // instance id → its assignment node
	instance  map[int]ownership        // item → its instance node, where the item's node exists
	surplus   []string                 // nodes below those of items beyond the total
	stuck     map[string]bool          // item nodes beyond the total with more below than marks
	recordOf  map[int]registry.Node    // records of items, if their number changes or they may come from Java hosts
	marks     map[int]registry.Node    // running marks, where Java hosts are
	hasRecord map[int]bool
	unread    Denials // items of which a node cannot be read: their nodes stay as they are
}

// ownership is an item's instance node. A job may have a million, so it holds no more than a division goes by.
type ownership struct {
	owner   string
	version int32
	exists  bool
}

// read reads everything that a resharding depends on. leads is false if this host no longer leads the job.
func (s *sharding) read(ctx context.Context, x *step.Exchange) (leads bool, err error) {
	l := s.view.Layout
	n, err := x.Read(ctx, registry.Data(l.Config()), registry.Children(l.Instances()), registry.Data(l.Members()), registry.Data(l.Term()), registry.Data(l.Assignment()),
		registry.Children(l.Sharding()), registry.Children(l.Records()), registry.Children(l.ShardingFlags()), registry.Children(l.Runs()), registry.Children(l.Assignment()), registry.Children(l.Servers()), registry.Data(l.Leader()),
		registry.Children(l.Details()), registry.Data(l.Epoch()), registry.Data(l.Triggers()), registry.Children(l.Triggers()))
	if err != nil {
		return false, err
	}
	s.config, s.members, s.term, s.division = n.Data(l.Config()), n.Data(l.Members()), n.Data(l.Term()), n.Data(l.Assignment())
	s.leader, s.epoch = n.Data(l.Leader()), n.Data(l.Epoch())
	s.instances, s.details = slices.Clone(n.Children(l.Instances())), n.Children(l.Details())
	s.items, s.records, s.flags = n.Children(l.Sharding()), n.Children(l.Records()), n.Children(l.ShardingFlags())
	s.runsOf, s.assigned = n.Children(l.Runs()), n.Children(l.Assignment())
	s.triggers, s.triggered = n.Data(l.Triggers()), n.Children(l.Triggers())
	s.round, s.args = s.triggers.Mzxid, tree.ParseTriggerArgs(s.triggers.Data)
	if !s.config.Exists {
		return false, tree.ErrRemoved
	}
	if string(s.leader.Data) != s.view.Self.ID || s.leader.Version != 1 {
		return false, nil
	}
	for _, node := range []registry.Node{s.members, s.term, s.division, s.epoch} {
		if !node.Exists {
			return false, fmt.Errorf("node %s is gone; the job's hosts make it when they are started again", node.Path)
		}
	}

	s.before = tree.ParseDivision(s.division.Data)
	s.ours = tree.ParseMembers(s.members.Data)
	s.java = slices.DeleteFunc(slices.Clone(s.instances), func(id string) bool { return slices.Contains(s.ours, id) })
	if err := s.configure(); err != nil {
		return false, err
	}
	servers := n.Children(l.Servers())
	read := s.hostQueries(servers)
	hosts := len(read.queries)
	s.addItems(&read)
	nodes, err := read.list(ctx, x, &s.unread)
	if err != nil {
		return false, err
	}
	n = make(registry.Snapshot, hosts)
	for _, node := range nodes[:hosts] {
		n[node.Query] = node
	}
	if err := s.understandHosts(n, servers); err != nil {
		return false, err
	}
	s.understandItems(nodes[hosts:])
	s.ends = n.Data(s.view.Layout.Ends())
	return true, s.lookBelow(ctx, x)
}

// configure decides which configuration the items are divided by.
func (s *sharding) configure() error {
	cfg, _, err := readConfiguration(s.view.Job, s.config.Data, s.view.Config, s.view.Accept)
	if err != nil {
		// The last good one stays in force. All hosts know the last division; a host that joined later has
		// never seen a good configuration.
		if s.before.Total > 0 {
			cfg.ShardingTotalCount, cfg.JobShardingStrategyType = s.before.Total, s.before.Strategy
		} else if cfg.ShardingTotalCount <= 0 {
			return fmt.Errorf("the items cannot be sharded: %w", err)
		}
	}
	s.cfg, s.refused = cfg, err != nil
	return nil
}

// hostQueries are the nodes of hosts and servers that a resharding depends on, and the node of ends.
func (s *sharding) hostQueries(servers []string) reading {
	l := s.view.Layout
	read := newReading(len(servers) + len(s.instances) + len(s.runsOf) + len(s.assigned) + 1 + len(s.records) + len(s.items))
	for _, ip := range servers {
		read.add(-1, registry.Data(l.Server(ip)))
	}
	for _, id := range s.instances {
		read.add(-1, registry.Data(l.Detail(id)))
	}
	for _, id := range s.runsOf {
		read.add(-1, registry.Data(l.RunsOf(id)))
	}
	for _, id := range s.assigned {
		read.add(-1, registry.Data(l.AssignmentOf(id)))
	}
	if slices.Contains(s.records, tree.EndsName) {
		read.add(-1, registry.Data(l.Ends()))
	}
	return read
}

// addItems asks for the nodes of items that a resharding depends on, in the order of understandItems.
func (s *sharding) addItems(read *reading) {
	l, total := s.view.Layout, s.cfg.ShardingTotalCount
	s.hasRecord = make(map[int]bool, len(s.records))
	for _, name := range s.records {
		s.queued = s.queued || name == tree.QueueName
		if i, ok := tree.ItemNumber(name); ok {
			s.hasRecord[i] = true
			if s.readsRecords() {
				read.add(i, registry.Data(l.Record(i)))
			}
		}
	}
	for _, name := range s.items {
		if i, ok := tree.ItemNumber(name); ok {
			read.add(i, registry.Data(l.ItemInstance(i)))
			if len(s.java) > 0 {
				read.add(i, registry.Data(l.ItemRunning(i)))
			}
			if i >= total {
				read.add(i, registry.Children(l.Item(i)))
			}
		}
	}
}

// readsRecords reports whether the division goes by the records of the items: their number changes, or they may come from
// Java hosts.
func (s *sharding) readsRecords() bool {
	return len(s.java) > 0 || s.before.Java || len(s.before.Foreigners) > 0 || s.cfg.ShardingTotalCount != s.before.Total
}

func (s *sharding) understandHosts(n registry.Snapshot, servers []string) error {
	l := s.view.Layout
	s.disabled, s.draining = make(map[string]bool), make(map[string]bool)
	for _, ip := range servers {
		s.disabled[ip] = !tree.IsEnabled(n.Data(l.Server(ip)).Data)
	}
	for _, id := range s.instances {
		s.draining[id] = tree.ParseDetail(n.Data(l.Detail(id)).Data).State == tree.DetailDraining
	}
	s.running, s.onJava, s.runs = make(map[int]string), make(map[int]bool), make(map[string]registry.Node)
	for _, id := range s.runsOf {
		if !s.lives(id) {
			continue // its host died: the run is taken over
		}
		runs, err := tree.ParseRuns(n.Data(l.RunsOf(id)).Data)
		if err != nil && !slices.Contains(s.ours, id) {
			continue // not a host of ours, which would recreate it: an external edit
		}
		if err != nil {
			return fmt.Errorf("node %s cannot be read: %w", l.RunsOf(id), err)
		}
		s.runs[id] = n.Data(l.RunsOf(id))
		for _, i := range runs.Items() {
			// A number that never was an item does not run, wherever it comes from.
			if i < s.cfg.ShardingTotalCount || slices.Contains(s.items, strconv.Itoa(i)) {
				s.running[i] = id
			}
		}
	}
	s.holds = make(map[string]registry.Node)
	for _, id := range s.assigned {
		s.holds[id] = n.Data(l.AssignmentOf(id))
	}
	return nil
}

// understandItems takes the nodes that addItems asked for.
func (s *sharding) understandItems(nodes []registry.Node) {
	next := func() (n registry.Node) {
		n, nodes = nodes[0], nodes[1:]
		return n
	}
	s.recordOf, s.marks = make(map[int]registry.Node), make(map[int]registry.Node)
	for _, name := range s.records {
		if i, ok := tree.ItemNumber(name); ok && s.readsRecords() {
			if record := next(); record.Exists {
				s.recordOf[i] = record
			}
		}
	}
	l, total := s.view.Layout, s.cfg.ShardingTotalCount
	s.instance = make(map[int]ownership, len(s.items))
	owners := make(map[string]string) // each once, for very many items
	for _, name := range s.items {
		i, ok := tree.ItemNumber(name)
		if !ok {
			continue
		}
		instance := next()
		owner, known := owners[string(instance.Data)]
		if !known {
			owner = string(instance.Data)
			owners[owner] = owner
		}
		s.instance[i] = ownership{owner, instance.Version, instance.Exists}
		if len(s.java) > 0 {
			s.marks[i] = next()
		}
		if mark := s.marks[i]; mark.Exists && s.running[i] == "" && slices.Contains(s.java, string(mark.Data)) {
			s.running[i], s.onJava[i] = string(mark.Data), true
		}
		if i < total {
			continue
		}
		if below := next(); s.running[i] == "" {
			for _, child := range below.Names {
				s.surplus = append(s.surplus, l.Item(i)+"/"+child)
			}
		}
	}
}

// lookBelow finds item nodes beyond the total that cannot be removed: an external edit has created nodes below
// a mark, at any depth.
func (s *sharding) lookBelow(ctx context.Context, x *step.Exchange) error {
	read := make([]registry.Query, 0, len(s.surplus))
	for _, p := range s.surplus {
		read = append(read, registry.Children(p))
	}
	n, denied, err := x.ReadSome(ctx, read...)
	if err != nil {
		return err
	}
	s.stuck = make(map[string]bool)
	for i := range s.unread {
		s.stuck[s.view.Layout.Item(i)] = true
	}
	for _, p := range s.surplus {
		if denied[registry.Children(p)] != nil || len(n.Children(p)) > 0 {
			s.stuck[path.Dir(p)] = true
		}
	}
	s.surplus = slices.DeleteFunc(s.surplus, func(p string) bool { return s.stuck[path.Dir(p)] })
	return nil
}

// lives reports whether a host may still run something.
func (s *sharding) lives(id string) bool {
	return slices.Contains(s.instances, id) || slices.Contains(s.details, id)
}

// divide decides which host gets which item.
func (s *sharding) divide() (tree.Division, strategy.Assignment, error) {
	total := s.cfg.ShardingTotalCount
	d := tree.Division{Instances: strategy.Sorted(s.instances), Foreigners: s.java, Counts: tree.Counts{Total: total}, Strategy: s.cfg.JobShardingStrategyType}
	d.Follow(s.before, s.now, s.recordOf)
	d.Followed, d.Queued = s.ends.Exists, s.queued
	d.Backfill = slices.Contains(s.records, tree.BackfillName)
	if s.refused {
		d.Refused = s.config.Mzxid
	}
	for _, id := range d.Instances {
		switch {
		case s.disabled[tree.ServerOf(id)]:
			d.Excluded = append(d.Excluded, id)
		case s.draining[id]:
			d.Draining = append(d.Draining, id)
		default:
			d.Members = append(d.Members, id)
		}
	}
	divide, name, err := strategy.ByName(d.Strategy)
	if err != nil {
		return tree.Division{}, nil, err
	}
	d.Strategy = name
	owners := make(strategy.Assignment, total)
	if len(d.Members) > 0 {
		owners = divide(s.view.Job, d.Members, total, s.now)
		if len(owners) != total {
			return tree.Division{}, nil, fmt.Errorf("strategy %s assigned %d items of %d", name, len(owners), total)
		}
	}
	if s.cfg.StaticSharding {
		owners, d.Static = s.keep(owners, d.Members)
	}
	// Running items stay until they are completed.
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
	return d, owners, nil
}

// deferMoves keeps items that our hosts began shortly before the flag, or later, away from Java hosts. A Java
// host that finds the flag at an instant waits, and then begins that instant with the items that this division
// gives it.
func (s *sharding) deferMoves(d *tree.Division, owners strategy.Assignment) {
	if len(s.java) == 0 || s.view.FlagSeen.IsZero() {
		return
	}
	fresh := s.view.FlagSeen.Add(-JavaLag).UnixMilli()
	if s.before.At != 0 && s.view.FlagSeen.UnixMilli()-s.before.At < JavaLag.Milliseconds() {
		fresh = min(fresh, s.before.Fresh) // it may not have noticed the division before
	}
	d.Fresh, d.At = fresh, s.now.UnixMilli()
	for i, owner := range owners {
		record, read := s.recordOf[i]
		had := s.instance[i].owner
		if !read || !slices.Contains(s.java, owner) || !slices.Contains(s.ours, had) {
			continue
		}
		if r := tree.ParseRecord(record.Data); (r.Begun == 0) || (max(r.Begun, r.Instant) < fresh) {
			continue
		}
		owners[i] = s.view.Self.ID
		if slices.Contains(d.Members, had) {
			owners[i] = had
		}
		d.Deferred = append(d.Deferred, i)
	}
}

// owingKept is how long an item may still run a trigger that it missed by moving.
const owingKept = 5 * time.Minute

// owing notes which items may miss the newest trigger because they move away from an instance that has not
// consumed it or may be gone. The new owner may have consumed it already, may consume it before it learns of
// the items, or was not in the job when the trigger was given.
func (s *sharding) owing(d *tree.Division, owners strategy.Assignment) {
	if s.round == 0 {
		return
	}
	at := s.now.UnixMilli()
	still := s.before.Round == s.round && at-s.before.OwingSince < owingKept.Milliseconds()
	d.OwingSince = s.before.OwingSince
	before := s.before.Owed()
	var owing tree.Items
	for i, owner := range owners {
		had := s.instance[i].owner
		switch {
		case !s.args.Has(i):
			continue
		case had != owner && slices.Contains(s.triggered, had): // the record shows whether it has run in the round
			d.OwingSince = at
		case !still || !before.Contains(i):
			continue
		}
		owing = append(owing, i)
	}
	d.Owe(owing, s.args)
	if d.Round = s.round; len(owing) == 0 {
		d.Round, d.OwingSince = 0, 0
	}
}

// keep leaves every item with its owner as long as the owner is in the job.
func (s *sharding) keep(owners strategy.Assignment, members []string) (strategy.Assignment, bool) {
	kept := false
	for i := range owners {
		if owner := s.instance[i].owner; slices.Contains(members, owner) {
			owners[i], kept = owner, true
		}
	}
	return owners, kept
}

// asBefore checks that a node is as it was read.
func asBefore(n registry.Node) registry.Op {
	if n.Exists {
		return registry.Check(n.Path, n.Version)
	}
	return registry.Absent(n.Path)
}

// commits returns the commits of a resharding, in order.
//
// Each checks that the term, the leader, the membership, the configuration and the newest trigger are those
// that were read. The leader node is recreated with every term, so its version alone only proves that the
// leader is one of ours; another leader of ours begins a new term.
func (s *sharding) commits(d tree.Division, owners strategy.Assignment) [][]registry.Op {
	l := s.view.Layout
	// Every host that begins a fire must know that fires are noted from now on: it has to read its share again.
	undone := len(s.epoch.Data) > 0 || d.Since != s.before.Since || d.Followed != s.before.Followed
	for i := range owners {
		n := s.instance[i]
		undone = undone || (n.exists && n.version == 0)
	}
	items := s.handOvers(d, owners)
	revoke, grant := s.assign(d, owners)
	if undone {
		// This undoes a division of Java's, or changes the number of items: a host that still goes by the old
		// one must not begin.
		revoke = append([]registry.Op{registry.Set(l.Epoch(), nil, s.epoch.Version)}, revoke...)
	}
	last := []registry.Op{registry.Set(l.Assignment(), d.Data(), s.division.Version)}
	if ends := tree.ParseEnds(s.ends.Data); d.Followed && ends.Since == 0 {
		ends.Since, ends.SinceRound = s.now.UnixMilli(), s.round
		last = append(last, registry.Set(l.Ends(), ends.Data(), s.ends.Version))
	}
	for _, flag := range []string{"necessary", "processing"} {
		if slices.Contains(s.flags, flag) {
			last = append(last, registry.Delete(l.ShardingFlags()+"/"+flag, registry.AnyVersion))
		}
	}

	guards := []registry.Op{registry.Check(l.Term(), s.term.Version), registry.Check(l.Leader(), 1), registry.Check(l.Members(), s.members.Version), registry.Check(l.Config(), s.config.Version), asBefore(s.triggers)}
	guarded := func(ops ...registry.Op) []registry.Op { return append(slices.Clone(guards), ops...) }
	if step.Size(revoke)+step.Size(items)+step.Size(grant)+step.Size(last) <= step.Budget {
		return [][]registry.Op{guarded(slices.Concat(revoke, items, grant, last)...)}
	}

	first := []registry.Op{registry.Ensure(l.ShardingFlags())}
	if !slices.Contains(s.flags, "processing") {
		first = append(first, registry.CreateEphemeral(l.Processing(), nil))
		last = append(last, registry.Delete(l.Processing(), registry.AnyVersion))
	}
	if !slices.Contains(s.flags, "necessary") {
		first = append(first, registry.Create(l.Necessary(), nil))
		last = append(last, registry.Delete(l.Necessary(), registry.AnyVersion))
	}
	commits := [][]registry.Op{guarded(first...)}
	for _, ops := range [][]registry.Op{revoke, items, grant} {
		for part := range step.Parts(ops, step.Budget) {
			commits = append(commits, guarded(part...))
		}
	}
	return append(commits, guarded(last...))
}

// asRead checks that an item's running mark is as it was read. An existing mark is that of a dead Java host: it
// does not prevent the assignment, and the item's next owner handles it.
func (s *sharding) asRead(i int) registry.Op {
	return asBefore(s.marks[i])
}

// handOvers returns the ops that write each item's owner, and its record where new, and remove the nodes of
// items that no longer exist.
func (s *sharding) handOvers(d tree.Division, owners strategy.Assignment) []registry.Op {
	l := s.view.Layout
	var ops []registry.Op
	for i, owner := range owners {
		if s.unread[i] != nil {
			continue // its owner finds that it cannot be read
		}
		if n := s.instance[i]; n.exists && n.owner != owner && slices.Contains(s.java, n.owner) {
			ops = append(ops, s.asRead(i)) // it has not begun since
		}
		ops = s.handOver(ops, i, owner)
		ops = s.baseline(ops, i, owner, d.Since)
	}
	for _, i := range d.Pending {
		// Beyond the total an instance node may still name the intended owner instead of the host that took the
		// item over. It is that host's anchor.
		if i >= d.Total && s.unread[i] == nil && slices.Contains(s.ours, s.running[i]) {
			ops = s.handOver(ops, i, s.running[i])
		}
	}
	for _, id := range s.triggered {
		if !s.lives(id) { // what it would have run is noted as owed
			ops = append(ops, registry.Delete(l.Trigger(id), registry.AnyVersion))
		}
	}
	for _, p := range s.surplus {
		ops = append(ops, registry.Delete(p, registry.AnyVersion))
	}
	for _, name := range s.items {
		if i, ok := tree.ItemNumber(name); ok && i >= d.Total && s.running[i] == "" && !s.stuck[l.Item(i)] {
			ops = append(ops, registry.Delete(l.Item(i), registry.AnyVersion))
		}
	}
	return ops
}

// baseline adds the write of since when instants of an item count: for a new item, one that comes back after the total
// count was lowered, or one from a Java host, which keeps no record. Earlier instants are not caught up. An
// open run still counts and stays as it is. In a new job, instants count since the first of our hosts joined.
func (s *sharding) baseline(ops []registry.Op, i int, owner string, since int64) []registry.Op {
	l := s.view.Layout
	n := s.instance[i]
	had := n.owner
	foreign := slices.Contains(s.java, had) || slices.Contains(s.before.Foreigners, had) || (s.before.Java && !slices.Contains(s.ours, had))
	fromJava := n.exists && slices.Contains(s.ours, owner) && foreign
	base := tree.Record{Instant: max(s.now.UnixMilli(), since)}
	if fromJava && !s.view.FlagSeen.IsZero() && s.view.FlagSeen.Before(s.now) {
		base.Instant = s.view.FlagSeen.UnixMilli() // from then on Java hosts wait
	}
	if !s.hasRecord[i] {
		// The host that joins first, or makes the job, leaves the division's node empty.
		if joined := s.division; joined.Exists && len(joined.Data) == 0 && !n.exists {
			base.Instant = min(base.Instant, joined.Mtime.UnixMilli())
		}
		return append(ops, registry.Create(l.Record(i), base.Data()))
	}

	old, read := s.recordOf[i]
	if !read || s.running[i] != "" || (!fromJava && i < s.before.Total) {
		return ops
	}
	r := tree.ParseRecord(old.Data)
	if r.Open() {
		return ops
	}
	r.Instant = max(r.Instant, base.Instant)
	if fromJava {
		r.Owner = "" // another host has run it since
	}
	return append(ops, registry.Set(l.Record(i), r.Data(), old.Version))
}

// assign writes every host's share: revoke takes away items that move, grant gives every host its new items.
func (s *sharding) assign(d tree.Division, owners strategy.Assignment) (revoke, grant []registry.Op) {
	l := s.view.Layout
	shares := make(map[string]tree.Items)
	for i, owner := range owners {
		if owner != "" {
			shares[owner] = append(shares[owner], i)
		}
	}
	for _, i := range d.Pending {
		if i >= d.Total { // it belongs to the host that runs it until it is completed
			shares[s.running[i]] = append(shares[s.running[i]], i)
		}
	}

	for _, id := range s.assigned {
		node, share := s.holds[id], shares[id]
		there := slices.Contains(s.instances, id)
		had, err := tree.ParseItems(string(node.Data)) // unreadable: it has nothing
		var stays tree.Items
		for _, i := range had {
			if share.Contains(i) {
				stays = append(stays, i)
			}
		}
		if runs, ok := s.runs[id]; ok && (len(stays) < len(had) || d.Since != s.before.Since) {
			// An item that moves away, or has another total now, must not have begun since it was read.
			revoke = append(revoke, registry.Check(runs.Path, runs.Version))
		}
		if !there && len(share) == 0 {
			revoke = append(revoke, registry.Delete(node.Path, registry.AnyVersion))
		} else if len(stays) < len(had) {
			revoke = append(revoke, registry.Set(node.Path, []byte(stays.String()), registry.AnyVersion))
		}
		unreadable := err != nil && node.Exists && there
		if unreadable || !slices.Equal(stays, share) {
			grant = append(grant, registry.Set(node.Path, []byte(share.String()), registry.AnyVersion))
		}
	}
	for id, share := range shares {
		if slices.Contains(s.ours, id) && slices.Contains(s.instances, id) && !slices.Contains(s.assigned, id) {
			// Deleted by an external edit.
			grant = append(grant, registry.Create(l.AssignmentOf(id), []byte(share.String())))
		}
	}
	return revoke, grant
}

// handOver adds what makes the item's instance node name the owner, with a version above 0; "" is none.
func (s *sharding) handOver(ops []registry.Op, item int, owner string) []registry.Op {
	n, exists := s.instance[item]
	if !exists {
		ops = append(ops, registry.Ensure(s.view.Layout.Item(item)))
	}
	if n.exists && n.owner == owner && n.version > 0 {
		return ops
	}
	path := s.view.Layout.ItemInstance(item)
	switch {
	case n.exists && owner == "":
		return append(ops, registry.Delete(path, registry.AnyVersion))
	case n.exists:
		return append(ops, registry.Set(path, []byte(owner), n.version))
	case owner != "":
		return append(ops, registry.Create(path, []byte(owner)), registry.Set(path, []byte(owner), 0))
	}
	return ops
}
