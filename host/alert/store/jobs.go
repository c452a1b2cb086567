package store

import (
	"context"
	"slices"
	"time"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/step"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/alert"
	"github.com/wasmjob/wasmjob/host/event"
)

// itemsAtOnce is how many items of a job one check looks at.
const itemsAtOnce = 500

// Look answers a check: two reads, of twice as many nodes as the job has hosts and of at most
// itemsAtOnce items.
func (b *Board) Look(ctx context.Context, namespace string, c alert.Check) (f alert.Found, err error) {
	l := tree.NewLayout(namespace, c.Job)
	err = step.Perform(ctx, b.registry, "look at the items of "+c.Job, func(ctx context.Context, x *step.Exchange) error {
		n, err := x.Read(ctx, registry.Data(l.Config()), registry.Children(l.Instances()), registry.Data(l.Members()), registry.Children(l.Servers()))
		if err != nil {
			return err
		}
		config := n.Data(l.Config())
		if !config.Exists {
			return nil
		}
		f.Exists, f.ConfiguredAt = true, config.Mtime
		f.Settings, err = settings(config)
		if err != nil { // hosts use the last good one; there is nothing to check against
			f.Exists = false
			return nil
		}
		instances, members := n.Children(l.Instances()), tree.ParseMembers(n.Data(l.Members()).Data)
		f.Hosts = len(instances)
		f.Java = slices.ContainsFunc(instances, func(id string) bool { return !slices.Contains(members, id) })
		var read []registry.Query
		servers := n.Children(l.Servers())
		for _, ip := range servers {
			read = append(read, registry.Data(l.Server(ip)))
		}
		for _, id := range instances {
			read = append(read, registry.Data(l.Instance(id)))
		}
		last := min(c.From+itemsAtOnce, f.Settings.Items)
		for i := c.From; i < last; i++ {
			read = append(read, registry.Data(l.Record(i)), registry.Data(l.ItemDisabled(i)), registry.Data(l.Item(i)))
		}
		if n, err = x.Read(ctx, read...); err != nil {
			return err
		}
		f.Enabled, f.EnabledSince = enabled(l, n, servers, instances)
		for i := c.From; i < last; i++ {
			f.Items = append(f.Items, alert.FoundItem{Item: i, Record: tree.ParseRecord(n.Data(l.Record(i)).Data), Disabled: n.Data(l.ItemDisabled(i)).Exists,
				EnabledSince: n.Data(l.Item(i)).Mtime})
		}
		if last < f.Settings.Items {
			f.More = last
		}
		return nil
	})
	return f, err
}

// enabled reports whether a server of the job's hosts is enabled, or, without hosts, any of its servers, and
// since when one is at least; zero if that may always have been so. A joining host sets its server again
// unchanged: that does not count as the time.
func enabled(l tree.Layout, n registry.Snapshot, servers, instances []string) (is bool, since time.Time) {
	of, joins := servers, make(map[int64]bool)
	if len(instances) > 0 {
		of = nil
		for _, id := range instances {
			of = append(of, tree.ServerOf(id))
			joins[n.Data(l.Instance(id)).Czxid] = true
		}
	}
	for _, ip := range of {
		node := n.Data(l.Server(ip))
		switch {
		case !node.Exists, tree.IsEnabled(node.Data) && joins[node.Mzxid]:
			return true, time.Time{}
		case tree.IsEnabled(node.Data) && (!is || node.Mtime.Before(since)):
			is, since = true, node.Mtime
		}
	}
	return is || len(of) == 0, since
}

// settings are those of a configuration's node.
func settings(n registry.Node) (event.Settings, error) {
	c, _, err := jobconfig.Parse(n.Data)
	if err == nil {
		err = c.Validate()
	}
	if err != nil {
		return event.Settings{}, err
	}
	guest, err := c.Guest()
	return event.Settings{Cron: c.Cron, TimeZone: c.TimeZone, Terms: c.Terms(), Labels: guest.Labels.String(), Items: c.ShardingTotalCount, Misfire: c.Misfire,
		Failover: c.Failover && c.MonitorExecution, CatchUp: guest.CatchUpWindow, ErrorHandler: c.JobErrorHandlerType}, err
}

// Orphans returns the jobs of the namespace without a host, with their settings.
func (b *Board) Orphans(ctx context.Context, namespace string) (orphans map[string]event.Settings, err error) {
	orphans = make(map[string]event.Settings)
	err = step.Perform(ctx, b.registry, "look for jobs without a host", func(ctx context.Context, x *step.Exchange) error {
		root := registry.Children(tree.JobsPath(namespace))
		n, err := x.Read(ctx, root)
		if err != nil {
			return err
		}
		for part := range slices.Chunk(n[root].Names, atOnce) {
			var read []registry.Query
			for _, job := range part {
				read = append(read, registry.Children(tree.NewLayout(namespace, job).Instances()))
			}
			n, err := x.Read(ctx, read...)
			if err != nil {
				return err
			}
			var alone []string
			for _, job := range part {
				if len(n.Children(tree.NewLayout(namespace, job).Instances())) == 0 {
					alone = append(alone, job)
				}
			}
			config := func(job string) string { return tree.NewLayout(namespace, job).Config() }
			err = eachOf(ctx, x, config, alone, func(job string, node registry.Node) {
				if s, err := settings(node); err == nil {
					orphans[job] = s
				}
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	return orphans, err
}

// Items returns how many items jobs have, 0 for those that are not in the registry. A job with an invalid
// configuration is left out: its hosts use the previous one.
func (b *Board) Items(ctx context.Context, namespace string, jobs []string) (items map[string]int, err error) {
	items = make(map[string]int)
	for _, job := range jobs {
		items[job] = 0
	}
	config := func(job string) string { return tree.NewLayout(namespace, job).Config() }
	err = step.Perform(ctx, b.registry, "look at the jobs of alerts", func(ctx context.Context, x *step.Exchange) error {
		return eachOf(ctx, x, config, jobs, func(job string, node registry.Node) {
			delete(items, job)
			if s, err := settings(node); err == nil {
				items[job] = s.Items
			}
		})
	})
	return items, err
}
