package operate

import (
	"cmp"
	"context"
	"path"
	"slices"
	"time"

	"github.com/wasmjob/wasmjob/coordination/recipe/rate"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/step"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// A kill is written into the records of the runs to be killed. Every completion, takeover and begin sets its
// record: so none of them misses the kill, and no later run is killed. The commit also sets the job's node of
// kills, which hosts watch while something of the job has run for long.

// Killing is an operator's request to kill runs of a job.
type Killing struct {
	Layout tree.Layout
	// Item selects one item, -1 all; Run one run by its id, "" any; Server the instances on one server, "" any.
	Item        int
	Run, Server string
	// By names the operator, in words.
	By string
	// Grace is how long guests may continue after they have been asked to end.
	Grace time.Duration
	Now   time.Time
	// Look only lists the runs and asks no host.
	Look bool
	// Found, if not nil, gets the selected runs before their hosts are asked.
	Found func([]KillTarget)
}

// KillTarget is one run or one listener to be killed.
type KillTarget struct {
	// Item is -1 for a listener; then Listener is the name of its export.
	Item     int
	Listener string
	Fire     tree.Fire
	// Host is the instance id of the host that runs it. Java is set for a Java host, Older for a host of an
	// earlier version: neither can be asked. Gone is set if the host has died; the kill then prevents a
	// takeover.
	Host              string
	Java, Older, Gone bool
	// Fence and Record are those of the run when it was asked to end, zero for a Java host.
	Fence  int64
	Record tree.Record

	version int32  // of the record, or of the listener's node
	node    string // the listener's
	listens tree.Listening
}

// asked reports whether the run's host is asked to end it.
func (t KillTarget) asked() bool { return !t.Java && !t.Older }

// AskKill asks the hosts of a job to end their selected runs. It may be called again: earlier requests stay,
// with the newer grace. It returns the selected runs, by item, and tree.ErrRemoved for a job that is not in the
// registry. A run that another host takes over meanwhile stays selected; one that ends meanwhile is returned as
// it was, and [ReadEndings] says how it ended.
func AskKill(ctx context.Context, r registry.Center, k Killing) (targets []KillTarget, err error) {
	g := killing{Killing: k}
	err = step.Perform(ctx, r, "kill", func(ctx context.Context, x *step.Exchange) error {
		if targets, err = g.find(ctx, x); err != nil || k.Look {
			return err
		}
		if k.Found != nil {
			k.Found(targets)
		}
		targets, err = g.ask(ctx, x, targets)
		return err
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

// means reports whether a run of the item on the host is selected; host "" is any.
func (g *killing) means(item int, host string) bool {
	return (g.Item < 0 || g.Item == item) && (g.Server == "" || host == "" || tree.ServerOf(host) == g.Server)
}

// find lists the selected runs.
func (g *killing) find(ctx context.Context, x *step.Exchange) ([]KillTarget, error) {
	l := g.Layout
	n, err := x.Read(ctx, registry.Data(l.Config()), registry.Children(l.Runs()), registry.Children(l.Instances()), registry.Children(l.Details()), registry.Children(l.Sharding()), registry.Children(l.Listeners()))
	if err != nil {
		return nil, err
	}
	if !n.Data(l.Config()).Exists {
		return nil, tree.ErrRemoved
	}
	g.instances, g.details = n.Children(l.Instances()), n.Children(l.Details())
	hosts, listening := n.Children(l.Runs()), n.Children(l.Listeners())
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
	listeners, err := g.findListeners(ctx, x, listening)
	if err != nil {
		return nil, err
	}
	targets = append(targets, listeners...)
	for _, i := range marks {
		mark := n.Data(l.ItemRunning(i))
		if id := string(mark.Data); mark.Exists && slices.Contains(g.instances, id) && !slices.Contains(g.details, id) && g.means(i, id) && g.Run == "" {
			targets = append(targets, KillTarget{Item: i, Host: id, Java: true})
		}
	}
	slices.SortStableFunc(targets, func(a, b KillTarget) int { return a.Item - b.Item })
	return targets, nil
}

// findListeners lists the selected listeners among the given names: those of all hosts, unless Item or Run
// selects a run.
func (g *killing) findListeners(ctx context.Context, x *step.Exchange, names []string) ([]KillTarget, error) {
	if len(names) == 0 || g.Item >= 0 || g.Run != "" {
		return nil, nil
	}
	var read []registry.Query
	for _, name := range names {
		read = append(read, registry.Data(g.Layout.Listener(name)))
	}
	n, err := x.Read(ctx, read...)
	if err != nil {
		return nil, err
	}
	var targets []KillTarget
	for _, q := range read {
		if one, ok := tree.ParseListening(n[q].Data); ok && g.means(-1, one.Host) {
			targets = append(targets, KillTarget{Item: -1, Listener: one.Export, Fire: one.Fire, Host: one.Host, version: n[q].Version, node: q.Path, listens: one})
		}
	}
	return targets, nil
}

// op is the operation that asks the target's host for its end.
func (t KillTarget) op(l tree.Layout, kill tree.Kill) registry.Op {
	if t.Listener != "" {
		t.listens.Kill = kill
		return registry.Set(t.node, t.listens.Data(), t.version)
	}
	return registry.Set(l.Record(t.Item), t.Record.Killed(kill, t.Fence).Data(), t.version)
}

// findOurs lists the selected open runs on hosts of ours. n has the hosts' lists of runs.
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
		if t = t.of(n.Data(l.Record(t.Item))); t.Record.Owner == t.Host && t.Record.Open() { // otherwise it has ended since
			open = append(open, t)
		}
	}
	return g.older(ctx, x, open)
}

// of returns the target with the record that was read.
func (t KillTarget) of(record registry.Node) KillTarget {
	t.Record, t.version = tree.ParseRecord(record.Data), record.Version
	t.Fence = t.Record.Token(record.Mzxid)
	return t
}

// older finds the targets whose hosts are of an earlier version. Such a host takes a record that was set to
// mean that the run is no longer its own.
func (g *killing) older(ctx context.Context, x *step.Exchange, targets []KillTarget) ([]KillTarget, error) {
	l := g.Layout
	var read []registry.Query
	for _, t := range targets {
		if q := registry.Data(l.Detail(t.Host)); !slices.Contains(read, q) {
			read = append(read, q)
		}
	}
	n, err := x.Read(ctx, read...)
	if err != nil {
		return nil, err
	}
	older := make(map[string]bool)
	for _, q := range read {
		detail := n[q]
		older[q.Path] = detail.Exists && !tree.ParseDetail(detail.Data).RecordedKills
	}
	for k, t := range targets {
		targets[k].Older = older[l.Detail(t.Host)]
	}
	return targets, nil
}

// ask writes the kill into the records of the targets. After a conflict or an unknown outcome it reads the
// targets again, so that it never selects other runs and finds what it has written. It returns the targets as
// last read.
func (g *killing) ask(ctx context.Context, x *step.Exchange, targets []KillTarget) ([]KillTarget, error) {
	l, kill, limit := g.Layout, tree.NewKill(g.By, g.Now, g.Grace), step.Budget
	var todo []int // of targets
	for k, t := range targets {
		if t.asked() {
			todo = append(todo, k)
		}
	}
	for len(todo) > 0 {
		var ops []registry.Op
		for _, k := range todo {
			ops = append(ops, targets[k].op(l, kill))
		}
		for part := range step.Parts(ops, limit) {
			guards := []registry.Op{registry.Check(l.Config(), registry.AnyVersion), registry.Ensure(l.Kills()), registry.Set(l.Kills(), nil, registry.AnyVersion)}
			_, err := x.Commit(ctx, append(guards, part...)...)
			if conflict := step.ConflictOf(err); conflict != nil && conflict.Index == 0 {
				return targets, tree.ErrRemoved
			}
			if step.Contested(err) {
				// Where runs end all the time, a smaller commit succeeds more often.
				limit = max(limit/2, leastKills)
				if targets, todo, err = g.again(ctx, x, targets, todo, kill); err != nil {
					return targets, err
				}
				break
			}
			if err != nil {
				return targets, err
			}
			todo = todo[len(part):]
		}
	}
	return targets, nil
}

// query is the node that shows the target's end and that the kill is written into.
func (t KillTarget) query(l tree.Layout) registry.Query {
	if t.Listener != "" {
		return registry.Data(t.node)
	}
	return registry.Data(l.Record(t.Item))
}

// leastKills is the least that ask puts into one commit, in bytes: about ten records.
const leastKills = 4 << 10

// again reads the targets that remain to be written. A target that has ended or has the kill is done; one that
// another host has taken over is still to be written.
func (g *killing) again(ctx context.Context, x *step.Exchange, targets []KillTarget, todo []int, kill tree.Kill) (found []KillTarget, left []int, err error) {
	l := g.Layout
	var read []registry.Query
	for _, k := range todo {
		read = append(read, targets[k].query(l))
	}
	n, err := x.Read(ctx, read...)
	if err != nil {
		return targets, todo, err
	}
	found = slices.Clone(targets)
	var open []KillTarget
	var of []int // open → targets
	for _, k := range todo {
		if t := &found[k]; t.Listener != "" {
			node := n[t.query(l)]
			one, there := tree.ParseListening(node.Data)
			t.version, t.listens = node.Version, one
			if there && one.Kill != kill {
				left = append(left, k)
			}
			continue
		}
		t := targets[k].of(n.Data(l.Record(targets[k].Item)))
		if t.Record.Open() && t.Record.Kill != kill {
			open, of = append(open, t), append(of, k)
		}
	}
	same, err := stillRun(ctx, x, l, open, targets, of)
	if err != nil {
		return targets, todo, err
	}
	if open, err = g.older(ctx, x, open); err != nil {
		return targets, todo, err
	}
	for n, k := range of {
		if !same[n] {
			continue
		}
		if found[k] = open[n]; open[n].asked() {
			left = append(left, k)
		}
	}
	return found, left, nil
}

// stillRun reports which of the open runs are the targets', on their hosts or on hosts that have taken them
// over, and notes these hosts: they have the runs in their lists.
func stillRun(ctx context.Context, x *step.Exchange, l tree.Layout, open, targets []KillTarget, of []int) (same []bool, err error) {
	same = make([]bool, len(open))
	var read []registry.Query
	for k, t := range open {
		same[k] = t.Record.Owner == t.Host && t.Record.Begun == targets[of[k]].Record.Begun
		if q := registry.Data(l.RunsOf(t.Record.Owner)); !same[k] && !slices.Contains(read, q) {
			read = append(read, q)
		}
	}
	n, err := x.Read(ctx, read...)
	if err != nil {
		return nil, err
	}
	lists := make(map[string]tree.Runs)
	for _, q := range read {
		lists[q.Path], _ = tree.ParseRuns(n[q].Data) // unreadable: it is recreated
	}
	for k, t := range open {
		if same[k] {
			continue
		}
		runs := lists[l.RunsOf(t.Record.Owner)]
		if same[k] = runs.Has(t.Item) && runs.FireOf(t.Item).Same(t.Fire); same[k] {
			open[k].Host, open[k].Gone = t.Record.Owner, false
		}
	}
	return same, nil
}

// KillWatch are the nodes that change when one of the runs ends.
func KillWatch(l tree.Layout, targets []KillTarget) []registry.Query {
	var q []registry.Query
	for _, t := range targets {
		query := registry.Data(l.RunsOf(t.Host))
		if t.Listener != "" {
			query = t.query(l)
		}
		if t.asked() && !slices.Contains(q, query) {
			q = append(q, query)
		}
	}
	return q
}

// Unlisted returns the indexes of the targets that the snapshot of KillWatch does not show as running: they
// have ended, or run on another host, or on one that cannot be asked.
func Unlisted(l tree.Layout, s registry.Snapshot, targets []KillTarget) []int {
	lists := make(map[string]tree.Runs)
	var ended []int
	for k, t := range targets {
		if t.Listener != "" {
			if !s.Data(t.node).Exists {
				ended = append(ended, k)
			}
			continue
		}
		runs, read := lists[t.Host]
		if !read {
			runs, _ = tree.ParseRuns(s.Data(l.RunsOf(t.Host)).Data) // unreadable: it is recreated
			lists[t.Host] = runs
		}
		if !t.asked() || !runs.FireOf(t.Item).Same(t.Fire) || len(runs.Runs) == 0 {
			ended = append(ended, k)
		}
	}
	return ended
}

// Ending is how a run that was to be killed has ended.
type Ending struct {
	// Open is set while the run continues. Now is its current state: another host may have taken it over.
	Open bool
	Now  KillTarget
	// Outcome and Reason are from its record; Outcome is empty if the record has been overwritten.
	Outcome, Reason string
}

// ReadEndings reads what has become of runs, in the order of targets. For a listener only the fact that it has
// ended is known. A run of a Java host is open as long as it has its mark. A run that a host has taken over is
// open as long as it runs there.
func ReadEndings(ctx context.Context, r registry.Center, l tree.Layout, targets []KillTarget) (endings []Ending, err error) {
	err = step.Perform(ctx, r, "read killed runs", func(ctx context.Context, x *step.Exchange) error {
		var read []registry.Query
		for _, t := range targets {
			if read = append(read, t.query(l)); t.Java {
				read = append(read, registry.Data(l.ItemRunning(t.Item)))
			}
		}
		n, err := x.Read(ctx, read...)
		if err != nil {
			return err
		}
		var open []KillTarget
		var of []int
		endings = make([]Ending, len(targets))
		for k, t := range targets {
			if t.Listener != "" {
				endings[k] = Ending{Open: n.Data(t.node).Exists, Now: t}
				continue
			}
			if t.Java {
				running := n.Data(l.ItemRunning(t.Item))
				endings[k] = Ending{Open: running.Exists && string(running.Data) == t.Host, Now: t}
				continue
			}
			read := t.of(n.Data(l.Record(t.Item)))
			if read.Record.Open() {
				open, of = append(open, read), append(of, k)
			}
			endings[k] = t.ending(read.Record)
		}
		same, err := stillRun(ctx, x, l, open, targets, of)
		if err != nil {
			return err
		}
		for n, k := range of {
			if same[n] {
				endings[k] = Ending{Open: true, Now: open[n]}
			}
		}
		return nil
	})
	return endings, err
}

// ending returns how the run has ended; Open is set if it has not.
func (t KillTarget) ending(r tree.Record) Ending {
	if r.Owner == t.Host && r.Begun == t.Record.Begun {
		return Ending{Outcome: r.Outcome, Reason: r.Reason}
	}
	if r.Former.Owner == t.Host && r.Former.Begun == t.Record.Begun {
		if r.Former.Ended == 0 && r.Source == tree.SourceFailover { // the newest repeated it
			return Ending{Outcome: r.Outcome, Reason: r.Reason}
		}
		return Ending{Outcome: r.Former.Outcome}
	}
	return Ending{}
}

// Released is the result of Release.
type Released struct {
	// Items were held back or postponed by their guests, and are free now; Missing is set if the job has no
	// such item. If Keys were paused, Items is all items.
	Items   tree.Items
	Missing bool
	// Keys of a rate were paused by guests of the job.
	Keys []string
}

// Release lets items run again that were held back or postponed by their guests: one, or with -1 all. With -1
// it also ends the pauses of keys that guests of the job asked for. now is the registry's time
// (coordination.RegistryTime). Instants of a held item that came due until then are not caught up. It returns
// tree.ErrRemoved for a job that is not in the registry.
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
		if item >= 0 {
			return nil
		}
		for done := false; !done; {
			if done, err = resumeKeys(ctx, x, l, now, &out); err != nil {
				return err
			}
		}
		if len(out.Keys) > 0 {
			out.Items = items
		}
		return nil
	})
	return out, err
}

// keysAtOnce is how many keys of rates are read in one request.
const keysAtOnce = 500

// resumeKeys ends the pauses that guests of the job asked for; done is false if the nodes changed meanwhile:
// call it again.
func resumeKeys(ctx context.Context, x *step.Exchange, l tree.Layout, now time.Time, out *Released) (done bool, err error) {
	parent := tree.Rates(l.Namespace)
	n, err := x.Read(ctx, registry.Children(parent))
	if err != nil {
		return false, err
	}
	for names := range slices.Chunk(n.Children(parent), keysAtOnce) {
		read := make([]registry.Query, len(names))
		for k, name := range names {
			read[k] = registry.Data(parent + "/" + name)
		}
		n, _, err := x.ReadSome(ctx, read...)
		if err != nil {
			return false, err
		}
		for _, q := range read {
			node := n.Data(q.Path)
			w := rate.Parse(node.Data, now.UnixMilli())
			if !node.Exists || !w.PausedBy(l.Job, now.UnixMilli()) {
				continue
			}
			_, err := x.Commit(ctx, registry.Set(q.Path, w.Resume().Data(), node.Version))
			if err == nil || step.IsUnknown(err) { // it may have taken effect; if not, the next read shows it
				if key := cmp.Or(w.Key, path.Base(q.Path)); !slices.Contains(out.Keys, key) {
					out.Keys = append(out.Keys, key)
				}
			}
			if step.Contested(err) {
				return false, nil
			}
			if err != nil {
				return false, err
			}
		}
	}
	return true, nil
}

// release writes the records of items that are held back or postponed; done is false if something has changed
// meanwhile.
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
		r := tree.ParseRecord(node.Data)
		switch {
		case r.Held != 0:
			r = r.Release(now.UnixMilli())
		case r.NotBefore(now.UnixMilli()) != 0:
			r = r.Hasten()
		default:
			continue
		}
		held = append(held, i)
		ops = append(ops, registry.Set(node.Path, r.Data(), node.Version))
	}
	for part := range step.Parts(ops, step.Budget) {
		_, err := x.Commit(ctx, part...)
		if err == nil || step.IsUnknown(err) { // it may have taken effect; if not, the next read shows it
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
