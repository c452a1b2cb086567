package changes

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/coordination/admin/changelog"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/step"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/event/operation"
)

// Outside is what a host has seen, in one membership, of the nodes of a job that operators change: the servers of this
// host and of Java hosts, the host's trigger and instance, its items, the job itself. It creates a record for each change
// that has none. The zero value has seen none. It is not safe for concurrent use.
type Outside struct {
	self    string
	since   int64                    // the last transaction that the first snapshot shows
	servers map[string]registry.Node // by address, as seen last
	config  registry.Node
	trigger int64 // the transaction that made the trigger which was seen last
	waits   bool  // its round is not known yet
	// pending are the changes that still need a record.
	pending []sighting
	// disabled has the items that are known to be disabled, with the transaction that disabled each.
	disabled map[int]int64
	// enabled are those that are no longer disabled, and whose change still has to be read.
	enabled map[int]int64
	again   time.Time
}

// sighting is a seen change, with its record.
type sighting struct {
	change changelog.Change
	record changelog.Record
}

const (
	// mostAtOnce is how many items one call reads at most.
	mostAtOnce = 50
	// recordAgain is the time between an error and the next attempt to create records.
	recordAgain = 10 * time.Second
)

// See takes a snapshot of nodes that the host watches. A snapshot of another membership counts as the first.
func (o *Outside) See(s registry.Snapshot, l tree.Layout, self tree.JobInstance) {
	if o.self != self.ID {
		*o = Outside{self: self.ID, servers: make(map[string]registry.Node), disabled: make(map[int]int64), enabled: make(map[int]int64)}
		for _, n := range s {
			o.since = max(o.since, n.Mzxid)
		}
	}
	for q, n := range s {
		if ip, server := strings.CutPrefix(q.Path, l.Servers()+"/"); server && !q.Children {
			o.seeServer(ip, n)
		}
	}
	if config, watched := s[registry.Data(l.Config())]; watched {
		if o.config.Exists && !config.Exists {
			o.add(changelog.Deleted(o.config.Czxid), changelog.Record{What: operation.Remove.String()})
		}
		o.config = config
	}
	// A trigger by wasmjob has data.
	if t := s.Data(l.Trigger(o.self)); t.Exists && t.Czxid != o.trigger && len(t.Data) == 0 {
		o.trigger, o.waits = t.Czxid, true
	}
}

// Stopped records that this host has stopped because its instance was removed.
func (o *Outside) Stopped() {
	o.add(changelog.Stopped(o.self), changelog.Record{What: operation.Shutdown.String(), Host: o.self})
}

// seeServer handles a server. A node that is new or was blank was written by the host that joined.
func (o *Outside) seeServer(ip string, n registry.Node) {
	before := o.servers[ip]
	o.servers[ip] = n
	was, is := tree.IsEnabled(before.Data), tree.IsEnabled(n.Data)
	if n.Exists && was != is && len(before.Data) > 0 {
		o.add(changelog.Wrote(n.Mzxid), changelog.Record{What: operation.Switch(is).String(), Host: ip, Before: state(was), After: state(is)})
	}
}

// Mark records the mark of a disabled item. It must not be called before See.
func (o *Outside) Mark(item int, mark registry.Node) {
	if made, known := o.disabled[item]; known && made == mark.Czxid {
		return
	}
	o.disabled[item] = mark.Czxid
	if _, ours := tree.ParseMark(mark.Data); !ours && mark.Czxid > o.since {
		o.add(changelog.Wrote(mark.Czxid), itemRecord(item, false))
	}
}

// Enabled records that an item is not disabled.
func (o *Outside) Enabled(item int) {
	if made, known := o.disabled[item]; known {
		delete(o.disabled, item)
		o.enabled[item] = made
	}
}

func (o *Outside) add(c changelog.Change, r changelog.Record) {
	o.pending = append(o.pending, sighting{c, r})
}

// Record creates records of the seen changes that have none. round is what the host knows of the trigger that the
// transaction trigger made, 0 if nothing. After an error Record does nothing until Again, when the caller must call it
// again. Without a change by another program, or of an item, it makes no request to the registry.
func (o *Outside) Record(ctx context.Context, r registry.Center, l tree.Layout, now time.Time, trigger, round int64) error {
	if now.Before(o.again) {
		return nil
	}
	o.again = time.Time{}
	err := o.record(ctx, r, l, trigger, round)
	if err != nil {
		o.again = now.Add(recordAgain)
	}
	return err
}

// Again returns when to call Record after an error; zero without one.
func (o *Outside) Again() time.Time { return o.again }

func (o *Outside) record(ctx context.Context, r registry.Center, l tree.Layout, trigger, round int64) error {
	if o.waits && o.trigger == trigger && round != 0 {
		o.waits = false
		change := changelog.Record{What: operation.Trigger.String(), Trigger: round}
		if round == trigger { // of this instance alone
			change.Host = o.self
		}
		o.add(changelog.Wrote(round), change)
	}
	if err := o.readItems(ctx, r, l); err != nil {
		return err
	}
	for len(o.pending) > 0 {
		s := o.pending[0]
		s.record.Time, s.record.Job, s.record.Who, s.record.From = time.Now(), l.Job, theRegistry, event.FromRegistry
		if err := changelog.Leave(ctx, r, l, s.change, s.record); err != nil {
			return err
		}
		o.pending = o.pending[1:]
	}
	return nil
}

// readItems finds out who has enabled items. An item that another program enabled owes nothing that came due before, as
// if a program of wasmjob had enabled it.
func (o *Outside) readItems(ctx context.Context, r registry.Center, l tree.Layout) error {
	items := slices.Sorted(maps.Keys(o.enabled))
	items = items[:min(len(items), mostAtOnce)]
	return step.Perform(ctx, r, "read who enabled items", func(ctx context.Context, x *step.Exchange) error {
		var read []registry.Query
		for _, i := range items {
			read = append(read, registry.Data(l.Item(i)))
		}
		n, err := x.Read(ctx, read...)
		if err != nil {
			return err
		}
		var others []int
		var ops []registry.Op
		for _, i := range items {
			// A program of wasmjob sets the item's node when it enables the item.
			if item := n.Data(l.Item(i)); item.Exists && item.Mzxid < o.enabled[i] {
				others, ops = append(others, i), append(ops, registry.Set(item.Path, item.Data, item.Version))
			}
		}
		if len(ops) > 0 {
			if _, err := x.Commit(ctx, ops...); step.UnlessConflict(err) != nil {
				return err
			}
		}
		for _, i := range others {
			o.add(changelog.Deleted(o.enabled[i]), itemRecord(i, true))
		}
		for _, i := range items {
			delete(o.enabled, i)
		}
		return nil
	})
}

func itemRecord(item int, enabled bool) changelog.Record {
	return changelog.Record{What: operation.Switch(enabled).String(), Item: &item, Before: state(!enabled), After: state(enabled)}
}

// state returns the text in a record for a server or an item.
func state(enabled bool) string {
	if enabled {
		return tree.Enabled
	}
	return tree.Disabled
}
