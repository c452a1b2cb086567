package coordination

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

// Sweep looks after marks of items that belong to no living host: left by
// an external edit, or by a host whose own list of runs was lost. It
// is called at the slow reconcile interval, after a host has joined, and when a
// Java host has gone, never in a fire.
// An item that has no owner who lives is resharded. Nodes of items beyond the
// total count are not looked into, there may be any number of them: a division
// removes them, and is asked for.
//
// What a Java host that is gone was running is owed, if failover is on. It is
// written down as a list of runs in its name, and its name among the members:
// from then on the Java host is one of the crashed, and Recover does the rest.
//
// An instance node that is gone does not prove that its host is: a console may
// have removed it, and ElasticJob does not interrupt what runs then. Its process
// lives if it has an ephemeral mark of failover, or takes part in another job of
// the namespace, under the same id: a Java process has one id for all its jobs.
// Its marks stay until it removes them. Of a process with one job nothing else
// remains.
func Sweep(v View, now time.Time, swept *Swept) Move {
	l := v.Layout
	return Move{Name: "sweep", Read: []registry.Query{registry.Children(l.sharding()), registry.Children(l.runs()), registry.Children(l.instances()), registry.Children(l.triggers()), registry.Children(l.details()), registry.Data(l.members()), registry.Children(l.kills())}, Then: func(n []registry.Node, _ []registry.Result) (Move, error) {
		s := sweeping{view: v, now: now, swept: swept, instances: n[2].Names, lists: n[1].Names, triggers: n[3].Names, details: n[4].Names, members: n[5], kills: n[6].Names}
		var read []registry.Query
		total := max(v.Config.ShardingTotalCount, v.Division.Total)
		for _, name := range n[0].Names {
			switch i, ok := itemNumber(name); {
			case !ok:
			case i >= total && !v.Division.Pending.Contains(i):
				s.surplus = append(s.surplus, i)
			default:
				s.items = append(s.items, i)
				read = append(read, registry.Children(l.item(i)), registry.Data(l.itemInstance(i)))
			}
		}
		if len(read) == 0 {
			return s.look(nil)
		}
		return Move{Read: read, Then: func(nodes []registry.Node, _ []registry.Result) (Move, error) { return s.look(nodes) }}, nil
	}}
}

// Swept is what a Sweep has found.
type Swept struct {
	// Nodes are those that were removed.
	Nodes []string
	// JavaLives is set if a Java host that is not in the job any more may still run
	// items: sweep again when it may have ended.
	JavaLives bool
}

// sweeping is one Sweep, step by step.
type sweeping struct {
	view                                View
	now                                 time.Time
	swept                               *Swept
	instances, details, lists, triggers []string
	kills                               []string // hosts that are asked to end something
	items                               Items
	members                             registry.Node
	owners                              []string // of items; "" where there is none
	// surplus are nodes beyond the total count that no division has left for
	// somebody who runs the item. The next one takes them away.
	surplus Items
	// elsewhere are Java hosts that are not in the job, and whose processes live.
	elsewhere map[string]bool
}

// look reads the marks that are there. nodes are the children of each item, and
// its instance node.
func (s sweeping) look(nodes []registry.Node) (Move, error) {
	l := s.view.Layout
	var read []registry.Query
	for k, i := range s.items {
		s.owners = append(s.owners, string(nodes[2*k+1].Data))
		for _, mark := range []string{l.itemRunning(i), l.itemFailovering(i), l.itemFailover(i)} {
			if slices.Contains(nodes[2*k].Names, path.Base(mark)) {
				read = append(read, registry.Data(mark))
			}
		}
	}
	for _, id := range s.lists {
		read = append(read, registry.Data(l.runsOf(id)))
	}
	for _, id := range s.kills {
		read = append(read, registry.Data(l.kill(id)))
	}
	for _, id := range s.triggers {
		if !slices.Contains(s.instances, id) {
			read = append(read, registry.Data(l.trigger(id)))
		}
	}
	if len(read) == 0 {
		return s.judge(registry.Snapshot{})
	}
	return Move{Read: read, Then: func(nodes []registry.Node, _ []registry.Result) (Move, error) {
		found := make(registry.Snapshot, len(nodes))
		for _, n := range nodes {
			found[n.Query] = n
		}
		return s.lookElsewhere(found)
	}}, nil
}

// lookElsewhere finds out which of the hosts whose marks outlived their instance
// node live nevertheless.
func (s sweeping) lookElsewhere(found registry.Snapshot) (Move, error) {
	l, members := s.view.Layout, parseMembers(s.members.Data)
	s.elsewhere = make(map[string]bool)
	gone := make(map[string]bool)
	for _, i := range s.items {
		for _, path := range []string{l.itemRunning(i), l.itemFailovering(i)} {
			n := found.Data(path)
			if id := string(n.Data); n.Exists && !n.Ephemeral && !s.lives(id) && fitsANode(id) && !slices.Contains(members, id) && !slices.Contains(s.lists, id) {
				gone[id] = true
			}
		}
	}
	for _, i := range s.items {
		if n := found.Data(l.itemFailover(i)); n.Exists && n.Ephemeral && gone[string(n.Data)] {
			s.elsewhere[string(n.Data)] = true
		}
	}
	if len(gone) == 0 {
		return s.judge(found)
	}
	return Move{Read: []registry.Query{registry.Children(JobsPath(l.Namespace))}, Then: func(n []registry.Node, _ []registry.Result) (Move, error) {
		var read []registry.Query
		var ids []string
		for _, job := range n[0].Names {
			for id := range gone {
				if job != l.Job {
					read, ids = append(read, registry.Data(NewLayout(l.Namespace, job).instance(id))), append(ids, id)
				}
			}
		}
		if len(read) == 0 {
			return s.judge(found)
		}
		return Move{Read: read, Then: func(nodes []registry.Node, _ []registry.Result) (Move, error) {
			for k, n := range nodes {
				s.elsewhere[ids[k]] = s.elsewhere[ids[k]] || n.Exists
			}
			return s.judge(found)
		}}, nil
	}}, nil
}

func (s sweeping) lives(id string) bool {
	return slices.Contains(s.instances, id) || slices.Contains(s.details, id)
}

func (s sweeping) judge(found registry.Snapshot) (Move, error) {
	l, cfg := s.view.Layout, s.view.Config
	failover := cfg.Failover && cfg.MonitorExecution && s.view.ConfigErr == nil
	members := parseMembers(s.members.Data)
	runsOf := make(map[string]registry.Node) // of hosts that live
	listed := make(map[int]bool)
	for _, id := range s.lists {
		node := found.Data(l.runsOf(id))
		runs, err := parseRuns(node.Data)
		if err != nil {
			continue
		}
		items := runs.Items()
		for _, i := range slices.Concat(s.items, s.surplus) {
			listed[i] = listed[i] || items.Contains(i)
		}
		if s.lives(id) {
			runsOf[id] = node
		}
	}
	var groups [][]registry.Op
	owed := make(map[string]Items)
	for _, i := range s.items {
		marks := []registry.Node{found.Data(l.itemRunning(i)), found.Data(l.itemFailovering(i)), found.Data(l.itemFailover(i))}
		if n := marks[2]; n.Exists && !n.Ephemeral { // no host makes one that outlives it
			groups, marks[2] = append(groups, []registry.Op{registry.Delete(n.Path, n.Version)}), registry.Node{}
		}
		if listed[i] {
			continue
		}
		if n := marks[2]; n.Exists && !marks[0].Exists && !anID(string(n.Data)) {
			// Its session may last, and what it says is not its maker's word.
			// Who runs the item has the running mark, or a list of runs.
			groups, marks[2] = append(groups, []registry.Op{registry.Absent(l.itemRunning(i)), registry.Delete(n.Path, n.Version)}), registry.Node{}
		}
		taken := marks[2].Exists && s.lives(string(marks[2].Data)) // somebody repeats it
		for n, mark := range marks {
			id := string(mark.Data)
			runs, ours := runsOf[id]
			switch {
			case !mark.Exists:
			case ours:
				// Its host lives and knows nothing of it, unless it has begun
				// the item since.
				groups = append(groups, []registry.Op{registry.Check(runs.Path, runs.Version), registry.Delete(mark.Path, mark.Version)})
			case mark.Ephemeral || s.lives(id):
			case s.elsewhere[id]:
				s.swept.JavaLives = true
			case failover && n < 2 && s.members.Exists && !taken && !slices.Contains(members, id) && !slices.Contains(s.lists, id) && fitsANode(id):
				owed[id] = append(owed[id], i)
			case !taken:
				groups = append(groups, []registry.Op{registry.Delete(mark.Path, mark.Version)})
			}
		}
	}
	for _, id := range s.kills {
		if n := found.Data(l.kill(id)); staleKill(n, s.lives(id), slices.Contains(s.lists, id), s.now) {
			groups = append(groups, []registry.Op{registry.Delete(n.Path, n.Version)})
		}
	}
	for _, id := range s.triggers {
		if trigger := found.Data(l.trigger(id)); trigger.Exists {
			groups = append(groups, []registry.Op{registry.Delete(trigger.Path, trigger.Version)})
		}
	}
	// A dead host that an external edit has taken from the members is still owed what its
	// list says: it is one of the crashed again.
	forgotten := false
	for _, id := range s.lists {
		if s.members.Exists && !s.lives(id) && !slices.Contains(members, id) && fitsANode(id) {
			members, forgotten = members.with(id), true
		}
	}
	rest := func() (Move, error) {
		if len(owed) == 0 && !forgotten {
			return sweepEach(groups, &s.swept.Nodes)
		}
		return s.owe(owed, members, groups)
	}
	if !s.orphans() && !s.leftover(listed) {
		return rest()
	}
	ask := AskForSharding(s.view)
	ask.Then = func([]registry.Node, []registry.Result) (Move, error) { return rest() }
	ask.Else = func(*registry.OpError) (Move, error) { return rest() }
	return ask, nil
}

// orphans reports whether an item has no owner that lives, though there are
// instances to own it: a former leader that went on dividing may have caused it.
func (s sweeping) orphans() bool {
	d := s.view.Division
	if s.view.flagged() || (len(d.Members) == 0 && !d.Java) {
		return false
	}
	owned := 0
	for k, i := range s.items {
		if i < d.Total && s.lives(s.owners[k]) {
			owned++
		}
	}
	return owned < d.Total
}

// leftover reports whether there is a node of an item beyond the total count
// that is in no host's list.
func (s sweeping) leftover(listed map[int]bool) bool {
	if s.view.flagged() || s.view.ConfigErr != nil || s.view.Division.Total == 0 {
		return false
	}
	return slices.ContainsFunc(s.surplus, func(i int) bool { return !listed[i] })
}

// fitsANode reports whether an id that an external edit may have written can be part of the
// name of a node, and of the list of members.
func fitsANode(id string) bool {
	return id != "" && id != "." && id != ".." && len(id) < 256 && registry.CheckPath("/"+id) == nil && !strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r == '/' || r == utf8.RuneError })
}

// anID reports whether a mark's data can be the id of an instance, ours or a
// Java host's: address, "@-@", token.
func anID(id string) bool {
	address, token, ok := strings.Cut(id, delimiter)
	plain := func(r rune) bool { return r > ' ' && r < utf8.RuneSelf && !strings.ContainsRune(`"'{}[],/\`, r) }
	all := func(s string) bool {
		return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return !plain(r) })
	}
	return ok && all(address) && all(token)
}

// owe writes down what Java hosts that are gone were running.
func (s sweeping) owe(owed map[string]Items, members Members, groups [][]registry.Op) (Move, error) {
	l := s.view.Layout
	fire := Fire{Instant: s.now.UnixMilli(), Source: sourceFailover}
	ops := []registry.Op{registry.Check(l.config(), registry.AnyVersion)}
	for _, id := range slices.Sorted(maps.Keys(owed)) {
		items := owed[id]
		slices.Sort(items)
		runs := Runs{Java: id}.with(fire, true, slices.Compact(items))
		name := fmt.Sprintf("%s-owed-%d", id, fire.Instant)
		ops = append(ops, registry.Absent(l.instance(id)), registry.Create(l.runsOf(name), runs.data()))
		members = members.with(name)
	}
	ops = append(ops, registry.Set(l.members(), members.data(), s.members.Version))
	return Move{Commit: ops,
		Then: func([]registry.Node, []registry.Result) (Move, error) { return sweepEach(groups, &s.swept.Nodes) },
		// Another host has done it, or the Java host is back.
		Else: func(*registry.OpError) (Move, error) { return sweepEach(groups, &s.swept.Nodes) }}, nil
}

// sweepEach removes in commits that fit. A mark that has changed since it was
// read belongs to somebody: it is left out.
func sweepEach(groups [][]registry.Op, swept *[]string) (Move, error) {
	var ops []registry.Op
	var of []int // op → group
	n := 0
	for k, group := range groups {
		if size(ops)+size(group) > commitBudget && k > 0 {
			break
		}
		for _, op := range group {
			ops, of = append(ops, op), append(of, k)
		}
		n++
	}
	if len(ops) == 0 {
		return Done()
	}
	return Move{Commit: ops,
		Then: func([]registry.Node, []registry.Result) (Move, error) {
			for _, op := range ops {
				if op.Kind == registry.OpDelete {
					*swept = append(*swept, op.Path)
				}
			}
			return sweepEach(groups[n:], swept)
		},
		Else: func(e *registry.OpError) (Move, error) {
			k := of[e.Index]
			return sweepEach(slices.Delete(slices.Clone(groups), k, k+1), swept)
		},
	}, nil
}
