package operate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/step"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// The refusals of a trigger.
var (
	// ErrNothingRuns: no instance would run an item.
	ErrNothingRuns = errors.New("nothing would run")
	// ErrTriggerWaits: an earlier trigger with other arguments has not begun on all hosts.
	ErrTriggerWaits = errors.New("another trigger waits")
	// ErrNoTriggerArgs: an instance of an earlier version would ignore the arguments.
	ErrNoTriggerArgs = errors.New("items, a parameter and an instant cannot be given")
)

// TriggerJob asks every instance of the job to run its items once, now; see TriggerWith.
func TriggerJob(ctx context.Context, r registry.Center, l tree.Layout) error {
	_, err := TriggerWith(ctx, r, l, tree.TriggerArgs{})
	return err
}

// TriggerWith asks every instance of the job to run its items once, now; arguments may select items or set
// another parameter. The same commit sets the parent node: its transaction is the number of the round, its data
// are the arguments.
//
// While an instance has not consumed an earlier trigger, or an item still has to run in that round, this
// trigger is queued behind it, with its own arguments; see [AdvanceQueue]. If an instance knows no queue, the
// earlier trigger counts for both if it has the same arguments, and otherwise this one is refused: no trigger
// is lost or doubled. An instance that begins an earlier round at this moment merges both into that round.
func TriggerWith(ctx context.Context, r registry.Center, l tree.Layout, args tree.TriggerArgs) (made Made, err error) {
	err = step.Perform(ctx, r, "trigger", func(ctx context.Context, x *step.Exchange) error {
		for {
			t, config, err := readTriggering(ctx, x, l)
			if err != nil {
				return err
			}
			if !config.Exists {
				return tree.ErrRemoved
			}
			t.args = args
			if len(t.instances) == 0 {
				return fmt.Errorf("%w: no host has the job; '%s' says why, as far as that is known", ErrNothingRuns, words.Command("why", l.Job))
			}
			if err := t.check(ctx, x, config.Data); err != nil {
				return err
			}
			ops, queues, err := t.place(ctx, x, config.Data)
			if err != nil {
				return err
			}
			if ops == nil {
				continue // the queue has moved on
			}
			results, err := x.Commit(ctx, ops...)
			if step.ConflictOf(err) != nil {
				continue
			}
			number := int64(0)
			for _, done := range results { // one is a set
				number = max(number, done.Zxid)
			}
			switch {
			case queues:
				made = Made{Queued: number, Ahead: len(t.queue.Triggers) + 1}
			case slices.ContainsFunc(t.waiting, func(id string) bool { return slices.Contains(t.instances, id) }):
				made = Made{Round: number, Earlier: t.parent.Mzxid}
			default:
				made = Made{Round: number}
			}
			return err
		}
	})
	return made, err
}

// triggering is a trigger on its way: what was read.
type triggering struct {
	layout    tree.Layout
	args      tree.TriggerArgs
	parent    registry.Node
	instances []string
	waiting   []string // instances that have not consumed an earlier trigger
	division  tree.Division
	divided   registry.Node // the node that holds division
	queue     tree.Queue
	queueNode registry.Node
	// leaving are hosts of ours that are no instances any more, and whose items the next division moves: those that an operator has
	// stopped have them until their runs have ended.
	leaving []string
}

// readTriggering reads the nodes that a trigger depends on, and the configuration.
func readTriggering(ctx context.Context, x *step.Exchange, l tree.Layout) (t triggering, config registry.Node, err error) {
	n, err := x.Read(ctx, registry.Data(l.Config()), registry.Children(l.Instances()), registry.Data(l.Triggers()), registry.Children(l.Triggers()), registry.Data(l.Assignment()), registry.Data(l.Queue()))
	if err != nil {
		return t, config, err
	}
	t = triggering{layout: l, parent: n.Data(l.Triggers()), instances: n.Children(l.Instances()), waiting: n.Children(l.Triggers()),
		divided: n.Data(l.Assignment()), queueNode: n.Data(l.Queue())}
	t.division = tree.ParseDivision(t.divided.Data)
	t.queue = tree.ParseQueue(t.queueNode.Data, t.queueNode.Mzxid)
	return t, n.Data(l.Config()), t.readLeaving(ctx, x)
}

// readLeaving finds the hosts that leave. As a rule it reads nothing.
func (t *triggering) readLeaving(ctx context.Context, x *step.Exchange) error {
	l := t.layout
	stranger := func(id string) bool {
		return !slices.Contains(t.instances, id) && !slices.Contains(t.division.Instances, id)
	}
	if len(t.division.Pending) == 0 && !slices.ContainsFunc(t.waiting, stranger) {
		return nil
	}
	n, err := x.Read(ctx, registry.Data(l.Necessary()), registry.Children(l.Assignment()))
	if err != nil {
		return err
	}
	holders := slices.DeleteFunc(slices.Clone(n.Children(l.Assignment())), func(id string) bool { return !stranger(id) })
	if n.Data(l.Necessary()).Exists {
		for _, id := range t.waiting { // it has left, and the items are not divided yet
			if stranger(id) && !slices.Contains(holders, id) {
				t.leaving = append(t.leaving, id)
			}
		}
	}
	if len(holders) == 0 {
		return nil
	}
	read := make([]registry.Query, len(holders))
	for k, id := range holders {
		read[k] = registry.Data(l.AssignmentOf(id))
	}
	if n, err = x.Read(ctx, read...); err != nil {
		return err
	}
	for _, id := range holders {
		if items, err := tree.ParseItems(string(n.Data(l.AssignmentOf(id)).Data)); err == nil && len(items) > 0 {
			t.leaving = append(t.leaving, id)
		}
	}
	return nil
}

// place returns the ops that make the trigger a round, or queue it. No ops means that the queue has advanced
// and must be read again.
func (t *triggering) place(ctx context.Context, x *step.Exchange, config []byte) (ops []registry.Op, queues bool, err error) {
	guard, waits, err := t.waits(ctx, x)
	if err != nil || (waits == nil && len(t.queue.Triggers) == 0) {
		return t.ops(), false, err
	}
	queues, err = t.knowQueues(ctx, x)
	switch {
	case err != nil:
		return nil, false, err
	case !queues && waits != nil && !tree.ParseTriggerArgs(t.parent.Data).Same(t.args):
		return nil, false, waits
	case !queues:
		return t.ops(), false, nil
	case waits != nil:
		ops, err = t.enqueue(queueMax(config), guard)
		return ops, true, err
	}
	_, _, err = advance(ctx, x, t.layout, false)
	return nil, true, err
}

// check refuses a trigger that could not do what it asks for, even if nothing else waits.
func (t *triggering) check(ctx context.Context, x *step.Exchange, config []byte) error {
	if err := anyEnabled(ctx, x, t.layout, t.instances); err != nil {
		return err
	}
	c, _, unreadable := jobconfig.Parse(config)
	if !t.args.Plain() {
		if unreadable != nil {
			return fmt.Errorf("the job's configuration cannot be read: %w", unreadable)
		}
		if err := t.known(ctx, x); err != nil {
			return err
		}
	}
	if unreadable != nil {
		return nil
	}
	var err error
	if t.args, err = t.args.In(c); err != nil {
		return err
	}
	return t.anyRuns(ctx, x, c.ShardingTotalCount)
}

// mostLookedAt is how many items a trigger looks at before it goes ahead.
const mostLookedAt = 1000

// anyRuns refuses a trigger if none of its items may run; total is how many items the job has. As a rule it
// reads one item.
func (t *triggering) anyRuns(ctx context.Context, x *step.Exchange, total int) error {
	var asked, disabled, held tree.Items
	for i := range total {
		if t.args.Has(i) {
			asked = append(asked, i)
		}
		if len(asked) > mostLookedAt {
			return nil
		}
	}
	if len(asked) == 0 {
		return nil
	}
	for _, some := range []tree.Items{asked[:1], asked[1:]} {
		var read []registry.Query
		for _, i := range some {
			read = append(read, registry.Data(t.layout.ItemDisabled(i)), registry.Data(t.layout.Record(i)))
		}
		n, err := x.Read(ctx, read...)
		if err != nil {
			return err
		}
		for _, i := range some {
			switch {
			case n.Data(t.layout.ItemDisabled(i)).Exists:
				disabled = append(disabled, i)
			case tree.ParseRecord(n.Data(t.layout.Record(i)).Data).Held != 0:
				held = append(held, i)
			default:
				return nil
			}
		}
	}
	why := slices.DeleteFunc([]string{t.cannotRun(disabled, "paused", "job resume"), t.cannotRun(held, "held back", "job release")}, func(s string) bool { return s == "" })
	return fmt.Errorf("%w: %s", ErrNothingRuns, strings.Join(why, "; "))
}

// cannotRun says in a sentence why items cannot run and which command lets them run; empty for no items.
func (t *triggering) cannotRun(items tree.Items, are, command string) string {
	switch len(items) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("item %s is %s: '%s' lets it run", items, are, words.Command(command, t.layout.Job, "--item", items.String()))
	}
	return fmt.Sprintf("items %s are %s: '%s' lets one run", words.Clip(items.String()), are, words.Command(command, t.layout.Job, "--item", "N"))
}

// known refuses arguments that an instance does not know: it would run all its items.
func (t *triggering) known(ctx context.Context, x *step.Exchange) error {
	l := t.layout
	read := []registry.Query{registry.Data(l.Members())}
	for _, id := range t.instances {
		read = append(read, registry.Data(l.Detail(id)))
	}
	n, err := x.Read(ctx, read...)
	if err != nil {
		return err
	}
	members := tree.ParseMembers(n.Data(l.Members()).Data)
	for _, id := range t.instances {
		detail := n.Data(l.Detail(id))
		switch {
		case !detail.Exists && !slices.Contains(members, id):
			return fmt.Errorf("%w: %s is a host of ElasticJob, which would run all its items now with the configured parameter", ErrNoTriggerArgs, id)
		case !tree.ParseDetail(detail.Data).TriggerArgs, t.args.Queued != 0 && !tree.ParseDetail(detail.Data).TriggerQueue:
			return fmt.Errorf("%w: host %s has an earlier version of wasmjob, which would run all its items now with the configured parameter", ErrNoTriggerArgs, id)
		}
	}
	return nil
}

// waits reports whether an earlier trigger has not begun everywhere, so that a new one cannot be merged with
// it. Then refusal says where, and guard proves it in a commit.
func (t *triggering) waits(ctx context.Context, x *step.Exchange) (guard registry.Op, refusal, err error) {
	earlier := tree.ParseTriggerArgs(t.parent.Data)
	what := earlier.String()
	if what == "" {
		what = "all items and the configured parameter"
	}
	refuse := func(where string) error {
		return fmt.Errorf("%w: that of %s, with %s, has not begun on %s; try again when it has",
			ErrTriggerWaits, t.parent.Mtime.UTC().Format(time.RFC3339), what, where)
	}
	if keep := t.keepers(); len(keep) > 0 {
		return registry.Check(t.layout.Trigger(keep[0]), registry.AnyVersion), refuse("host " + keep[0]), nil
	}
	items, record, err := t.owing(ctx, x, earlier)
	if err != nil || len(items) == 0 {
		return guard, nil, err
	}
	guard = registry.Absent(t.layout.Record(items[0]))
	if record.Exists {
		guard = registry.Check(t.layout.Record(items[0]), record.Version)
	}
	return guard, refuse("the new owner of items " + items.String()), nil
}

// keepers returns the live instances that have not begun the earlier trigger.
func (t *triggering) keepers() []string {
	return slices.DeleteFunc(slices.Clone(t.waiting), func(id string) bool {
		return !slices.Contains(t.instances, id) && !slices.Contains(t.division.Instances, id) && !slices.Contains(t.leaving, id)
	})
}

// owing returns the items that still have to run in an earlier round because they moved before it began, with
// the record of the first. For a plain trigger any later run of the item counts.
func (t *triggering) owing(ctx context.Context, x *step.Exchange, earlier tree.TriggerArgs) (items tree.Items, first registry.Node, err error) {
	l, d := t.layout, t.division
	if len(d.Owed()) == 0 {
		return nil, first, nil
	}
	var read []registry.Query
	for _, i := range d.Owed() {
		read = append(read, registry.Data(l.Record(i)), registry.Data(l.ItemDisabled(i)))
	}
	n, err := x.Read(ctx, read...)
	if err != nil {
		return nil, first, err
	}
	for _, i := range d.Owed() {
		r := tree.ParseRecord(n.Data(l.Record(i)).Data)
		if earlier.Plain() && r.Begun >= d.OwingSince {
			continue
		}
		if i < d.Total && r.Trigger < d.Round && r.Held == 0 && !n.Data(l.ItemDisabled(i)).Exists {
			if items = append(items, i); len(items) == 1 {
				first = n.Data(l.Record(i))
			}
		}
	}
	return items, first, nil
}

// ops returns the ops that make the triggers of a round. They prove the division: each owner of items gets a
// trigger.
func (t *triggering) ops() []registry.Op {
	l := t.layout
	version := int32(0) // version of a node that is created here
	if t.parent.Exists {
		version = t.parent.Version
	}
	ops := []registry.Op{registry.Check(l.Config(), registry.AnyVersion), registry.Ensure(l.Triggers()), registry.Set(l.Triggers(), t.args.Data(), version)}
	if t.divided.Exists {
		ops = append(ops, registry.Check(l.Assignment(), t.divided.Version))
	}
	mark := []byte(tree.TriggerPlain)
	if !t.args.Plain() {
		mark = []byte(tree.TriggerWithArgs)
	}
	targets := slices.Concat(t.instances, t.leaving)
	for _, id := range t.division.Members {
		if !slices.Contains(targets, id) { // it is gone: the next division notes who owes the round
			targets = append(targets, id)
		}
	}
	for _, id := range t.waiting {
		if !slices.Contains(targets, id) {
			ops = append(ops, registry.Delete(l.Trigger(id), registry.AnyVersion)) // its instance is gone
		}
	}
	for _, id := range targets {
		if slices.Contains(t.waiting, id) {
			ops = append(ops, registry.Check(l.Trigger(id), registry.AnyVersion)) // still not consumed
		} else {
			ops = append(ops, registry.Create(l.Trigger(id), mark))
		}
	}
	return ops
}

// anyEnabled refuses a trigger if the servers of all the job's instances are disabled.
func anyEnabled(ctx context.Context, x *step.Exchange, l tree.Layout, instances []string) error {
	ips := make([]string, len(instances))
	for k, id := range instances {
		ips[k] = tree.ServerOf(id)
	}
	slices.Sort(ips)
	ips = slices.Compact(ips)
	var read []registry.Query
	for _, ip := range ips {
		read = append(read, registry.Data(l.Server(ip)))
	}
	n, err := x.Read(ctx, read...)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(ips, func(ip string) bool { return tree.IsEnabled(n.Data(l.Server(ip)).Data) }) {
		return fmt.Errorf("%w: the job is paused on all servers that have an instance (%s); '%s' lets it run", ErrNothingRuns, words.Some(ips, ", "), words.Command("job resume", l.Job))
	}
	return nil
}

// SetServers enables or disables servers for the job; with no addresses it does so for the whole job: all
// servers, also those that come later. If said.Until is set, [EndDisabled] enables them again at that time. A
// server that already is in that state is not written, unless said.Until differs: the time of the write says
// since when it is so. changed is false if nothing was written. If no server was enabled before, instants that
// came due until now are not caught up.
func SetServers(ctx context.Context, r registry.Center, l tree.Layout, said tree.Word, enable bool, ips ...string) (changed bool, err error) {
	said.Off = !enable
	if enable {
		said.Until = 0
	}
	err = step.Perform(ctx, r, "set servers", func(ctx context.Context, x *step.Exchange) error {
		for {
			s, err := readSwitches(ctx, x, l, ips)
			if err != nil {
				return err
			}
			targets, before, w := ips, s.wanted, s.wanted
			changed = false
			if len(ips) == 0 {
				targets = s.ips
				if word, ok := w.Disabled[tree.WholeJob]; w.DisabledOn(tree.WholeJob, s.byDefault) == enable || (!enable && !word.Same(said) && (word.Off || said.Until != 0)) {
					w.Disabled, changed = w.Disabled.With(tree.WholeJob, said), true
				} else if len(w.Disabled) > 0 { // keep who disabled it first
					w.Disabled = nil
					if ok {
						w.Disabled = w.Disabled.With(tree.WholeJob, word)
					}
				}
			}
			for _, ip := range ips {
				w.Disabled = switched(w, ip, enable, s.byDefault, said)
			}
			ops := append([]registry.Op{registry.Check(l.Config(), registry.AnyVersion)}, wish(l, s.nodes, w)...)
			for _, ip := range targets {
				was, _ := before.Disabled.Of(ip)
				is, _ := w.Disabled.Of(ip)
				switch node := s.server(ip); {
				case !node.Exists:
					ops, changed = append(ops, registry.Create(l.Server(ip), state(enable))), true
				case tree.IsEnabled(node.Data) != enable, !enable && was.Until != is.Until: // the hosts see that it was set
					ops, changed = append(ops, registry.Set(l.Server(ip), state(enable), node.Version)), true
				default:
					ops = append(ops, registry.Check(l.Server(ip), node.Version))
				}
			}
			if enable && changed {
				ops = append(ops, s.noneOwed(nil)...)
			}
			_, err = x.Commit(ctx, ops...)
			if err == nil && len(ips) == 0 {
				return coordination.SwitchLate(ctx, x, l, s.ips)
			}
			if step.ConflictOf(err) == nil {
				return err
			}
		}
	})
	return changed, err
}

// state is what the node of a server holds.
func state(enabled bool) []byte {
	if enabled {
		return []byte(tree.Enabled)
	}
	return []byte(tree.Disabled)
}

// switches is which servers may run a job, as the registry has it.
type switches struct {
	layout    tree.Layout
	nodes     registry.Snapshot
	wanted    tree.Wanted
	byDefault bool     // what the configuration says
	ips       []string // that have a node
}

// readSwitches reads switches; more are servers that may have no node.
func readSwitches(ctx context.Context, x *step.Exchange, l tree.Layout, more []string) (*switches, error) {
	n, err := x.Read(ctx, registry.Data(l.Config()), registry.Children(l.Servers()), registry.Data(l.Wanted()), registry.Data(l.Sibling()))
	if err != nil {
		return nil, err
	}
	if !n.Data(l.Config()).Exists {
		return nil, tree.ErrRemoved
	}
	s := &switches{layout: l, nodes: n, wanted: tree.ParseWanted(n.Data(l.Wanted()).Data), ips: n.Children(l.Servers())}
	if c, _, err := jobconfig.Parse(n.Data(l.Config()).Data); err == nil {
		s.byDefault = c.Disabled
	}
	var read []registry.Query
	for _, ip := range slices.Concat(s.ips, more) {
		read = append(read, registry.Data(l.Server(ip)))
	}
	servers, err := x.Read(ctx, read...)
	if err != nil {
		return nil, err
	}
	maps.Copy(s.nodes, servers)
	return s, nil
}

func (s *switches) server(ip string) registry.Node { return s.nodes.Data(s.layout.Server(ip)) }

// noneOwed returns the ops that mark instants as not to be caught up that came due while no server was enabled;
// none if one is enabled. data is that of the node. A job that never had a host of ours has no nodes of ours.
func (s *switches) noneOwed(data []byte) []registry.Op {
	enabled := func(ip string) bool { return s.server(ip).Exists && tree.IsEnabled(s.server(ip).Data) }
	if slices.ContainsFunc(s.ips, enabled) || !s.nodes.Data(s.layout.Sibling()).Exists {
		return nil
	}
	return []registry.Op{registry.Ensure(s.layout.Enabled()), registry.Set(s.layout.Enabled(), data, registry.AnyVersion)}
}

// EndDisabled enables servers that an operator disabled until a time that is over; now is the registry's clock.
// One call ends one such word, the earliest. Before that it sets ended to the word, and of to what it was for:
// tree.WholeJob, or the address of a server. What the definition or another word disables stays disabled. done
// is false if nothing is over.
func EndDisabled(ctx context.Context, r registry.Center, l tree.Layout, now time.Time, of *string, ended *tree.Word) (done bool, err error) {
	err = step.Perform(ctx, r, "end disabled servers", func(ctx context.Context, x *step.Exchange) error {
		for {
			s, err := readSwitches(ctx, x, l, nil)
			if err != nil {
				return err
			}
			name, word, over := s.wanted.Disabled.FirstOver(now.UnixMilli())
			if done = over; !over {
				return nil
			}
			*of, *ended = name, word
			w := s.wanted
			w.Disabled = w.Disabled.Without(name)
			ops := append([]registry.Op{registry.Check(l.Config(), registry.AnyVersion)}, wish(l, s.nodes, w)...)
			enables := false
			for _, ip := range s.ips {
				said, _ := s.wanted.Disabled.Of(ip)
				if node := s.server(ip); said == word && !tree.IsEnabled(node.Data) && !w.DisabledOn(ip, s.byDefault) {
					ops, enables = append(ops, registry.Set(node.Path, state(true), node.Version)), true
				}
			}
			if enables {
				ops = append(ops, s.noneOwed(tree.EnabledData(word.Until))...)
			}
			_, err = x.Commit(ctx, ops...)
			if err == nil {
				return coordination.SwitchLate(ctx, x, l, s.ips)
			}
			if step.ConflictOf(err) == nil {
				return err
			}
		}
	})
	return done, err
}

// SetItem enables or disables one item. A disabled item keeps its owner and does not run. Its mark holds said,
// and if said.Until is set [EndItem] enables the item at that time. The last write of its node is when it was
// enabled: instants that came due before are not caught up. changed is false if the item already was in that
// state.
func SetItem(ctx context.Context, r registry.Center, l tree.Layout, said tree.Word, item int, enable bool) (changed bool, err error) {
	said.Off = true
	err = step.Perform(ctx, r, "set item", func(ctx context.Context, x *step.Exchange) error {
		for {
			n, err := x.Read(ctx, registry.Data(l.Item(item)), registry.Data(l.ItemDisabled(item)), registry.Data(l.Config()))
			if err != nil {
				return err
			}
			if !n.Data(l.Config()).Exists {
				return tree.ErrRemoved
			}
			if !n.Data(l.Item(item)).Exists {
				return fmt.Errorf("job %s has no item %d", l.Job, item)
			}
			mark := n.Data(l.ItemDisabled(item))
			word, _ := tree.ParseMark(mark.Data)
			var ops []registry.Op
			switch {
			case mark.Exists && enable:
				ops = enableItem(l, item, n)
			case enable, mark.Exists && word.Same(said):
				return nil
			default:
				ops = []registry.Op{step.Put(mark, said.Mark())}
			}
			_, err = x.Commit(ctx, ops...)
			if step.ConflictOf(err) == nil {
				changed = err == nil
				return err
			}
		}
	})
	return changed, err
}

// enableItem are the ops that enable an item as it was read.
func enableItem(l tree.Layout, item int, n registry.Snapshot) []registry.Op {
	mark, node := n.Data(l.ItemDisabled(item)), n.Data(l.Item(item))
	return []registry.Op{registry.Delete(mark.Path, mark.Version), registry.Set(node.Path, node.Data, node.Version)}
}

// EndItem enables an item that an operator disabled until a time that is over; now is the registry's clock.
// Before that it sets ended to the word. done is false if the time is not over.
func EndItem(ctx context.Context, r registry.Center, l tree.Layout, item int, now time.Time, ended *tree.Word) (done bool, err error) {
	err = step.Perform(ctx, r, "end a disabled item", func(ctx context.Context, x *step.Exchange) error {
		for {
			n, err := x.Read(ctx, registry.Data(l.Item(item)), registry.Data(l.ItemDisabled(item)))
			if err != nil {
				return err
			}
			mark := n.Data(l.ItemDisabled(item))
			word, _ := tree.ParseMark(mark.Data)
			if done = mark.Exists && word.Over(now.UnixMilli()); !done {
				return nil
			}
			*ended = word
			_, err = x.Commit(ctx, enableItem(l, item, n)...)
			if step.ConflictOf(err) == nil {
				return err
			}
		}
	})
	return done, err
}

// ErrJavaRuns refuses the shutdown of a Java host that runs items.
var ErrJavaRuns = errors.New("a Java host that is shut down goes on running its items, and others would run them too")

// switched returns the words about disabled servers after a server is enabled or disabled: a server has its own
// word only if it differs from the whole job.
func switched(w tree.Wanted, ip string, enable, byDefault bool, said tree.Word) tree.Words {
	is := func(words tree.Words) bool {
		word, _ := words.Of(ip)
		return (tree.Wanted{Disabled: words}).DisabledOn(ip, byDefault) != enable && (enable || word.Until == said.Until)
	}
	if is(w.Disabled) {
		return w.Disabled
	}
	if rest := w.Disabled.Without(ip); is(rest) {
		return rest
	}
	return w.Disabled.With(ip, said)
}

// Stop makes our instances finish what they run and stay out of the job until [Start] or [Restore]: an
// operator's shutdown. of selects the instances, present and future: tree.WholeJob, the address of a server, or
// tree.ProcessOf an instance. ids are the selected instances that are in the job now. One that has already left
// is no error, and one that joins meanwhile is stopped as well. stopped counts all of them.
func Stop(ctx context.Context, r registry.Center, l tree.Layout, said tree.Word, of string, ids []string) (stopped int, err error) {
	err = step.Perform(ctx, r, "stop", func(ctx context.Context, x *step.Exchange) error {
		for spoken := false; ; {
			n, err := x.Read(ctx, registry.Data(l.Wanted()), registry.Data(l.Sibling()), registry.Data(l.Config()), registry.Children(l.Instances()), registry.Children(l.Details()))
			if err != nil {
				return err
			}
			w := tree.ParseWanted(n.Data(l.Wanted()).Data)
			ours := n.Children(l.Details())
			leaving := slices.DeleteFunc(slices.Clone(n.Children(l.Instances())), func(id string) bool {
				meant := of == tree.WholeJob || of == tree.ServerOf(id) || of == tree.ProcessOf(id)
				return !slices.Contains(ids, id) && !(meant && slices.Contains(ours, id))
			})
			there := n.Data(l.Config()).Exists
			if spoken && (!there || !w.Stopped[of].Off || len(leaving) == 0) {
				return nil
			}
			if !there {
				return tree.ErrRemoved
			}
			ops := append([]registry.Op{registry.Check(l.Config(), registry.AnyVersion)}, wish(l, n, w.Stop(of, said))...)
			for _, id := range leaving {
				ops = append(ops, registry.Delete(l.Instance(id), registry.AnyVersion))
			}
			_, err = x.Commit(ctx, ops...)
			switch {
			case err == nil: // a host that joined after the read and before this write does not know of it
				spoken, stopped = true, stopped+len(leaving)
			case step.ConflictOf(err) == nil:
				return err
			}
		}
	})
	return stopped, err
}

// wish returns the ops that change what operators want of a job from what was read, and mark it in our tree. A
// job that never had a host of ours has no such node and needs none: a host that joins it goes by ElasticJob's
// nodes.
func wish(l tree.Layout, n registry.Snapshot, w tree.Wanted) []registry.Op {
	node, data := n.Data(l.Wanted()), w.Data()
	switch {
	case node.Exists && string(data) == string(node.Data):
		return []registry.Op{registry.Check(node.Path, node.Version)}
	case node.Exists:
		return []registry.Op{registry.Set(node.Path, data, node.Version)}
	case data == nil || !n.Data(l.Sibling()).Exists:
		return nil
	}
	return []registry.Op{registry.Create(node.Path, data)}
}

// ErrNotAway means that the job or instance is neither removed nor stopped.
var ErrNotAway = errors.New("the job is neither removed nor shut down")

// Start lets a stopped instance come back into the job, whether it was stopped alone, with its server or with
// the whole job. It restores a removed job, as [Restore] does. It returns [ErrNotAway] for an instance that may
// be in the job.
func Start(ctx context.Context, r registry.Center, l tree.Layout, said tree.Word, id string) error {
	return comeBack(ctx, r, l, func(w tree.Wanted, _ []string) (tree.Wanted, bool) {
		_, stopped := w.StopOf(id)
		if stopped {
			w = w.StartAgain(id, said)
		}
		return w, stopped
	})
}

// Restore brings back a removed job, and lets all stopped hosts come back. A job that was removed without a
// purge gets the configuration of its last definition; otherwise that of the first host that joins. It returns
// [ErrNotAway] for a job that is neither removed nor stopped.
func Restore(ctx context.Context, r registry.Center, l tree.Layout, said tree.Word) error {
	return comeBack(ctx, r, l, func(w tree.Wanted, leaving []string) (tree.Wanted, bool) {
		stopped := false
		for _, word := range w.Stopped {
			stopped = stopped || word.Off
		}
		if stopped {
			w.Stopped = nil
			for _, id := range leaving { // it does not know yet that it may come back
				w = w.StartAgain(id, said)
			}
		}
		return w, stopped
	})
}

// comeBack brings back a removed job; change says which hosts may come back into it. did is false if no host
// was stopped. leaving are the hosts that are about to leave.
func comeBack(ctx context.Context, r registry.Center, l tree.Layout, change func(w tree.Wanted, leaving []string) (changed tree.Wanted, did bool)) error {
	return step.Perform(ctx, r, "bring back", func(ctx context.Context, x *step.Exchange) error {
		for {
			n, err := x.Read(ctx, registry.Data(l.Wanted()), registry.Data(l.Sibling()), registry.Data(l.Config()), registry.Data(l.Definition()), registry.Data(l.Assignment()), registry.Children(l.Instances()), registry.Children(l.Details()))
			if err != nil {
				return err
			}
			config, definition := n.Data(l.Config()), n.Data(l.Definition())
			w := tree.ParseWanted(n.Data(l.Wanted()).Data)
			var leaving []string
			for _, id := range n.Children(l.Details()) {
				if !slices.Contains(n.Children(l.Instances()), id) {
					leaving = append(leaving, id)
				}
			}
			next, did := change(w, leaving)
			gone := w.Removed != nil || (!config.Exists && definition.Exists) // in the second case another program removed it
			var ops []registry.Op
			switch c, _, err := jobconfig.Parse(definition.Data); {
			case !gone && !did && !config.Exists && w.Definition != "":
				return nil // it was brought back before: the first host that joins creates it
			case !gone && !did && !config.Exists:
				return tree.ErrRemoved
			case !gone && !did:
				return ErrNotAway
			case !gone:
			case config.Exists || !definition.Exists || err != nil || c.Validate() != nil:
				next = next.Back(config.Exists)
				if !config.Exists && definition.Exists { // not needed: the first host brings its own
					ops = append(ops, registry.Delete(definition.Path, definition.Version))
				}
			default:
				next = next.Back(true)
				ops = append(ops, registry.Ensure(l.Root()), registry.Create(l.Config(), definition.Data), registry.Set(definition.Path, definition.Data, definition.Version))
				if n := n.Data(l.Assignment()); n.Exists { // an assignment of the job's earlier life must not count
					ops = append(ops, registry.Set(n.Path, nil, n.Version))
				}
			}
			_, err = x.Commit(ctx, append(wish(l, n, next), ops...)...)
			if step.ConflictOf(err) == nil {
				return err
			}
		}
	})
}

// StopJava removes the instance of a Java host from the job's list, which asks the host to stop. If it runs
// items with persistent running marks (failover is on), it would look like a crashed host: the error is then
// ErrJavaRuns.
func StopJava(ctx context.Context, r registry.Center, l tree.Layout, id string) error {
	return step.Perform(ctx, r, "stop instance", func(ctx context.Context, x *step.Exchange) error {
		n, err := x.Read(ctx, registry.Children(l.Sharding()))
		if err != nil {
			return err
		}
		var items tree.Items
		for _, name := range n.Children(l.Sharding()) {
			if i, ok := tree.ItemNumber(name); ok {
				items = append(items, i)
			}
		}
		slices.Sort(items)
		return stopJava(ctx, x, l, id, items)
	})
}

// stopJava removes the instance of a Java host that runs nothing.
func stopJava(ctx context.Context, x *step.Exchange, l tree.Layout, id string, items tree.Items) error {
	var read []registry.Query
	for _, i := range items {
		read = append(read, registry.Data(l.ItemRunning(i)), registry.Data(l.ItemFailovering(i)), registry.Data(l.ItemInstance(i)))
	}
	for {
		n, err := x.Read(ctx, read...)
		if err != nil {
			return err
		}
		var runs tree.Items
		ops := []registry.Op{registry.Delete(l.Instance(id), registry.AnyVersion)}
		for _, i := range items {
			running, failovering := n.Data(l.ItemRunning(i)), n.Data(l.ItemFailovering(i))
			lasts := func(mark registry.Node) bool { return mark.Exists && !mark.Ephemeral && string(mark.Data) == id }
			if lasts(running) || lasts(failovering) {
				runs = append(runs, i)
			}
			if string(n.Data(l.ItemInstance(i)).Data) == id && !running.Exists && step.Size(ops) < step.Budget {
				ops = append(ops, registry.Absent(l.ItemRunning(i))) // so that it begins none meanwhile
			}
		}
		if len(runs) > 0 {
			return fmt.Errorf("%s runs %s: %w; pause its server (%s), which also ends its leadership, wait until it runs nothing, and shut it down then",
				id, runs, ErrJavaRuns, words.Command("job pause", l.Job, "--server", tree.ServerOf(id)))
		}
		_, err = x.Commit(ctx, ops...)
		if conflict := step.ConflictOf(err); conflict == nil || conflict.Index == 0 {
			return err // on a conflict: it has gone by itself
		}
	}
}

// Remove deletes the job from the registry and records that it is removed: no host recreates it from a
// definition that the job had before. With purge our nodes go as well (offsets, records), except the node that
// records the removal, and the queue of triggers while a host has the job: that host drops the triggers, each
// with the reason, and deletes the node ([AdvanceQueue]). It returns tree.ErrRemoved if there was nothing to
// delete.
func Remove(ctx context.Context, r registry.Center, l tree.Layout, said tree.Word, purge bool) error {
	return step.Perform(ctx, r, "remove", func(ctx context.Context, x *step.Exchange) error {
		left := false // triggers that a host drops
		err := remove(ctx, x, l, func() (ops []registry.Op, roots []string, err error) {
			n, err := x.Read(ctx, registry.Data(l.Wanted()), registry.Data(l.Sibling()), registry.Data(l.Config()), registry.Data(l.Definition()), registry.Data(l.Superseded()), registry.Children(l.Sibling()),
				registry.Children(l.Records()), registry.Data(l.Queue()), registry.Children(l.Instances()))
			if err != nil {
				return nil, nil, err
			}
			roots = []string{l.Root(), l.Backfill()}
			if purge {
				roots = append([]string{l.Root()}, below(l.Sibling(), n.Children(l.Sibling()), l.Wanted())...)
			}
			queued := n.Data(l.Queue())
			left = left || (len(n.Children(l.Instances())) > 0 && len(tree.ParseQueue(queued.Data, queued.Mzxid).Triggers) > 0)
			if purge && left {
				roots = slices.DeleteFunc(roots, func(p string) bool { return p == l.Records() })
				roots = append(roots, below(l.Records(), n.Children(l.Records()), l.Queue())...)
			}
			return tombstone(n, l, said, purge), roots, nil
		})
		if err != nil || !purge || !left {
			return err
		}
		return clearRecords(ctx, x, l)
	})
}

// clearRecords deletes the parent node of the records once it is empty: a host may have dropped the queue
// before the last record was deleted.
func clearRecords(ctx context.Context, x *step.Exchange, l tree.Layout) error {
	n, err := x.Read(ctx, registry.Children(l.Records()))
	if err != nil || !n[registry.Children(l.Records())].Exists || len(n.Children(l.Records())) > 0 {
		return err // the host that drops the queue deletes it
	}
	if _, err = x.Commit(ctx, registry.Delete(l.Records(), registry.AnyVersion)); step.Contested(err) {
		return nil // it has done so, or the job is back
	}
	return err
}

// Forget deletes a job entirely, with what operators have set for it: a host that comes with its definition
// creates it again. It is for namespaces that no host uses any more.
func Forget(ctx context.Context, r registry.Center, l tree.Layout) error {
	return step.Perform(ctx, r, "forget", func(ctx context.Context, x *step.Exchange) error {
		return remove(ctx, x, l, func() ([]registry.Op, []string, error) { return nil, []string{l.Root(), l.Sibling()}, nil })
	})
}

// remove deletes all nodes at some roots and below; the first commit also has ops. look returns them, and is
// called again after a conflict.
func remove(ctx context.Context, x *step.Exchange, l tree.Layout, look func() (ops []registry.Op, roots []string, err error)) error {
	for deleted := false; ; {
		ops, roots, err := look()
		if err != nil {
			return err
		}
		paths, err := subtrees(ctx, x, roots)
		if err != nil {
			return err
		}
		if len(paths) == 0 && deleted {
			return nil
		}
		if len(paths) == 0 {
			return tree.ErrRemoved
		}
		done, err := removeAll(ctx, x, l, ops, paths, &deleted)
		if done || err != nil {
			return err
		}
	}
}

// tombstone returns the ops that record that the job is removed, from what Remove has read; none if that is
// recorded already.
func tombstone(n registry.Snapshot, l tree.Layout, said tree.Word, purge bool) []registry.Op {
	w := tree.ParseWanted(n.Data(l.Wanted()).Data)
	if w.Removed == nil || n.Data(l.Config()).Exists {
		if w.Removed != nil { // a host of the version before has brought it back
			said = *w.Removed
		}
		last := ""
		if definition := n.Data(l.Definition()); definition.Exists {
			last = tree.Digest(definition.Data)
		}
		w = w.Gone(said, last, tree.ParseSuperseded(n.Data(l.Superseded()).Data))
	}
	w.Purged = w.Purged || purge
	return wish(l, n, w)
}

// below returns the paths of a node's children, except one.
func below(path string, names []string, without string) []string {
	var paths []string
	for _, name := range names {
		if p := path + "/" + name; p != without {
			paths = append(paths, p)
		}
	}
	return paths
}

// subtrees returns the paths of all nodes at roots and below, parents first.
func subtrees(ctx context.Context, x *step.Exchange, roots []string) (all []string, err error) {
	for level := roots; len(level) > 0; {
		read := make([]registry.Query, len(level))
		for i, p := range level {
			read[i] = registry.Children(p)
		}
		n, err := x.Read(ctx, read...)
		if err != nil {
			return nil, err
		}
		level = nil
		for _, q := range read {
			if !n[q].Exists {
				continue
			}
			all = append(all, q.Path)
			for _, name := range n[q].Names {
				level = append(level, q.Path+"/"+name)
			}
		}
	}
	return all, nil
}

// removeAll deletes nodes, which are listed parents first, in commits that fit. The configuration goes first,
// with some ops: without it hosts begin nothing and write nothing. done is false if a node has changed: call it
// again. deleted is set once something is deleted.
func removeAll(ctx context.Context, x *step.Exchange, l tree.Layout, first []registry.Op, paths []string, deleted *bool) (done bool, err error) {
	config := l.Config()
	ops := slices.Clone(first)
	if slices.Contains(paths, config) {
		ops = append(ops, registry.Delete(config, registry.AnyVersion))
	}
	for _, p := range slices.Backward(paths) {
		if p != config {
			ops = append(ops, registry.Delete(p, registry.AnyVersion))
		}
	}
	for part := range step.Parts(ops, step.Budget) {
		_, err := x.Commit(ctx, part...)
		if err == nil || step.IsUnknown(err) { // it may have taken effect
			*deleted = true
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
