package coordination_test

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

var (
	modelWhole     = flag.Bool("model.whole", false, "explore the great sizes, which takes hours and gigabytes")
	modelHostCount = flag.Int("model.hosts", 0, "explore this many hosts, 2 or 3, and not the usual sizes")
	modelFires     = flag.Int("model.fires", 1, "with -model.hosts: how many fires, 0 to 2")
	modelSwitches  = flag.Int("model.switches", -1, "with -model.hosts: how often a host that could go on is made to wait for another, -1 for always")
	modelCrashes   = flag.Int("model.crashes", 1, "with -model.hosts: how many hosts die, at any point")
	modelLosses    = flag.Int("model.losses", 1, "with -model.hosts: how many requests or answers are lost")
	modelEdits     = flag.Int("model.edits", 0, "with -model.hosts: how often an operator disables or enables a server, or changes the total count")
	modelSaid      = flag.Int("model.words", 0, "with -model.hosts: how often an operator disables, enables, stops, removes or restores the job")
	modelTears     = flag.Int("model.tears", 0, "with -model.hosts: how often the nodes of a read are of two instants")
	modelFormed    = flag.Bool("model.formed", false, "with -model.hosts: begin when the hosts have joined and divided the items")
	modelTime      = flag.Duration("model.time", 10*time.Second, "how long the model is explored at most, for each size; 0 is to the end")
)

// TestModel explores what hosts can do to each other: two and three of them run
// the real moves of this package on a registry that is a map, one operation at
// a time, in every order that there is. Instants come, hosts die, requests and
// answers of commits are lost, reads are torn, and an operator edits, at any
// point, so often as the size says. Only where a size says so is the number of
// times bounded that a host which could go on is made to wait for another; one
// that waits for news is left for any other without counting.
//
// It covers joining, the election with its latch, the division of three items,
// fires (begin and complete), and recovery with failover on and off. In every
// state: no item runs on two hosts, no completed run begins or ends again, no
// item is begun by one that it is not assigned to, no item is in two
// assignments. When nobody has anything to do: a host leads, each item is
// assigned to a host that lives and is enabled, every item has run for every
// instant that has come, or with failover off was lost with its host, and no
// mark, flag or list is left. Where an operator has said something of the job, each host that came,
// before or after, does as it was said: none is in a job that is stopped or removed, all that did not leave
// it are in one that is not, and the servers of all are as is wanted. And from every state such an end can be reached by
// what hosts do, without a further death, loss or edit: nothing is stuck.
//
// Left out are sessions that end while the host lives, failing reads, restarts,
// drains, offsets, triggers, Java hosts, items of one fire that end one by one,
// and clocks: those are attacked at random, in package host.
//
// It kills the mutant "server that comes new without what is wanted" and the
// mutant "host that comes without what is wanted".
func TestModel(t *testing.T) {
	t.Parallel()
	sizes := modelSizes
	if modelBrief {
		sizes = []modelSize{modelSizes[0], modelSizes[3], modelSizes[5]}
	}
	if *modelWhole {
		sizes = modelGreatSizes
	}
	if *modelHostCount != 0 {
		one := modelSize{hosts: *modelHostCount, fires: *modelFires, switches: *modelSwitches, crashes: *modelCrashes, losses: *modelLosses,
			edits: *modelEdits, words: *modelSaid, tears: *modelTears, formed: *modelFormed}
		if one.hosts < 1 || one.hosts > modelHostsMax || one.fires < 0 || one.fires > len(modelInstants) {
			t.Fatalf("found %d hosts and %d fires, expected 1 to %d and 0 to %d", one.hosts, one.fires, modelHostsMax, len(modelInstants))
		}
		two := one
		two.failover = true
		sizes = []modelSize{one, two}
	}
	for _, size := range sizes {
		t.Run(size.String(), func(t *testing.T) {
			t.Parallel()
			limit := *modelTime
			if testing.Short() {
				limit = min(limit, 3*time.Second)
			}
			ctx := t.Context()
			if limit > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, limit)
				defer cancel()
			}
			m := newModel(size)
			defer m.hosts.close()
			done := m.explore(ctx)
			t.Logf("all of it: %v; %d states, of %d of the registry and %d of the hosts; %d steps between them; %d ends; longest shortest way %d steps",
				done, len(m.worlds), len(m.forest.trees), len(m.hosts.states), len(m.edges), m.ends, m.depth)
			if m.wrong != "" {
				t.Fatalf("%s\n%s", m.wrong, m.story())
			}
			if !done {
				return
			}
			if m.ends == 0 {
				t.Error("there is no end")
			}
			if k, stuck := m.trap(); stuck {
				m.at = k
				t.Errorf("from here no end can be reached\n%s", m.story())
			}
		})
	}
}

const (
	modelItems    = 3
	modelHostsMax = 3
)

// The instants of the model. The items come to be before them.
var modelInstants = []int64{2000, 3000}

// What every test run explores, and what make model does.
var (
	modelSizes = []modelSize{
		{hosts: 2, fires: 1, switches: -1, crashes: 1, losses: 1, failover: true},
		{hosts: 2, fires: 1, switches: -1, crashes: 1, losses: 1},
		{hosts: 2, formed: true, fires: 1, switches: -1, crashes: 1, losses: 1, edits: 1, failover: true},
		{hosts: 2, formed: true, fires: 1, switches: -1, crashes: 1, tears: 1, failover: true},
		{hosts: 3, formed: true, fires: 1, switches: 2, crashes: 1, failover: true},
		{hosts: 2, words: 2},
		{hosts: 2, switches: 1, words: 1},
		{hosts: 2, fires: 1, switches: 1, losses: 1, words: 1, failover: true},
	}
	modelGreatSizes = []modelSize{
		{hosts: 2, fires: 1, switches: -1, crashes: 1, losses: 1, edits: 1, failover: true},
		{hosts: 2, fires: 1, switches: -1, crashes: 1, losses: 1, edits: 1},
		{hosts: 2, formed: true, fires: 2, switches: -1, crashes: 1, losses: 1, edits: 1, failover: true},
		{hosts: 2, formed: true, fires: 2, switches: -1, crashes: 1, losses: 1, edits: 1},
		{hosts: 3, switches: -1},
		{hosts: 3, formed: true, fires: 1, switches: -1, crashes: 1, failover: true},
		{hosts: 3, formed: true, fires: 1, switches: -1, crashes: 1},
		{hosts: 3, formed: true, fires: 1, switches: -1, losses: 1, edits: 1, failover: true},
		{hosts: 3, formed: true, fires: 1, switches: 1, crashes: 1, losses: 1, edits: 1, failover: true},
		{hosts: 3, fires: 1, switches: 2, crashes: 1, failover: true},
		{hosts: 2, switches: -1, words: 2},
		{hosts: 2, fires: 1, switches: 2, crashes: 1, losses: 1, words: 2, failover: true},
		{hosts: 3, switches: 1, words: 2},
	}
)

// modelSize is how much is explored.
type modelSize struct {
	hosts, fires int
	formed       bool // the hosts have joined and divided the items when it begins
	// How often a host that could go on is made to wait for another, -1 for
	// always; how many hosts die, requests or answers are lost, and edits an
	// operator makes.
	switches, crashes, losses, edits int
	// tears is how often the nodes of a read are of two instants.
	tears int
	// words is how often an operator says something of the job.
	words    int
	failover bool
}

func (s modelSize) String() string {
	switches := "all orders"
	if s.switches >= 0 {
		switches = fmt.Sprintf("%d switches", s.switches)
	}
	from := "that come"
	if s.formed {
		from = "formed"
	}
	return fmt.Sprintf("%d hosts %s, %d fires, %d deaths, %d losses, %d edits, %d words, %d tears, %s, failover %v",
		s.hosts, from, s.fires, s.crashes, s.losses, s.edits, s.words, s.tears, switches, s.failover)
}

// modelWorld is a state of all: two are the same if what can follow is.
type modelWorld struct {
	tree  int32
	hosts [modelHostsMax]int32 // of modelHosts.states; dead: -1
	// running is item → 1 + host; closed is a bit for each run, see runBit.
	running [modelItems]int8
	closed  uint8
	at      int8 // the host that acted last, if switches are counted
	// What is left to try.
	switches, instants, crashes, losses, edits, words, tears int8
}

const dead = -1

func runBit(item, instant int) uint8 { return 1 << (instant*modelItems + item) }

// choice is what happens at a point.
type choice struct {
	what byte
	host int8
}

// What can happen to a host.
const (
	goesOn byte = iota
	dies
	losesAnswer  // its commit is applied
	losesRequest // its commit is not
	isEdited     // an operator disables or enables its server; with host -1: changes the total count
	comes        // with host -1: the next instant
	isSaid       // an operator says something: host is what
	reads        // and more: so many of the nodes that it asks for, and the others later
)

// model explores breadth first, so that a story that shows a fault is as short
// as can be.
type model struct {
	size   modelSize
	forest *modelForest
	hosts  *modelHosts
	done   map[doing]did

	worlds []modelWorld
	index  map[modelWorld]int32
	parent []int32
	by     []choice
	level  []int32
	// edges are the worlds that follow worlds[k]: edges[first[k]:first[k+1]].
	edges []int32
	first []int
	ends  int
	depth int32

	at    int // the world that is looked at
	wrong string
}

// doing is a step of one host, and did what it does: it needs no look at the
// other hosts.
type doing struct {
	tree, host int32
	what       byte
}

type did struct {
	tree, host int32
	said       []saying
	enabled    bool
}

func newModel(size modelSize) *model {
	f := newModelForest()
	m := &model{size: size, forest: f, hosts: newModelHosts(f.layout, size.failover), done: make(map[doing]did), index: make(map[modelWorld]int32)}
	w := modelWorld{tree: f.tree([]*modelNode{f.node(modelNode{}), f.node(modelNode{path: modelClock})}, 0).id, at: -1,
		switches: int8(size.switches), instants: int8(size.fires), crashes: int8(size.crashes), losses: int8(size.losses),
		edits: int8(size.edits), words: int8(size.words), tears: int8(size.tears)}
	for n := range modelHostsMax {
		w.hosts[n] = dead
		if n < size.hosts {
			w.hosts[n] = m.hosts.start(n).id
		}
	}
	if size.formed {
		w = m.form(w)
	}
	m.add(w, -1, choice{})
	return m
}

// form lets the hosts do what they do undisturbed, until they rest.
func (m *model) form(w modelWorld) modelWorld {
	for n := 0; n < m.size.hosts; {
		d := m.do(doing{w.tree, w.hosts[n], goesOn})
		if !d.enabled {
			n++
			continue
		}
		w.tree, w.hosts[n] = d.tree, d.host
		n = 0
	}
	return w
}

func (m *model) add(w modelWorld, parent int, by choice) {
	k, known := m.index[w]
	if !known {
		k = int32(len(m.worlds))
		m.index[w] = k
		m.worlds, m.parent, m.by = append(m.worlds, w), append(m.parent, int32(parent)), append(m.by, by)
		level := int32(0)
		if parent >= 0 {
			level = m.level[parent] + 1
		}
		m.level, m.depth = append(m.level, level), max(m.depth, level)
	}
	if parent >= 0 {
		m.edges = append(m.edges, k)
	}
}

// explore reports whether it came to the end.
func (m *model) explore(ctx context.Context) bool {
	for k := 0; k < len(m.worlds) && m.wrong == ""; k++ {
		if k%1024 == 0 && ctx.Err() != nil {
			return false
		}
		m.first = append(m.first, len(m.edges))
		m.at = k
		m.follow(k)
	}
	m.first = append(m.first, len(m.edges))
	return m.wrong == ""
}

// follow finds what can follow a world.
func (m *model) follow(k int) {
	w := m.worlds[k]
	var ready []int
	for n := range m.size.hosts {
		if w.hosts[n] != dead && m.do(doing{w.tree, w.hosts[n], goesOn}).enabled {
			ready = append(ready, n)
		}
	}
	if len(ready) == 0 {
		m.ends++
		m.wrong = m.ending(w)
	}
	for _, n := range ready {
		next := w
		if w.switches >= 0 {
			if next.at = int8(n); w.at >= 0 && int(w.at) != n && slices.Contains(ready, int(w.at)) {
				if w.switches == 0 {
					continue
				}
				next.switches--
			}
		}
		m.act(k, next, choice{goesOn, int8(n)})
		if w.tears > 0 {
			torn := next
			torn.tears--
			for upTo := 1; upTo < len(m.hosts.states[w.hosts[n]].call.queries); upTo++ {
				m.act(k, torn, choice{reads + byte(upTo), int8(n)})
			}
		}
		if w.losses > 0 && m.hosts.states[w.hosts[n]].call.ops != nil {
			next.losses--
			m.act(k, next, choice{losesAnswer, int8(n)})
			m.act(k, next, choice{losesRequest, int8(n)})
		}
	}
	if w.instants > 0 {
		next := w
		next.instants--
		next.tree = m.forest.later(m.forest.trees[w.tree]).id
		m.add(next, k, choice{comes, -1})
	}
	for n := -1; n < m.size.hosts && w.edits > 0; n++ {
		if t := m.forest.edited(m.forest.trees[w.tree], n); t != nil {
			next := w
			next.edits--
			next.tree = t.id
			m.add(next, k, choice{isEdited, int8(n)})
		}
	}
	for word := range modelWords {
		if w.words == 0 {
			break
		}
		if t := m.forest.said(m.forest.trees[w.tree], word); t != nil {
			next := w
			next.words--
			next.tree = t.id
			m.add(next, k, choice{isSaid, int8(word)})
		}
	}
	for n := range m.size.hosts {
		if w.crashes == 0 || w.hosts[n] == dead {
			continue
		}
		next := w
		next.crashes--
		next.hosts[n] = dead
		next.tree = m.forest.without(m.forest.trees[w.tree], n).id
		for i, by := range w.running {
			if int(by) == n+1 {
				next.running[i] = 0
			}
		}
		m.add(next, k, choice{dies, int8(n)})
	}
}

// act lets a host do its step, from w.
func (m *model) act(k int, w modelWorld, c choice) {
	n := int(c.host)
	d := m.do(doing{w.tree, w.hosts[n], c.what})
	w.tree, w.hosts[n] = d.tree, d.host
	wrong := m.forest.trees[d.tree].wrong
	for _, s := range d.said {
		wrong += m.says(&w, n, s)
	}
	wrong += m.hosts.states[d.host].wrong
	m.add(w, k, c)
	if wrong != "" && m.wrong == "" {
		m.wrong, m.at = wrong, int(m.index[w])
	}
}

// says takes into the world what a host says of an item.
func (m *model) says(w *modelWorld, host int, s saying) string {
	run, by := runBit(s.item, s.instant), int(w.running[s.item])
	if s.over >= 0 {
		if m.size.failover {
			return fmt.Sprintf("host %d begins item %d over a run for %d that was not taken over", host+1, s.item, modelInstants[s.over])
		}
		w.closed |= runBit(s.item, s.over) // who deals with the dead host tells of it
	}
	switch s.what {
	case saysBegun:
		w.running[s.item] = int8(host + 1)
		switch {
		case w.closed&run != 0:
			return fmt.Sprintf("host %d begins item %d for %d, which is completed", host+1, s.item, modelInstants[s.instant])
		case by != 0 && by != host+1:
			return fmt.Sprintf("host %d begins item %d, which runs on host %d", host+1, s.item, by)
		case !s.owned:
			return fmt.Sprintf("host %d begins item %d, which is not its own", host+1, s.item)
		}
	case saysLost:
		if w.closed&run != 0 {
			return fmt.Sprintf("host %d declares a run of item %d for %d lost that was completed", host+1, s.item, modelInstants[s.instant])
		}
		w.closed |= run
		if by != 0 {
			return fmt.Sprintf("host %d declares item %d lost, which runs on host %d", host+1, s.item, by)
		}
	case saysBack:
		w.running[s.item] = 0
	case saysCompleted:
		if w.closed&run != 0 {
			return fmt.Sprintf("host %d completes item %d for %d once more", host+1, s.item, modelInstants[s.instant])
		}
		w.closed |= run
		w.running[s.item] = 0
		if by != host+1 {
			return fmt.Sprintf("host %d completes item %d, which runs on host %d", host+1, s.item, by)
		}
	}
	return ""
}

// do carries out a host's operation, or looks up what it did the last time.
func (m *model) do(d doing) did {
	if out, known := m.done[d]; known {
		return out
	}
	tree, host := m.forest.trees[d.tree], m.hosts.states[d.host]
	out := did{tree: d.tree, host: d.host, enabled: true}
	var r reply
	switch c := host.call; {
	case c.ops != nil && d.what == losesRequest:
		r.err = registry.ErrUnknown
	case c.ops != nil:
		var next *modelTree
		next, r.results, out.said, r.err = m.forest.commit(tree, host.host, c.ops)
		if out.tree = next.id; d.what == losesAnswer {
			r = reply{err: registry.ErrUnknown}
		}
	case d.what > reads:
		r.nodes = tree.read(c.queries[:d.what-reads])
	case c.queries != nil:
		r.nodes = tree.read(c.queries)
	default:
		out.enabled = false
		for _, n := range c.idle {
			exists := tree.get(n.query.Path) != nil
			switch {
			case n.gone:
				r.gone = append(r.gone, !exists)
				out.enabled = out.enabled || !exists
			case !out.enabled:
				out.enabled = nodeState(tree.read([]registry.Query{n.query})[0]) != n.was
			}
		}
	}
	if out.enabled {
		out.host = m.hosts.told(host, r).id
	}
	m.done[d] = out
	return out
}

// ending says what must not be when nobody has anything to do.
func (m *model) ending(w modelWorld) string {
	now, root, sibling := m.forest.trees[w.tree], m.forest.layout.Root(), m.forest.layout.Sibling()
	if wrong, over := m.obeyed(w, now); wrong != "" || over {
		return wrong
	}
	alive, enabled := make(map[string]bool), make(map[string]bool)
	for _, id := range w.hosts {
		if id != dead {
			self := modelSelf(m.hosts.states[id].host)
			if m.hosts.states[id].left() {
				continue
			}
			alive[self.ID] = true
			if now.get(root+"/servers/"+self.ServerIP).data != "DISABLED" {
				enabled[self.ID] = true
			}
		}
	}
	if len(enabled) == 0 {
		return "" // there is nobody to do it
	}
	config := now.get(root + "/config")
	total, due := modelItems, modelItems
	if !strings.Contains(config.data, fmt.Sprintf("shardingTotalCount: %d\n", modelItems)) {
		total--
	}
	if config.version > 0 {
		due-- // the last may have been taken away before the instant
	}
	if int(w.words) < m.size.words { // what came meanwhile need not have run
		due = 0
	}
	for i := range due {
		for k := range m.size.fires - int(w.instants) {
			if w.closed&runBit(i, k) == 0 {
				return fmt.Sprintf("all hosts rest, and item %d did not run for %d", i, modelInstants[k])
			}
		}
	}
	if leader := now.get(root + "/leader/election/instance"); leader == nil || !enabled[leader.data] {
		return "all hosts rest, and none that is enabled leads"
	}
	assigned := make(map[int]bool)
	for _, n := range now.nodes {
		tail := n.path[strings.LastIndexByte(n.path, '/')+1:]
		left := false
		switch {
		case strings.HasPrefix(n.path, root+"/sharding/"):
			left = slices.Contains([]string{"running", "failover", "failovering"}, tail)
		case strings.HasPrefix(n.path, root+"/leader/"):
			left = strings.Contains(n.path, "/sharding/") || strings.Contains(n.path, "/items/") || strings.Contains(n.path, "/latch/")
		case strings.HasPrefix(n.path, sibling+"/runs/"):
			left = !alive[tail] || n.data != ""
		case strings.HasPrefix(n.path, sibling+"/assignment/"):
			items, err := tree.ParseItems(n.data)
			left = !alive[tail] || err != nil || len(items) > 0 && !enabled[tail]
			for _, i := range items {
				assigned[i] = true
			}
		case n.path == sibling+"/members":
			left = len(strings.Fields(n.data)) != len(alive)
		}
		if left {
			return fmt.Sprintf("all hosts rest, and %s is left (%s)", n.path, n.data)
		}
	}
	for i := range total {
		if !assigned[i] {
			return fmt.Sprintf("all hosts rest, and item %d is nobody's", i)
		}
	}
	return ""
}

// obeyed says which host does not do what is wanted of the job; over is set if the job is not to run.
func (m *model) obeyed(w modelWorld, now *modelTree) (wrong string, over bool) {
	l := m.forest.layout
	wanted := tree.Wanted{}
	if n := now.get(l.Wanted()); n != nil {
		wanted = tree.ParseWanted([]byte(n.data))
	}
	there := now.get(l.Config()) != nil
	if there == (wanted.Removed != nil) {
		return fmt.Sprintf("all hosts rest, the job is there: %v, and wanted is %+v", there, wanted), false
	}
	out := wanted.Removed != nil || wanted.Stopped[tree.WholeJob].Off
	hosts := 0
	for _, id := range w.hosts {
		if id == dead {
			continue
		}
		host := m.hosts.states[id]
		self := modelSelf(host.host)
		in := now.get(l.Instance(self.ID)) != nil
		if in == (out || host.left()) {
			return fmt.Sprintf("all hosts rest, host %d is in the job: %v, and wanted is %+v", host.host+1, in, wanted), false
		}
		if !in {
			continue
		}
		hosts++
		server := now.get(l.Server(self.ServerIP))
		disabled := wanted.DisabledOn(self.ServerIP, false)
		if m.size.edits == 0 && (server == nil || (server.data == "DISABLED") != disabled) {
			return fmt.Sprintf("all hosts rest, and the server of host %d is not as wanted: %+v", host.host+1, wanted), false
		}
	}
	return "", hosts == 0
}

// trap finds a world from which no end can be reached by what hosts do.
func (m *model) trap() (world int, found bool) {
	out := make([]bool, len(m.worlds))
	for k, w := range m.worlds {
		out[k] = m.rests(w)
	}
	for again := true; again; {
		again = false
		for k := len(m.worlds) - 1; k >= 0; k-- {
			if out[k] {
				continue
			}
			for _, n := range m.edges[m.first[k]:m.first[k+1]] {
				if out[n] && m.worlds[n].left() == m.worlds[k].left() {
					out[k], again = true, true
					break
				}
			}
		}
	}
	k := slices.Index(out, false)
	return k, k >= 0
}

// left is how much of what can be done to hosts is left to try.
func (w modelWorld) left() [6]int8 {
	return [6]int8{w.instants, w.crashes, w.losses, w.edits, w.words, w.tears}
}

// rests reports that nobody has anything to do.
func (m *model) rests(w modelWorld) bool {
	return !slices.ContainsFunc(w.hosts[:], func(id int32) bool { return id != dead && m.do(doing{w.tree, id, goesOn}).enabled })
}

// story tells how the world that is looked at came to be.
func (m *model) story() string {
	var way []int
	for k := m.at; k > 0; k = int(m.parent[k]) {
		way = append(way, k)
	}
	var b strings.Builder
	for _, k := range slices.Backward(way) {
		before, by := m.worlds[m.parent[k]], m.by[k]
		switch {
		case by.what == dies:
			fmt.Fprintf(&b, "%d dies\n", by.host+1)
			continue
		case by.what == comes:
			b.WriteString("an instant comes\n")
			continue
		case by.what == isSaid:
			fmt.Fprintf(&b, "an operator says: %s\n", [...]string{"disable", "enable", "stop", "remove", "restore"}[by.host])
			continue
		case by.what == isEdited && by.host < 0:
			b.WriteString("an operator changes the total count\n")
			continue
		case by.what == isEdited:
			fmt.Fprintf(&b, "an operator disables or enables the server of %d\n", by.host+1)
			continue
		}
		host := m.hosts.states[before.hosts[by.host]]
		if by.what > reads {
			fmt.Fprintf(&b, "%d reads only up to %s\n", by.host+1, host.call.queries[by.what-reads-1].Path)
		}
		if host.call.ops == nil {
			continue
		}
		_, _, _, err := m.forest.commit(m.forest.trees[before.tree], host.host, host.call.ops)
		what := ""
		switch {
		case by.what == losesAnswer:
			what = ": the answer is lost"
		case by.what == losesRequest:
			what = ": the request is lost"
		case err != nil:
			what = ": " + err.Error()
		}
		fmt.Fprintf(&b, "%d commits %s%s\n", by.host+1, describeOps(host.call.ops), what)
	}
	return b.String()
}
