package coordination

import (
	"fmt"
	"slices"
)

// What an operator does to a job. ElasticJob's console writes the same nodes.

// TriggerJob asks every instance of the job to run its items once, now. An
// instance that has not consumed an earlier trigger keeps that one: none is
// lost and none is doubled.
func TriggerJob(l Layout) Move {
	return Move{Name: "trigger", Read: []Query{Data(l.config()), Children(l.instances()), Children(l.triggers())}, Then: func(n []Node, _ []Result) (Move, error) {
		if !n[0].Exists {
			return Move{}, ErrRemoved
		}
		ops := []Op{Check(l.config(), AnyVersion), Ensure(l.triggers())}
		for _, id := range n[2].Names {
			if !slices.Contains(n[1].Names, id) {
				ops = append(ops, Delete(l.trigger(id), AnyVersion)) // its instance is gone
			}
		}
		for _, id := range n[1].Names {
			if !slices.Contains(n[2].Names, id) {
				ops = append(ops, Create(l.trigger(id), nil))
			}
		}
		if len(ops) == 2 && len(n[1].Names) == 0 {
			return Move{}, fmt.Errorf("job %s has no instance to trigger", l.Job)
		}
		return Move{Commit: ops, Else: func(*OpError) (Move, error) { return TriggerJob(l), nil }}, nil
	}}
}

// SetServers enables or disables servers for the job; with no addresses, all
// of them.
func SetServers(l Layout, enable bool, ips ...string) Move {
	return Move{Name: "set servers", Read: []Query{Data(l.config()), Children(l.servers())}, Then: func(n []Node, _ []Result) (Move, error) {
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
		ops := []Op{Check(l.config(), AnyVersion)}
		for _, ip := range targets {
			if slices.Contains(n[1].Names, ip) {
				ops = append(ops, Set(l.server(ip), state, AnyVersion))
			} else {
				ops = append(ops, Create(l.server(ip), state))
			}
		}
		return Move{Commit: ops, Else: func(*OpError) (Move, error) { return SetServers(l, enable, ips...), nil }}, nil
	}}
}

// SetItem enables or disables one item. A disabled item keeps its owner and
// does not run.
func SetItem(l Layout, item int, enable bool) Move {
	return Move{Name: "set item", Read: []Query{Data(l.item(item)), Data(l.itemDisabled(item))}, Then: func(n []Node, _ []Result) (Move, error) {
		switch {
		case !n[0].Exists:
			return Move{}, fmt.Errorf("job %s has no item %d", l.Job, item)
		case n[1].Exists == !enable:
			return Done()
		case enable:
			return Move{Commit: []Op{Delete(l.itemDisabled(item), AnyVersion)}, Else: func(*OpError) (Move, error) { return Done() }}, nil
		}
		return Move{Commit: []Op{Create(l.itemDisabled(item), nil)}, Else: func(*OpError) (Move, error) { return Done() }}, nil
	}}
}

// StopInstance removes an instance from the job's list, which tells it to
// finish what it runs and to stop: an operator's shutdown.
func StopInstance(l Layout, id string) Move {
	return Move{Name: "stop instance", Commit: []Op{Delete(l.instance(id), AnyVersion)}}
}

// Remove deletes the job from the registry. Hosts that run it stop and do not
// bring it back. With purge the nodes of ours go as well: offsets, records.
func Remove(l Layout, purge bool) Move {
	roots := []string{l.root}
	if purge {
		roots = append(roots, l.sibling)
	}
	return removeTree(roots, purge, l)
}

// removeTree reads the tree level by level and deletes it leaves first.
func removeTree(roots []string, purge bool, l Layout) Move {
	var all []string
	var level func(paths []string) Move
	level = func(paths []string) Move {
		read := make([]Query, len(paths))
		for i, p := range paths {
			read[i] = Children(p)
		}
		return Move{Name: "remove", Read: read, Then: func(n []Node, _ []Result) (Move, error) {
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
			if len(next) > 0 {
				return level(next), nil
			}
			if len(all) == 0 {
				return Move{}, ErrRemoved
			}
			slices.Reverse(all)
			ops := make([]Op, len(all))
			for i, p := range all {
				ops[i] = Delete(p, AnyVersion)
			}
			return deleteParts(ops, func() Move { return removeTree(roots, purge, l) }), nil
		}}
	}
	return level(roots)
}

// deleteParts deletes in commits that fit; if something moved, it starts over.
func deleteParts(ops []Op, again func() Move) Move {
	for part := range parts(ops, commitBudget) {
		rest := ops[len(part):]
		return Move{Name: "remove", Commit: part,
			Then: func([]Node, []Result) (Move, error) {
				if len(rest) == 0 {
					return Done()
				}
				return deleteParts(rest, again), nil
			},
			Else: func(*OpError) (Move, error) { return again(), nil }}
	}
	return Move{Name: "remove"}
}
