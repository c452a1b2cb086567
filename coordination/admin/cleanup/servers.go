package cleanup

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/step"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// RetireServers removes the nodes of enabled servers that have had no instance of the job for the time keep. It
// notes in our tree since when a server has had none, so that the next leader continues the count. It keeps a
// disabled server, because the operator's choice must hold when the server comes back, and a server whose node
// was set within that time. A host that joins sets its server's node, as Java hosts do; then the removal is
// refused. retired are the servers whose nodes were removed.
//
// [coordination.View.IsJanitor] decides which host calls it, at the slow reconcile interval.
func RetireServers(ctx context.Context, r registry.Center, l tree.Layout, now time.Time, keep time.Duration) (retired []string, err error) {
	err = step.Perform(ctx, r, "retire servers", func(ctx context.Context, x *step.Exchange) error {
		n, err := x.Read(ctx, registry.Data(l.Config()), registry.Children(l.Servers()), registry.Children(l.Instances()), registry.Children(l.Details()), registry.Data(l.UnusedServers()))
		if err != nil || !n.Data(l.Config()).Exists {
			return err
		}
		noted := n.Data(l.UnusedServers())
		list := tree.UnusedServers(n.Children(l.Servers()), n.Children(l.Instances()), n.Children(l.Details()), noted.Data)
		next := make(tree.Unused)
		var due []string
		for _, ip := range slices.Sorted(maps.Keys(list)) {
			since := list[ip]
			if since.IsZero() || since.After(now) { // new, or noted by a clock that was ahead
				since = now
			}
			if len(next) < tree.MaxUnused {
				next[ip] = since.UnixMilli()
			}
			if now.Sub(since) >= keep {
				due = append(due, ip)
			}
		}
		if !maps.Equal(next, tree.ParseUnused(noted.Data)) {
			_, err := x.Commit(ctx, registry.Check(l.Config(), registry.AnyVersion), step.Put(noted, next.Data()))
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
