package coordination

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

// What operators kill, and what is held back. A kill is written below the
// sibling tree, one node per host that runs something; the host watches its node
// while it runs anything for long, and deletes it when nothing of it runs any
// more. It names each run by its fence, which no later run has.

// Kill is one operator's wish: an entry of node kill/{id}.
type Kill struct {
	// By says who asked, in words; it may be empty.
	By string `json:"by,omitempty"`
	// At is when, by the clock of the one who asked, Unix milliseconds.
	At int64 `json:"at"`
	// Grace is how long guests may go on after they have been asked to end,
	// milliseconds.
	Grace int64     `json:"graceMs"`
	Runs  []KillRun `json:"runs"`
}

// KillRun is a set of items that were begun by one commit.
type KillRun struct {
	Fence int64 `json:"fence"`
	Items Items `json:"items"`
}

// Reason is why a run was killed, for its record and its events.
func (k Kill) Reason() string {
	who := "an operator killed it"
	if k.By != "" {
		who += " (" + k.By + ")"
	}
	return who + " at " + time.UnixMilli(k.At).UTC().Format(time.RFC3339)
}

// Kills are what operators have asked of one host.
type Kills []Kill

// Of is the newest kill of an item's run.
func (k Kills) Of(item int, fence int64) (Kill, bool) {
	for _, kill := range slices.Backward(k) {
		for _, run := range kill.Runs {
			if run.Fence == fence && run.Items.Contains(item) {
				return kill, true
			}
		}
	}
	return Kill{}, false
}

// parseKills reads a node leniently: what cannot be read asks for nothing.
func parseKills(data []byte) Kills {
	var k Kills
	if json.Unmarshal(data, &k) != nil {
		return nil
	}
	return k
}

func (k Kills) data() []byte {
	b, err := json.Marshal(k)
	if err != nil { // numbers and strings always marshal
		return nil
	}
	return b
}

// with adds a kill; what it names is taken out of the older ones.
func (k Kills) with(kill Kill) Kills {
	var kills Kills
	for _, old := range k {
		var left []KillRun
		for _, run := range old.Runs {
			items := slices.DeleteFunc(slices.Clone(run.Items), func(i int) bool {
				_, again := Kills{kill}.Of(i, run.Fence)
				return again
			})
			if len(items) > 0 {
				left = append(left, KillRun{run.Fence, items})
			}
		}
		if old.Runs = left; len(left) > 0 {
			kills = append(kills, old)
		}
	}
	return append(kills, kill)
}

// KillQuery is the node that a host watches for kills of its runs.
func KillQuery(l Layout, self JobInstance) registry.Query { return registry.Data(l.kill(self.ID)) }

// ReadKills understands the node.
func ReadKills(n registry.Node) Kills { return parseKills(n.Data) }

// DropKills deletes the node once nothing that it names runs any more. One that
// was set since it was read stays, and so does one that is gone.
func DropKills(l Layout, self JobInstance, version int32) Move {
	return Move{Name: "end kill", Commit: []registry.Op{registry.Delete(l.kill(self.ID), version)}, Else: func(*registry.OpError) (Move, error) { return Done() }}
}

// Killing is an operator's wish to end what runs of a job.
type Killing struct {
	Layout Layout
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
}

// KillTarget is one run that is to end.
type KillTarget struct {
	Item int
	Fire Fire
	// Host has begun it: an instance id. Java is set if that is a Java host,
	// which no host can ask; Gone if it has died, so that the run is not taken
	// over.
	Host       string
	Java, Gone bool
	// Fence and Record are of the run when it was asked to end, zero for a
	// Java host.
	Fence  int64
	Record Record
}

// AskKill asks the hosts of a job to end what they run. It may be called again:
// what has been asked for already stays asked for, with the newer grace. out
// lists the runs that are meant, by item. It returns ErrRemoved for a job that
// is not in the registry.
func AskKill(k Killing, out *[]KillTarget) Move {
	l := k.Layout
	read := []registry.Query{registry.Data(l.config()), registry.Children(l.runs()), registry.Children(l.instances()), registry.Children(l.details()), registry.Children(l.sharding())}
	return Move{Name: "kill", Read: read, Then: func(n []registry.Node, _ []registry.Result) (Move, error) {
		if !n[0].Exists {
			return Move{}, ErrRemoved
		}
		g := killing{Killing: k, out: out, lists: n[1].Names, instances: n[2].Names, details: n[3].Names}
		var read []registry.Query
		for _, id := range g.lists {
			read = append(read, registry.Data(l.runsOf(id)))
		}
		if g.java() {
			for _, name := range n[4].Names {
				if i, ok := itemNumber(name); ok && g.means(i, "") {
					g.marks = append(g.marks, i)
					read = append(read, registry.Data(l.itemRunning(i)))
				}
			}
		}
		*out = nil
		if len(read) == 0 {
			return Done()
		}
		return Move{Read: read, Then: g.find}, nil
	}}
}

// killing is a Killing on its way.
type killing struct {
	Killing
	out                       *[]KillTarget
	lists, instances, details []string
	marks                     Items // whose running marks are read
}

// java reports whether a Java host is in the job.
func (g killing) java() bool {
	return slices.ContainsFunc(g.instances, func(id string) bool { return !slices.Contains(g.details, id) })
}

// means reports whether a run of the item on the host is meant; host "" is any.
func (g killing) means(item int, host string) bool {
	return (g.Item < 0 || g.Item == item) && (g.Server == "" || host == "" || serverOf(host) == g.Server)
}

// find lists what runs, and reads the records of it.
func (g killing) find(n []registry.Node, _ []registry.Result) (Move, error) {
	l := g.Layout
	var list []KillTarget
	for k, id := range g.lists {
		runs, err := parseRuns(n[k].Data)
		if err != nil || runs.Java != "" {
			continue // it is recreated, or names no run of ours
		}
		gone := !slices.Contains(g.instances, id) && !slices.Contains(g.details, id)
		for _, i := range runs.Items() {
			fire := runs.fireOf(i)
			if g.means(i, id) && (g.Run == "" || RunID(l.Job, fire, i) == g.Run) {
				list = append(list, KillTarget{Item: i, Fire: fire, Host: id, Gone: gone})
			}
		}
	}
	read := make([]registry.Query, len(list))
	for k, t := range list {
		read[k] = registry.Data(l.record(t.Item))
	}
	for k, i := range g.marks {
		mark := n[len(g.lists)+k]
		if id := string(mark.Data); mark.Exists && slices.Contains(g.instances, id) && !slices.Contains(g.details, id) && g.means(i, id) && g.Run == "" {
			list = append(list, KillTarget{Item: i, Host: id, Java: true})
		}
	}
	if len(read) == 0 {
		return g.ask(list)
	}
	return Move{Read: read, Then: func(n []registry.Node, _ []registry.Result) (Move, error) {
		open := slices.Clone(list[len(n):]) // on Java hosts
		for k, t := range list[:len(n)] {
			t.Record, t.Fence = parseRecord(n[k].Data), n[k].Mzxid
			if t.Record.Owner == t.Host && t.Record.Open() { // else it has ended since
				open = append(open, t)
			}
		}
		slices.SortStableFunc(open, func(a, b KillTarget) int { return a.Item - b.Item })
		return g.ask(open)
	}}, nil
}

// ask reads what the hosts have been asked already, and writes what they are
// asked now. After a conflict, or an answer that was lost, it is done again: the
// runs stay those that were found, and what was written is found.
func (g killing) ask(list []KillTarget) (Move, error) {
	l := g.Layout
	byHost := make(map[string]map[int64]Items)
	for _, t := range list {
		if t.Java {
			continue
		}
		if byHost[t.Host] == nil {
			byHost[t.Host] = make(map[int64]Items)
		}
		byHost[t.Host][t.Fence] = append(byHost[t.Host][t.Fence], t.Item)
	}
	*g.out = list
	if len(byHost) == 0 || g.Look {
		return Done()
	}
	hosts := slices.Sorted(maps.Keys(byHost))
	read := make([]registry.Query, len(hosts))
	for k, id := range hosts {
		read[k] = registry.Data(l.kill(id))
	}
	return Move{Read: read, Then: func(n []registry.Node, _ []registry.Result) (Move, error) {
		var ops []registry.Op
		for k, id := range hosts {
			kill := Kill{By: g.By, At: g.Now.UnixMilli(), Grace: g.Grace.Milliseconds()}
			for _, fence := range slices.Sorted(maps.Keys(byHost[id])) {
				kill.Runs = append(kill.Runs, KillRun{fence, byHost[id][fence]})
			}
			data := parseKills(n[k].Data).with(kill).data()
			if n[k].Exists {
				ops = append(ops, registry.Set(n[k].Path, data, n[k].Version))
			} else {
				ops = append(ops, registry.Create(n[k].Path, data))
			}
		}
		return g.write(list, ops)
	}}, nil
}

// write writes as much as fits a commit, and then the rest.
func (g killing) write(list []KillTarget, ops []registry.Op) (Move, error) {
	for part := range parts(ops, commitBudget) {
		rest := ops[len(part):]
		return Move{Commit: append([]registry.Op{registry.Check(g.Layout.config(), registry.AnyVersion), registry.Ensure(g.Layout.kills())}, part...),
			Then: func([]registry.Node, []registry.Result) (Move, error) { return g.write(list, rest) },
			Else: func(e *registry.OpError) (Move, error) {
				if e.Index == 0 {
					return Move{}, ErrRemoved
				}
				return g.ask(list)
			},
			Unknown: func() (Move, error) { return g.ask(list) },
		}, nil
	}
	return Done()
}

// KillWatch are the nodes that change when one of the runs ends.
func KillWatch(l Layout, targets []KillTarget) []registry.Query {
	var q []registry.Query
	for _, t := range targets {
		if query := registry.Data(l.runsOf(t.Host)); !t.Java && !slices.Contains(q, query) {
			q = append(q, query)
		}
	}
	return q
}

// Unlisted are those of the targets that the snapshot of KillWatch does not show
// to run: they have ended, or run on a Java host.
func Unlisted(l Layout, s registry.Snapshot, targets []KillTarget) []KillTarget {
	lists := make(map[string]Runs)
	var ended []KillTarget
	for _, t := range targets {
		runs, read := lists[t.Host]
		if !read {
			runs, _ = parseRuns(s.Data(l.runsOf(t.Host)).Data) // unreadable: it is recreated
			lists[t.Host] = runs
		}
		if t.Java || !runs.fireOf(t.Item).same(t.Fire) || len(runs.Runs) == 0 {
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
func ReadEndings(l Layout, targets []KillTarget, out *[]Ending) Move {
	read := make([]registry.Query, len(targets))
	for k, t := range targets {
		read[k] = registry.Data(l.record(t.Item))
		if t.Java {
			read[k] = registry.Data(l.itemRunning(t.Item))
		}
	}
	return Move{Name: "read killed runs", Read: read, Then: func(n []registry.Node, _ []registry.Result) (Move, error) {
		*out = make([]Ending, len(targets))
		for k, t := range targets {
			e := &(*out)[k]
			r := parseRecord(n[k].Data)
			switch {
			case t.Java:
				e.Open = n[k].Exists && string(n[k].Data) == t.Host
			case r.Owner == t.Host && r.Begun == t.Record.Begun:
				e.Open, e.Outcome, e.Reason = r.Open(), r.Outcome, r.Reason
			case r.Former.Owner == t.Host && r.Former.Begun == t.Record.Begun:
				e.Outcome = r.Former.Outcome
			}
		}
		return Done()
	}}
}

// Released is what Release has done.
type Released struct {
	// Items were held back and are no more; Missing is set if the job has no
	// such item.
	Items   Items
	Missing bool
}

// Release lets items run again that were held back: one, or with -1 all. What
// was due until now, by the registry's clock (RegistryTime), has no catch-up.
// It returns ErrRemoved for a job that is not in the registry.
func Release(l Layout, item int, now time.Time, out *Released) Move {
	*out = Released{}
	return Move{Name: "release", Read: []registry.Query{registry.Data(l.config()), registry.Children(l.records())}, Then: func(n []registry.Node, _ []registry.Result) (Move, error) {
		if !n[0].Exists {
			return Move{}, ErrRemoved
		}
		var items Items
		for _, name := range n[1].Names {
			if i, ok := itemNumber(name); ok && (item < 0 || i == item) {
				items = append(items, i)
			}
		}
		slices.Sort(items)
		if out.Missing = item >= 0 && len(items) == 0; len(items) == 0 {
			return Done()
		}
		return release(l, items, now, out)
	}}
}

// release writes the records of those items that are held back.
func release(l Layout, items Items, now time.Time, out *Released) (Move, error) {
	read := make([]registry.Query, len(items))
	for k, i := range items {
		read[k] = registry.Data(l.record(i))
	}
	return Move{Read: read, Then: func(n []registry.Node, _ []registry.Result) (Move, error) {
		var ops []registry.Op
		var held Items
		for k, i := range items {
			if r := parseRecord(n[k].Data); r.Held != 0 {
				held = append(held, i)
				ops = append(ops, registry.Set(n[k].Path, r.release(now.UnixMilli()).data(), n[k].Version))
			}
		}
		return releaseEach(l, items, held, ops, now, out)
	}}, nil
}

func releaseEach(l Layout, items, held Items, ops []registry.Op, now time.Time, out *Released) (Move, error) {
	for part := range parts(ops, commitBudget) {
		done := func() {
			for _, i := range held[:len(part)] {
				if !out.Items.Contains(i) {
					out.Items = append(out.Items, i)
					slices.Sort(out.Items)
				}
			}
		}
		again := func() (Move, error) { return release(l, items, now, out) }
		return Move{Commit: part,
			Then: func([]registry.Node, []registry.Result) (Move, error) {
				done()
				return releaseEach(l, items, held[len(part):], ops[len(part):], now, out)
			},
			Else: func(*registry.OpError) (Move, error) { return again() },
			Unknown: func() (Move, error) {
				done() // perhaps; if not, the next look does
				return again()
			}}, nil
	}
	return Done()
}

// killKept is how long a kill is kept that its host does not answer: one of an
// earlier version cannot.
const killKept = time.Hour

// staleKill reports whether no host needs a kill any more.
func staleKill(n registry.Node, lives, listed bool, now time.Time) bool {
	return n.Exists && ((!lives && !listed) || now.Sub(n.Mtime) > killKept)
}
