package coordination

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/step"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// unused are the servers of a job that have no instance, with since when that
// is known, Unix milliseconds: node servers of our tree.
type unused map[string]int64

// maxUnused bounds that node. Of more, the others are noted when these are gone.
const maxUnused = 10_000

// parseUnused reads the node leniently: what cannot be read is noted again.
func parseUnused(data []byte) unused {
	var u unused
	if json.Unmarshal(data, &u) != nil {
		return nil
	}
	return u
}

func (u unused) data() []byte {
	if len(u) == 0 {
		return nil
	}
	b, err := json.Marshal(u)
	if err != nil { // strings and numbers always marshal
		return nil
	}
	return b
}

// UnusedServers are the servers of a job without an instance, and since when that
// is known: the zero time if it is not yet. servers, instances and details are
// the names below ElasticJob's nodes of these names and below ours; noted is the
// data of node servers of our tree.
func UnusedServers(servers, instances, details []string, noted []byte) map[string]time.Time {
	used := make(map[string]bool)
	for _, id := range slices.Concat(instances, details) {
		used[tree.ServerOf(id)] = true
	}
	since := parseUnused(noted)
	list := make(map[string]time.Time)
	for _, ip := range servers {
		switch at, known := since[ip]; {
		case used[ip]:
		case known:
			list[ip] = time.UnixMilli(at)
		default:
			list[ip] = time.Time{}
		}
	}
	return list
}

// RetireServers removes the nodes of servers that are enabled and have had no
// instance of the job for the time keep. It notes in our tree since when servers
// have had none, so that the next leader goes on where this one ends. A server
// that is disabled stays: that is an operator's choice, which holds when it comes
// back. So does one whose node was set within that time. A host that comes back
// sets the node when it joins, as Java hosts do: then the removal is refused.
// retired are the nodes that were removed.
//
// The janitor calls it at the slow reconcile interval.
func (m *Member) RetireServers(ctx context.Context, now time.Time, keep time.Duration) (retired []string, err error) {
	l := m.Layout
	err = m.perform(ctx, "retire servers", func(ctx context.Context, x *step.Exchange) error {
		n, err := x.Read(ctx, registry.Data(l.Config()), registry.Children(l.Servers()), registry.Children(l.Instances()), registry.Children(l.Details()), registry.Data(l.UnusedServers()))
		if err != nil || !n.Data(l.Config()).Exists {
			return err
		}
		noted := n.Data(l.UnusedServers())
		list := UnusedServers(n.Children(l.Servers()), n.Children(l.Instances()), n.Children(l.Details()), noted.Data)
		next := make(unused)
		var due []string
		for _, ip := range slices.Sorted(maps.Keys(list)) {
			since := list[ip]
			if since.IsZero() || since.After(now) { // new, or noted by a clock that was ahead
				since = now
			}
			if len(next) < maxUnused {
				next[ip] = since.UnixMilli()
			}
			if now.Sub(since) >= keep {
				due = append(due, ip)
			}
		}
		if !maps.Equal(next, parseUnused(noted.Data)) {
			_, err := x.Commit(ctx, registry.Check(l.Config(), registry.AnyVersion), step.Put(noted, next.data()))
			if err != nil {
				return step.UnlessConflict(err) // another host does it, or the job is gone
			}
		}
		return retireServers(ctx, x, l, due, now.Add(-keep), &retired)
	})
	return retired, err
}

// retireServers removes those of the servers that are enabled, if their nodes
// were set before a time.
func retireServers(ctx context.Context, x *step.Exchange, l tree.Layout, ips []string, before time.Time, retired *[]string) error {
	read := make([]registry.Query, len(ips))
	for i, ip := range ips {
		read[i] = registry.Data(l.Server(ip))
	}
	nodes, err := x.Read(ctx, read...)
	if err != nil {
		return err
	}
	var groups [][]registry.Op
	for _, q := range read {
		n := nodes[q]
		if n.Exists && strings.EqualFold(strings.TrimSpace(string(n.Data)), tree.Enabled) && !n.Mtime.After(before) {
			groups = append(groups, []registry.Op{registry.Delete(n.Path, n.Version)})
		}
	}
	return sweepEach(ctx, x, groups, retired)
}
