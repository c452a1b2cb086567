// Package changelog keeps the audit whole for changes that are made in the registry itself.
//
// The node "recorded" of a job names the newest changes that have a record. Each commit of a program of ours
// that makes a change that hosts check for adds that change ([Center]). A change that is not named there was
// made by another program. [Leave] names it and leaves a record in one commit, so that only one of the hosts
// that see the change leaves a record.
//
// Records wait in the registry (tree.ClusterChanges) until a host has them in its history.
package changelog

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/step"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// Record is a change that was made without a host's API. Its JSON has the names of history.Change.
type Record struct {
	Time time.Time `json:"time"`
	Who  string    `json:"who"`
	From string    `json:"from"`
	What string    `json:"what"`
	Job  string    `json:"job"`
	Item *int      `json:"item,omitempty"`
	Host string    `json:"host,omitempty"`
	// Trigger is the number of a trigger round, or OfThisCommit; of a host of an earlier version it is 0.
	Trigger int64  `json:"trigger,omitempty"`
	Before  string `json:"before,omitempty"`
	After   string `json:"after,omitempty"`
	Why     string `json:"why,omitempty"`
}

// OfThisCommit is Record.Trigger if the transaction that leaves the record is the trigger round.
const OfThisCommit = -1

// Change names one change in the registry.
type Change string

// Wrote is a write, by the number of its transaction.
func Wrote(transaction int64) Change { return Change(strconv.FormatInt(transaction, 10)) }

// Deleted is the deletion of the node that a transaction had made.
func Deleted(made int64) Change { return Change("-" + strconv.FormatInt(made, 10)) }

// Stopped is the deletion of an instance, whose id no other life has.
func Stopped(id string) Change { return Change("-" + id) }

const (
	// most is how many changes of a job are named. Hosts check a change moments after they see it; in a job
	// with many hosts each host may be stopped by a commit of its own.
	most = 500
	// mostWaiting is how many records wait in the registry at most if no host takes them: the names of many
	// more would not fit an answer of ZooKeeper.
	mostWaiting = 10_000
	// tries bounds the conflicts of one commit about the node recorded alone.
	tries = 20
)

// names reports whether the node names a change, or may have named it. The newest is the one that wrote it.
func names(n registry.Node, c Change) bool {
	list := strings.Fields(string(n.Data))
	return n.Exists && (Wrote(n.Mzxid) == c || slices.Contains(list, string(c)) || (len(list) >= most && c.before(list)))
}

// before reports whether the change is a write that is older than the first write in a list.
func (c Change) before(list []string) bool {
	made, _ := strconv.ParseInt(string(c), 10, 64) // 0: not a write
	for _, name := range list {
		if first, err := strconv.ParseInt(name, 10, 64); err == nil && first > 0 {
			return made > 0 && made < first
		}
	}
	return false
}

// mark is the op that adds changes to the node, and the commit that it is part of.
func mark(n registry.Node, changes ...Change) registry.Op {
	list := strings.Fields(string(n.Data))
	if n.Exists {
		list = append(list, string(Wrote(n.Mzxid)))
	}
	for _, c := range changes {
		list = append(list, string(c))
	}
	return step.Put(n, []byte(strings.Join(list[max(0, len(list)-most):], "\n")))
}

// leave are the ops that leave a record.
func leave(namespace, id string, r Record) ([]registry.Op, error) {
	data, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	all := tree.ClusterChanges(namespace)
	return []registry.Op{registry.Ensure(all), registry.Create(all+"/"+id, data)}, nil
}

func newID() string { return strings.ToLower(rand.Text()) }

// Leave leaves the record of a change that another program made, unless the change is named
// already, or a removal of ours has taken the job's records with it.
func Leave(ctx context.Context, r registry.Center, l tree.Layout, c Change, record Record) error {
	id := newID()
	return step.Perform(ctx, r, "record a change", func(ctx context.Context, x *step.Exchange) error {
		for {
			n, err := x.Read(ctx, registry.Data(tree.Recorded(l)), registry.Data(l.Sibling()), registry.Data(l.Wanted()))
			if err != nil {
				return err
			}
			purged := !n.Data(l.Sibling()).Exists || (!n.Data(tree.Recorded(l)).Exists && tree.ParseWanted(n.Data(l.Wanted()).Data).Purged)
			if purged || names(n.Data(tree.Recorded(l)), c) {
				return nil
			}
			ops, err := leave(l.Namespace, id, record)
			if err != nil {
				return err
			}
			_, err = x.Commit(ctx, append(ops, mark(n.Data(tree.Recorded(l)), c))...)
			if !step.Contested(err) {
				return err
			}
		}
	})
}

// Center is a session for one change of a job: each of its commits is named as on record. It is
// for one goroutine.
type Center struct {
	registry.Center
	layout tree.Layout
	record func() Record // nil: the caller records the change
	id     string        // of the record that is to be left, empty for none
}

// By returns the session for a change that the caller records.
func By(r registry.Center, l tree.Layout) *Center { return &Center{Center: r, layout: l} }

// Leaving returns the session for a change whose record is left in the registry by its first commit. That
// commit calls record; a conflict may call it again.
func Leaving(r registry.Center, l tree.Layout, record func() Record) *Center {
	return &Center{Center: r, layout: l, record: record, id: newID()}
}

// Commit implements [registry.Center]. It hides conflicts about the node "recorded" from the caller. A commit
// of checks alone changes nothing and is not recorded.
func (c *Center) Commit(ctx context.Context, ops ...registry.Op) ([]registry.Result, error) {
	if !slices.ContainsFunc(ops, func(op registry.Op) bool { return op.Kind != registry.OpCheck }) {
		return c.Center.Commit(ctx, ops...)
	}
	var last error
	for range tries {
		more, err := c.more(ctx, ops)
		if err != nil {
			return nil, err
		}
		results, err := c.Center.Commit(ctx, append(slices.Clone(ops), more...)...)
		var conflict *registry.OpError
		if errors.As(err, &conflict) && conflict.Index >= len(ops) {
			last = err
			continue
		}
		if err != nil {
			return nil, err
		}
		c.id = ""
		return results[:len(ops)], nil
	}
	return nil, fmt.Errorf("%w: name the change as recorded: others do so all the time: %v", registry.ErrUnavailable, last)
}

// more are the ops that name the commit as recorded, and leave its record.
func (c *Center) more(ctx context.Context, ops []registry.Op) (out []registry.Op, err error) {
	l, w := c.layout, watchedBy(c.layout, ops)
	if c.id == "" && !w.any() {
		return nil, nil
	}
	all := tree.ClusterChanges(l.Namespace)
	read := []registry.Query{registry.Data(tree.Recorded(l)), registry.Data(l.Sibling()), registry.Data(l.Config())}
	if c.id != "" {
		read = append(read, registry.Children(all))
	}
	nodes, err := c.Read(ctx, read...)
	if err != nil {
		return nil, err
	}
	n := make(registry.Snapshot, len(nodes))
	for _, node := range nodes {
		n[node.Query] = node
	}
	list, changes := n.Data(tree.Recorded(l)), w.stopped
	if w.removed {
		changes = []Change{Deleted(n.Data(l.Config()).Czxid)}
	}
	if c.id != "" {
		waiting := n.Children(all)
		// Then an earlier commit whose answer was lost took effect.
		left := slices.Contains(waiting, c.id) || names(list, Change(c.id))
		if !left && len(waiting) < mostWaiting {
			if out, err = leave(l.Namespace, c.id, c.record()); err != nil {
				return nil, err
			}
		}
		changes = append(changes, Change(c.id))
	}
	if n.Data(l.Sibling()).Exists && !w.purged {
		out = append(out, mark(list, changes...))
	}
	return out, nil
}

// watched holds the changes of a commit that hosts see and check for a record. Changes that hosts recognise as
// ours by another mark are not named, so that they do not crowd the list: triggers and items are marked
// (tree.TriggerPlain, tree.ItemMarked), and settings are written together with the definition.
type watched struct {
	wrote   bool     // a server, or a waiting trigger: merging with another program's trigger makes it ours
	stopped []Change // instances
	removed bool     // the job's configuration: a removal deletes it first, and it stands for the whole removal
	purged  bool     // the node recorded
}

func (w *watched) any() bool { return w.wrote || w.removed || len(w.stopped) > 0 }

func watchedBy(l tree.Layout, ops []registry.Op) (w watched) {
	for _, op := range ops {
		id, instance := strings.CutPrefix(op.Path, l.Instances()+"/")
		deletes := op.Kind == registry.OpDelete
		switch {
		case op.Kind == registry.OpCheck:
			w.wrote = w.wrote || strings.HasPrefix(op.Path, l.Triggers()+"/")
		case deletes && instance:
			w.stopped = append(w.stopped, Stopped(id))
		case deletes:
			w.removed = w.removed || op.Path == l.Config()
			w.purged = w.purged || op.Path == tree.Recorded(l) || op.Path == l.Sibling()
		default:
			w.wrote = w.wrote || strings.HasPrefix(op.Path, l.Servers()+"/")
			w.purged = w.purged || (op.Path == l.Wanted() && tree.ParseWanted(op.Data).Purged)
		}
	}
	return w
}
