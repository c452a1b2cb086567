package operate

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/step"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// A kill is written below the
// sibling tree, one node per host that runs something; the host watches its node
// while it runs anything for long, and deletes it when nothing of it runs any
// more. It names each run by its fence, which no later run has.

// Killing is an operator's wish to end what runs of a job.
type Killing struct {
	Layout tree.Layout
	// Item is one item, -1 all. Run is one run by its id, "" any; Server is
	// that of the instances that are meant, "" any.
	Item        int
	Run, Server string
	// By says who asks, in words.
	By string
	// Grace is how long guests may go on after they have been asked to end.
	Grace time.Duration
	Now   time.Time
	// Look is set to ask no host: the runs that are meant are only listed.
	Look bool
	// Found, if not nil, is given the runs that are meant, before their hosts are asked.
	Found func([]KillTarget)
}

// KillTarget is one run that is to end.
type KillTarget struct {
	Item int
	Fire tree.Fire
	// Host has begun it: an instance id. Java is set if that is a Java host,
	// which no host can ask; Gone if it has died, so that the run is not taken
	// over.
	Host       string
	Java, Gone bool
	// Fence and Record are of the run when it was asked to end, zero for a
	// Java host.
	Fence  int64
	Record tree.Record
}

// AskKill asks the hosts of a job to end what they run. It may be called again:
// what has been asked for already stays asked for, with the newer grace. It
// returns the runs that are meant, by item, and tree.ErrRemoved for a job that
// is not in the registry.
func AskKill(ctx context.Context, r registry.Center, k Killing) (targets []KillTarget, err error) {
	g := killing{Killing: k}
	err = step.Perform(ctx, r, "kill", func(ctx context.Context, x *step.Exchange) error {
		if targets, err = g.find(ctx, x); err != nil || k.Look {
			return err
		}
		if k.Found != nil {
			k.Found(targets)
		}
		return g.ask(ctx, x, targets)
	})
	return targets, err
}

// killing is a Killing on its way.
type killing struct {
	Killing
	instances, details []string
}

// java reports whether a Java host is in the job.
func (g *killing) java() bool {
	return slices.ContainsFunc(g.instances, func(id string) bool { return !slices.Contains(g.details, id) })
}

// means reports whether a run of the item on the host is meant; host "" is any.
func (g *killing) means(item int, host string) bool {
	return (g.Item < 0 || g.Item == item) && (g.Server == "" || host == "" || tree.ServerOf(host) == g.Server)
}

// find lists the runs that are meant.
func (g *killing) find(ctx context.Context, x *step.Exchange) ([]KillTarget, error) {
	l := g.Layout
	n, err := x.Read(ctx, registry.Data(l.Config()), registry.Children(l.Runs()), registry.Children(l.Instances()), registry.Children(l.Details()), registry.Children(l.Sharding()))
	if err != nil {
		return nil, err
	}
	if !n.Data(l.Config()).Exists {
		return nil, tree.ErrRemoved
	}
	g.instances, g.details = n.Children(l.Instances()), n.Children(l.Details())
	hosts := n.Children(l.Runs())
	var marks tree.Items // whose running marks are read
	var read []registry.Query
	for _, id := range hosts {
		read = append(read, registry.Data(l.RunsOf(id)))
	}
	java := g.java()
	for _, name := range n.Children(l.Sharding()) {
		if i, ok := tree.ItemNumber(name); ok && java && g.means(i, "") {
			marks = append(marks, i)
			read = append(read, registry.Data(l.ItemRunning(i)))
		}
	}
	if n, err = x.Read(ctx, read...); err != nil {
		return nil, err
	}

	onOurs, err := g.findOurs(ctx, x, hosts, n)
	if err != nil {
		return nil, err
	}
	targets := onOurs
	for _, i := range marks {
		mark := n.Data(l.ItemRunning(i))
		if id := string(mark.Data); mark.Exists && slices.Contains(g.instances, id) && !slices.Contains(g.details, id) && g.means(i, id) && g.Run == "" {
			targets = append(targets, KillTarget{Item: i, Host: id, Java: true})
		}
	}
	slices.SortStableFunc(targets, func(a, b KillTarget) int { return a.Item - b.Item })
	return targets, nil
}

// findOurs lists the runs of hosts of ours that are meant and open. n has the hosts'
// lists of runs.
func (g *killing) findOurs(ctx context.Context, x *step.Exchange, hosts []string, n registry.Snapshot) ([]KillTarget, error) {
	l := g.Layout
	var listed []KillTarget
	var read []registry.Query
	for _, id := range hosts {
		runs, err := tree.ParseRuns(n.Data(l.RunsOf(id)).Data)
		if err != nil || runs.Java != "" {
			continue // it is recreated, or names no run of ours
		}
		gone := !slices.Contains(g.instances, id) && !slices.Contains(g.details, id)
		for _, i := range runs.Items() {
			fire := runs.FireOf(i)
			if g.means(i, id) && (g.Run == "" || tree.RunID(l.Job, fire, i) == g.Run) {
				listed = append(listed, KillTarget{Item: i, Fire: fire, Host: id, Gone: gone})
				read = append(read, registry.Data(l.Record(i)))
			}
		}
	}
	n, err := x.Read(ctx, read...)
	if err != nil {
		return nil, err
	}
	var open []KillTarget
	for _, t := range listed {
		record := n.Data(l.Record(t.Item))
		t.Record, t.Fence = tree.ParseRecord(record.Data), record.Mzxid
		if t.Record.Owner == t.Host && t.Record.Open() { // else it has ended since
			open = append(open, t)
		}
	}
	return open, nil
}

// ask reads what the hosts have been asked already, and writes what they are
// asked now. After a conflict, or if the outcome is unknown, it does so again: the
// runs stay those that were found, and what was written is found.
func (g *killing) ask(ctx context.Context, x *step.Exchange, targets []KillTarget) error {
	l := g.Layout
	byHost := make(map[string]map[int64]tree.Items)
	for _, t := range targets {
		if t.Java {
			continue
		}
		if byHost[t.Host] == nil {
			byHost[t.Host] = make(map[int64]tree.Items)
		}
		byHost[t.Host][t.Fence] = append(byHost[t.Host][t.Fence], t.Item)
	}
	hosts := slices.Sorted(maps.Keys(byHost))
	var read []registry.Query
	for _, id := range hosts {
		read = append(read, registry.Data(l.Kill(id)))
	}
	for {
		n, err := x.Read(ctx, read...)
		if err != nil {
			return err
		}
		var ops []registry.Op
		for _, id := range hosts {
			kill := tree.Kill{By: g.By, At: g.Now.UnixMilli(), Grace: g.Grace.Milliseconds()}
			for _, fence := range slices.Sorted(maps.Keys(byHost[id])) {
				kill.Runs = append(kill.Runs, tree.KillRun{Fence: fence, Items: byHost[id][fence]})
			}
			node := n.Data(l.Kill(id))
			ops = append(ops, step.Put(node, tree.ReadKills(node).With(kill).Data()))
		}
		done, err := writeKills(ctx, x, l, ops)
		if done || err != nil {
			return err
		}
	}
}

// writeKills writes in commits that fit; done is false if something has changed.
func writeKills(ctx context.Context, x *step.Exchange, l tree.Layout, ops []registry.Op) (done bool, err error) {
	for part := range step.Parts(ops, step.Budget) {
		_, err := x.Commit(ctx, append([]registry.Op{registry.Check(l.Config(), registry.AnyVersion), registry.Ensure(l.Kills())}, part...)...)
		if conflict := step.ConflictOf(err); conflict != nil && conflict.Index == 0 {
			return false, tree.ErrRemoved
		}
		if step.Contested(err) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
	return true, nil
}

// KillWatch are the nodes that change when one of the runs ends.
func KillWatch(l tree.Layout, targets []KillTarget) []registry.Query {
	var q []registry.Query
	for _, t := range targets {
		if query := registry.Data(l.RunsOf(t.Host)); !t.Java && !slices.Contains(q, query) {
			q = append(q, query)
		}
	}
	return q
}

// Unlisted are those of the targets that the snapshot of KillWatch does not show
// to run: they have ended, or run on a Java host.
func Unlisted(l tree.Layout, s registry.Snapshot, targets []KillTarget) []KillTarget {
	lists := make(map[string]tree.Runs)
	var ended []KillTarget
	for _, t := range targets {
		runs, read := lists[t.Host]
		if !read {
			runs, _ = tree.ParseRuns(s.Data(l.RunsOf(t.Host)).Data) // unreadable: it is recreated
			lists[t.Host] = runs
		}
		if t.Java || !runs.FireOf(t.Item).Same(t.Fire) || len(runs.Runs) == 0 {
			ended = append(ended, t)
		}
	}
	return ended
}

// Ending is how a run has ended that was to be killed.
type Ending struct {
	// Open is set while it has not.
	Open bool
	// Outcome and Reason are its record's; Outcome is empty if that has it
	// no more.
	Outcome, Reason string
}

// ReadEndings reads what has become of runs, in the order of targets. A run of a
// Java host is open as long as it has its mark.
func ReadEndings(ctx context.Context, r registry.Center, l tree.Layout, targets []KillTarget) (endings []Ending, err error) {
	err = step.Perform(ctx, r, "read killed runs", func(ctx context.Context, x *step.Exchange) error {
		var read []registry.Query
		for _, t := range targets {
			read = append(read, registry.Data(l.Record(t.Item)), registry.Data(l.ItemRunning(t.Item)))
		}
		n, err := x.Read(ctx, read...)
		if err != nil {
			return err
		}
		for _, t := range targets {
			endings = append(endings, t.ending(tree.ParseRecord(n.Data(l.Record(t.Item)).Data), n.Data(l.ItemRunning(t.Item))))
		}
		return nil
	})
	return endings, err
}

func (t KillTarget) ending(r tree.Record, running registry.Node) Ending {
	if t.Java {
		return Ending{Open: running.Exists && string(running.Data) == t.Host}
	}
	if r.Owner == t.Host && r.Begun == t.Record.Begun {
		return Ending{Open: r.Open(), Outcome: r.Outcome, Reason: r.Reason}
	}
	if r.Former.Owner == t.Host && r.Former.Begun == t.Record.Begun {
		return Ending{Outcome: r.Former.Outcome}
	}
	return Ending{}
}

// Released is what Release has done.
type Released struct {
	// Items were held back and are no more; Missing is set if the job has no
	// such item.
	Items   tree.Items
	Missing bool
}

// Release lets items run again that were held back: one, or with -1 all. What
// was due until now, by the registry's clock (coordination.RegistryTime), has no
// catch-up. It returns tree.ErrRemoved for a job that is not in the registry.
func Release(ctx context.Context, r registry.Center, l tree.Layout, item int, now time.Time) (out Released, err error) {
	err = step.Perform(ctx, r, "release", func(ctx context.Context, x *step.Exchange) error {
		n, err := x.Read(ctx, registry.Data(l.Config()), registry.Children(l.Records()))
		if err != nil {
			return err
		}
		if !n.Data(l.Config()).Exists {
			return tree.ErrRemoved
		}
		var items tree.Items
		for _, name := range n.Children(l.Records()) {
			if i, ok := tree.ItemNumber(name); ok && (item < 0 || i == item) {
				items = append(items, i)
			}
		}
		slices.Sort(items)
		out.Missing = item >= 0 && len(items) == 0
		for done := false; !done; {
			if done, err = release(ctx, x, l, items, now, &out); err != nil {
				return err
			}
		}
		return nil
	})
	return out, err
}

// release writes the records of those items that are held back; done is false if
// something has changed meanwhile.
func release(ctx context.Context, x *step.Exchange, l tree.Layout, items tree.Items, now time.Time, out *Released) (done bool, err error) {
	var read []registry.Query
	for _, i := range items {
		read = append(read, registry.Data(l.Record(i)))
	}
	n, err := x.Read(ctx, read...)
	if err != nil {
		return false, err
	}
	var ops []registry.Op
	var held tree.Items
	for _, i := range items {
		node := n.Data(l.Record(i))
		if r := tree.ParseRecord(node.Data); r.Held != 0 {
			held = append(held, i)
			ops = append(ops, registry.Set(node.Path, r.Release(now.UnixMilli()).Data(), node.Version))
		}
	}
	for part := range step.Parts(ops, step.Budget) {
		_, err := x.Commit(ctx, part...)
		if err == nil || step.IsUnknown(err) { // then perhaps; if not, the next look does
			out.Items = slices.Concat(out.Items, held[:len(part)])
			slices.Sort(out.Items)
			out.Items = slices.Compact(out.Items)
		}
		if step.Contested(err) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		held = held[len(part):]
	}
	return true, nil
}
