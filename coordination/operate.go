package coordination

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
)

// What an operator does to a job. ElasticJob's console writes the same nodes.

// ErrNothingRuns refuses a trigger that no instance would serve.
var ErrNothingRuns = errors.New("nothing would run")

// TriggerJob asks every instance of the job to run its items once, now. An
// instance that has not consumed an earlier trigger keeps that one, which
// counts for both: none is lost and none is doubled. The parent node is set in
// the same commit; its transaction is the number of the round.
func TriggerJob(l Layout) Move {
	return Move{Name: "trigger", Read: []registry.Query{registry.Data(l.config()), registry.Children(l.instances()), registry.Children(l.triggers())}, Then: func(n []registry.Node, _ []registry.Result) (Move, error) {
		if !n[0].Exists {
			return Move{}, ErrRemoved
		}
		if len(n[1].Names) == 0 {
			return Move{}, fmt.Errorf("%w: the job has no instance; 'wasmjob status' on its hosts says why", ErrNothingRuns)
		}
		ops := []registry.Op{registry.Check(l.config(), registry.AnyVersion), registry.Ensure(l.triggers()), registry.Set(l.triggers(), nil, registry.AnyVersion)}
		for _, id := range n[2].Names {
			if !slices.Contains(n[1].Names, id) {
				ops = append(ops, registry.Delete(l.trigger(id), registry.AnyVersion)) // its instance is gone
			}
		}
		for _, id := range n[1].Names {
			if slices.Contains(n[2].Names, id) {
				ops = append(ops, registry.Check(l.trigger(id), registry.AnyVersion)) // still not consumed
			} else {
				ops = append(ops, registry.Create(l.trigger(id), nil))
			}
		}
		ips := make([]string, len(n[1].Names))
		for k, id := range n[1].Names {
			ips[k] = serverOf(id)
		}
		slices.Sort(ips)
		ips = slices.Compact(ips)
		servers := make([]registry.Query, len(ips))
		for k, ip := range ips {
			servers[k] = registry.Data(l.server(ip))
		}
		return Move{Read: servers, Then: func(n []registry.Node, _ []registry.Result) (Move, error) {
			if !slices.ContainsFunc(n, func(server registry.Node) bool { return enabled(server.Data) }) {
				return Move{}, fmt.Errorf("%w: the job is disabled on all servers that have an instance (%s); 'wasmjob enable %s' lets it run", ErrNothingRuns, strings.Join(ips, ", "), l.Job)
			}
			return Move{Commit: ops, Else: func(*registry.OpError) (Move, error) { return TriggerJob(l), nil }}, nil
		}}, nil
	}}
}

// TriggerRound finds the number of the round to which the trigger that waits
// for this host belongs: the transaction that last made or set the parent node.
// ElasticJob recreates that node for every round, before the nodes of the
// instances, each of which is a transaction of its own. consumed is the newest
// round that this host has consumed. A trigger that is of no round after that,
// or of one before this host was there, was made by an external edit and counts by itself.
// round is 0 if there is no trigger.
func TriggerRound(v View, consumed int64, round *int64) Move {
	l := v.Layout
	return Move{Name: "read trigger", Read: []registry.Query{registry.Data(l.triggers()), registry.Data(l.trigger(v.Self.ID)), registry.Data(l.instance(v.Self.ID))}, Then: func(n []registry.Node, _ []registry.Result) (Move, error) {
		parent, own, instance := n[0], n[1], n[2]
		switch {
		case !own.Exists:
			*round = 0
		case parent.Mzxid > consumed && instance.Exists && parent.Mzxid > instance.Czxid:
			*round = parent.Mzxid
		default:
			*round = own.Czxid
		}
		return Done()
	}}
}

// SetServers enables or disables servers for the job; with no addresses, all
// of them.
func SetServers(l Layout, enable bool, ips ...string) Move {
	return Move{Name: "set servers", Read: []registry.Query{registry.Data(l.config()), registry.Children(l.servers())}, Then: func(n []registry.Node, _ []registry.Result) (Move, error) {
		if !n[0].Exists {
			return Move{}, ErrRemoved
		}
		state := []byte(serverDisabled)
		if enable {
			state = []byte(serverEnabled)
		}
		targets := ips
		if len(targets) == 0 {
			targets = n[1].Names
		}
		ops := []registry.Op{registry.Check(l.config(), registry.AnyVersion)}
		for _, ip := range targets {
			if slices.Contains(n[1].Names, ip) {
				ops = append(ops, registry.Set(l.server(ip), state, registry.AnyVersion))
			} else {
				ops = append(ops, registry.Create(l.server(ip), state))
			}
		}
		return Move{Commit: ops, Else: func(*registry.OpError) (Move, error) { return SetServers(l, enable, ips...), nil }}, nil
	}}
}

// CarryDisabled enables or disables a server because a definition of ours says so
// that was applied after the transaction since; the job's configuration says it by
// now. What others write into that field, as a Java host with overwrite does, is for
// servers that come new: an operator's choice stands. carried says which it was.
func CarryDisabled(l Layout, disabled bool, since int64, ip string, carried *bool) Move {
	return Move{Name: "carry disabled over", Read: []registry.Query{registry.Data(l.definition())}, Then: func(n []registry.Node, _ []registry.Result) (Move, error) {
		c, _, err := jobconfig.Parse(n[0].Data)
		*carried = n[0].Exists && err == nil && n[0].Mzxid > since && c.Disabled == disabled
		if !*carried {
			return Done()
		}
		return SetServers(l, !disabled, ip), nil
	}}
}

// SetItem enables or disables one item. A disabled item keeps its owner and
// does not run.
func SetItem(l Layout, item int, enable bool) Move {
	return Move{Name: "set item", Read: []registry.Query{registry.Data(l.item(item)), registry.Data(l.itemDisabled(item)), registry.Data(l.config())}, Then: func(n []registry.Node, _ []registry.Result) (Move, error) {
		again := func(*registry.OpError) (Move, error) { return SetItem(l, item, enable), nil }
		switch {
		case !n[2].Exists:
			return Move{}, ErrRemoved
		case !n[0].Exists:
			return Move{}, fmt.Errorf("job %s has no item %d", l.Job, item)
		case n[1].Exists == !enable:
			return Done()
		case enable:
			return Move{Commit: []registry.Op{registry.Delete(l.itemDisabled(item), registry.AnyVersion)}, Else: again}, nil
		}
		return Move{Commit: []registry.Op{registry.Create(l.itemDisabled(item), nil)}, Else: again}, nil
	}}
}

// ErrJavaRuns refuses the shutdown of a Java host that runs items.
var ErrJavaRuns = errors.New("a Java host that is shut down goes on running its items, and others would run them too")

// StopInstance removes an instance from the job's list, which asks it to
// finish what it runs and to stop: an operator's shutdown. A Java host whose
// running marks are persistent, as they are with failover, cannot be distinguished from
// one that crashed then: ErrJavaRuns.
func StopInstance(l Layout, id string) Move {
	remove := registry.Delete(l.instance(id), registry.AnyVersion)
	return Move{Name: "stop instance", Read: []registry.Query{registry.Data(l.members()), registry.Data(l.detail(id)), registry.Children(l.sharding())}, Then: func(n []registry.Node, _ []registry.Result) (Move, error) {
		if slices.Contains(parseMembers(n[0].Data), id) || n[1].Exists {
			return Move{Commit: []registry.Op{remove}}, nil
		}
		var items Items
		for _, name := range n[2].Names {
			if i, ok := itemNumber(name); ok {
				items = append(items, i)
			}
		}
		slices.Sort(items)
		return stopJava(l, id, items, remove), nil
	}}
}

func stopJava(l Layout, id string, items Items, remove registry.Op) Move {
	const each = 3
	var read []registry.Query
	for _, i := range items {
		read = append(read, registry.Data(l.itemRunning(i)), registry.Data(l.itemFailovering(i)), registry.Data(l.itemInstance(i)))
	}
	if len(read) == 0 {
		return Move{Commit: []registry.Op{remove}}
	}
	return Move{Read: read, Then: func(n []registry.Node, _ []registry.Result) (Move, error) {
		var runs Items
		ops := []registry.Op{remove}
		for k, i := range items {
			for _, mark := range n[each*k : each*k+2] {
				if mark.Exists && !mark.Ephemeral && string(mark.Data) == id && !runs.Contains(i) {
					runs = append(runs, i)
				}
			}
			if string(n[each*k+2].Data) == id && !n[each*k].Exists && size(ops) < commitBudget {
				ops = append(ops, registry.Absent(l.itemRunning(i))) // it does not begin one meanwhile
			}
		}
		if len(runs) > 0 {
			return Move{}, fmt.Errorf("%s runs %s: %w; disable its server (wasmjob disable %s --server %s), which also ends its leadership, wait until it runs nothing, and shut it down then",
				id, runs, ErrJavaRuns, l.Job, serverOf(id))
		}
		return Move{Commit: ops, Else: func(e *registry.OpError) (Move, error) {
			if e.Index == 0 {
				return Move{}, e // it has gone by itself
			}
			return stopJava(l, id, items, remove), nil
		}}, nil
	}}
}

// Remove deletes the job from the registry. Hosts that run it stop and do not
// bring it back. With purge the nodes of ours go as well: offsets, records. It
// returns ErrRemoved if there was nothing to delete.
func Remove(l Layout, purge bool) Move {
	roots := []string{l.root}
	if purge {
		roots = append(roots, l.sibling)
	}
	return removal{layout: l, roots: roots}.again()
}

// removal is a Remove on its way. The configuration goes first: without it
// hosts begin nothing and write nothing.
type removal struct {
	layout  Layout
	roots   []string
	deleted bool // something, by this removal
}

// again reads the tree level by level and deletes it leaves first.
func (r removal) again() Move {
	var all []string
	var level func(paths []string) Move
	level = func(paths []string) Move {
		read := make([]registry.Query, len(paths))
		for i, p := range paths {
			read[i] = registry.Children(p)
		}
		return Move{Name: "remove", Read: read, Then: func(n []registry.Node, _ []registry.Result) (Move, error) {
			var next []string
			for _, node := range n {
				if !node.Exists {
					continue
				}
				all = append(all, node.Path)
				for _, name := range node.Names {
					next = append(next, node.Path+"/"+name)
				}
			}
			switch {
			case len(next) > 0:
				return level(next), nil
			case len(all) > 0:
				return r.delete(all), nil
			case r.deleted:
				return Done()
			}
			return Move{}, ErrRemoved
		}}
	}
	return level(r.roots)
}

// delete removes nodes, which are listed parents first.
func (r removal) delete(paths []string) Move {
	config := r.layout.config()
	ops := make([]registry.Op, 0, len(paths))
	if slices.Contains(paths, config) {
		ops = append(ops, registry.Delete(config, registry.AnyVersion))
	}
	for _, p := range slices.Backward(paths) {
		if p != config {
			ops = append(ops, registry.Delete(p, registry.AnyVersion))
		}
	}
	return r.deleteParts(ops)
}

// deleteParts deletes in commits that fit; if something moved, it starts over.
func (r removal) deleteParts(ops []registry.Op) Move {
	for part := range parts(ops, commitBudget) {
		rest := ops[len(part):]
		return Move{Name: "remove", Commit: part,
			Then: func([]registry.Node, []registry.Result) (Move, error) {
				r.deleted = true
				if len(rest) == 0 {
					return Done()
				}
				return r.deleteParts(rest), nil
			},
			Else: func(*registry.OpError) (Move, error) { return r.again(), nil },
			Unknown: func() (Move, error) {
				r.deleted = true // perhaps
				return r.again(), nil
			}}
	}
	return Move{Name: "remove"}
}
