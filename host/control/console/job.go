package console

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/control/admin"
	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/control/service"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event/operation"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// jobView is one job.
type jobView struct {
	P *page
	*service.JobDetail
	Words string // of the schedule
	// Grid are its items by host, Unowned those of no host, as ranges.
	Grid    []gridRow
	Unowned string
	Matrix  bool // each row has all items, in columns
	// Shown are the items in the table: those that need attention, then the others.
	Shown     []cluster.Item
	Fires     fireTable
	Legend    []badge
	Isolation string
	Bars      []bar
	Longest   time.Duration
	Instants  []instants
	OwnZone   string
	OtherZone string // the zone beside the job's own
	Changes   changeTable
	// Triggers are those that have not begun; nil if there are none.
	Triggers *admin.Triggers
}

// gridRow is one host in the grid of items.
type gridRow struct {
	Host string
	// Instance is the host's id in the registry.
	Instance string
	Silent   bool
	engine.JobStatus
	Cells []gridCell
	// States counts the items by what they are, More those that are not shown.
	States []stateCount
	More   int
}

// stateCount is how many items are in a state.
type stateCount struct {
	badge
	Count int
}

// gridCell is an item on a host; one without a class is on another host.
type gridCell struct {
	Item               int
	Class, Title, Text string
}

// bar is a fire in the strip of fires: X and H in a drawing 1,000 wide and 48 high.
type bar struct {
	history.Fire
	Class, Title string
	X, Y, H      int
	// Begun is in Unix milliseconds, Took and Late are in milliseconds, empty if unknown or not applicable: for
	// the charts.
	BegunMS        int64
	TookMS, LateMS string
}

// instants is an instant in the job's zone and in another one.
type instants struct{ Own, Other, Relative string }

const (
	mostBars    = 100
	barsHigh    = 48
	mostMatrix  = 60
	mostCells   = 500
	mostItems   = 30 // of a job with more than mostMatrix
	mostChanges = 10
	mostFires   = 15
	mostValue   = 400 // bytes of a value
)

func jobPage(ctx context.Context, c *Console, r *http.Request, p *page) (view, error) {
	name := r.PathValue("job")
	p.Live, p.Title = liveAll, name
	d, err := c.o.Service.Job(ctx, name)
	if err != nil {
		return view{}, err
	}
	if err := c.frame(ctx, p, name, "now"); err != nil {
		return view{}, err
	}
	v := jobView{P: p, JobDetail: d, Words: p.scheduleWords(d.Cron, d.Terms)}
	if len(d.Waits) > 0 { // else none waits, and the registry need not be asked
		if v.Triggers, err = c.o.Service.Triggers(ctx, name); err != nil {
			v.Triggers = nil // the page says what hosts know
		}
	}
	f := history.Filter{Jobs: []string{cluster.Literal(name)}, Limit: mostBars}
	fires, err := records(ctx, p, f, c.o.Service.Fires)
	if err := p.without(err); err != nil {
		return view{}, err
	}
	v.Fires = fireTable{P: p, Fires: fires.Records[:min(len(fires.Records), mostFires)]}
	v.Bars, v.Longest = p.bars(fires.Records)
	f.Limit = mostChanges
	changes, err := records(ctx, p, f, c.o.Service.Changes)
	if err := p.without(err); err != nil {
		return view{}, err
	}
	v.Changes = changeTable{P: p, Changes: changes.Records}
	v.Grid, v.Matrix, v.Unowned = p.grid(d)
	v.Shown = byNeed(d.Items)
	if len(v.Shown) > mostMatrix {
		v.Shown = v.Shown[:mostItems]
	}
	v.OwnZone = p.zoneName(d.TimeZone, ownZones(d.Hosts, p.hosts))
	v.Instants, v.OtherZone = p.instants(d.Upcoming, d.TimeZone)
	for _, status := range d.On {
		v.Isolation = cmp.Or(status.Isolation, v.Isolation)
	}
	for _, class := range itemClasses() {
		v.Legend = append(v.Legend, badge{"item-" + class, p.T("item." + class)})
	}
	return view{"job", v}, nil
}

// ownZones returns the default zones of some hosts, by their ids, as far as they report them, sorted.
func ownZones(ids []string, hosts []cluster.Host) []string {
	zones := make(map[string]bool)
	for _, h := range hosts {
		if slices.Contains(ids, h.ID) && h.Report != nil && h.Report.Status.Zone != "" {
			zones[h.Report.Status.Zone] = true
		}
	}
	return slices.Sorted(maps.Keys(zones))
}

// itemClass is the state of an item, the first that is true.
func itemClass(i *engine.ItemStatus) string {
	states := []struct {
		is   bool
		name string
	}{
		{i.Running, "running"}, {i.Queued, "queued"}, {!i.Held.IsZero(), "held"}, {i.Disabled, "paused"},
		{outcomeClass(i.LastOutcome) == "bad", "failed"}, {i.Misfired, "waits"}, {i.LastOutcome != "", "good"},
	}
	for _, s := range states {
		if s.is {
			return s.name
		}
	}
	return "idle"
}

// itemClasses are the states of items; those that need attention come first.
func itemClasses() []string {
	return []string{"held", "failed", "waits", "running", "queued", "paused", "idle", "good"}
}

// Item is the badge of an item's state.
func (p *page) Item(i cluster.Item) badge {
	class := itemClass(&i.ItemStatus)
	return badge{"item-" + class, p.T("item." + class)}
}

// byNeed sorts items: those that need attention come first, if there are many items.
func byNeed(items []cluster.Item) []cluster.Item {
	if len(items) <= mostMatrix {
		return items
	}
	order := itemClasses()
	list := slices.Clone(items)
	slices.SortStableFunc(list, func(a, b cluster.Item) int {
		return cmp.Compare(slices.Index(order, itemClass(&a.ItemStatus)), slices.Index(order, itemClass(&b.ItemStatus)))
	})
	return list
}

// grid has a row for each host of a job, with its items.
func (p *page) grid(d *service.JobDetail) (rows []gridRow, matrix bool, unowned string) {
	matrix = d.ShardingTotalCount <= mostMatrix
	owned := make(map[int]bool)
	left := mostCells
	for _, id := range d.Hosts {
		row := gridRow{Host: id, JobStatus: *d.On[id]}
		at := slices.IndexFunc(p.hosts, func(h cluster.Host) bool { return h.ID == id })
		if at >= 0 {
			row.Silent = p.hosts[at].Silent != ""
			if r := p.hosts[at].Report; r != nil {
				row.Instance = r.Status.Instance
			}
		}
		var mine []cluster.Item
		for _, i := range d.Items {
			if i.Host == id {
				mine = append(mine, i)
				owned[i.Item] = true
			}
		}
		row.States = p.states(mine)
		mine = byNeed(mine)
		shown := min(len(mine), left)
		left -= shown
		row.More = len(mine) - shown
		row.Cells = p.cells(mine[:shown])
		if matrix {
			row.Cells = inColumns(row.Cells, d.ShardingTotalCount)
		}
		rows = append(rows, row)
	}
	var none []int
	for n := range d.ShardingTotalCount {
		if !owned[n] {
			none = append(none, n)
		}
	}
	return rows, matrix, p.Items(none)
}

// states counts items by their states.
func (p *page) states(items []cluster.Item) []stateCount {
	counts := make(map[string]int)
	for _, i := range items {
		counts[itemClass(&i.ItemStatus)]++
	}
	var list []stateCount
	for _, class := range itemClasses() {
		if n := counts[class]; n > 0 {
			list = append(list, stateCount{badge{"item-" + class, p.T("item." + class)}, n})
		}
	}
	return list
}

func (p *page) cells(items []cluster.Item) []gridCell {
	cells := make([]gridCell, len(items))
	for n, i := range items {
		b := p.Item(i)
		title := p.T("item.number", i.Item) + ": " + b.Text
		if i.Parameter != "" {
			title += " (" + i.Parameter + ")"
		}
		if i.LastMessage != "" {
			title += ": " + p.First(i.LastMessage)
		}
		cells[n] = gridCell{i.Item, b.Class, title, strconv.Itoa(i.Item)}
	}
	return cells
}

// inColumns puts each cell into the column of its item.
func inColumns(cells []gridCell, total int) []gridCell {
	all := make([]gridCell, total)
	for n := range all {
		all[n].Item = n
	}
	for _, c := range cells {
		if c.Item < total {
			all[c.Item] = c
		}
	}
	return all
}

// bars draws fires, the newest at the right end.
func (p *page) bars(fires []history.Fire) (bars []bar, longest time.Duration) {
	soFar := func(f *history.Fire) time.Duration {
		if f.Running > 0 {
			return max(0, p.Now.Sub(f.Begun))
		}
		return f.Duration
	}
	for i := range fires {
		longest = max(longest, soFar(&fires[i]))
	}
	for n, f := range slices.Backward(fires) {
		b := bar{Fire: f, Class: "outcome-" + outcomeClass(f.Outcome), X: 1000 - 10*(n+1), H: 3,
			BegunMS: f.Begun.UnixMilli()}
		took := soFar(&f)
		if f.Running > 0 {
			b.Class = "outcome-running"
		} else if took > 0 { // else it is not known
			b.TookMS = strconv.FormatInt(took.Milliseconds(), 10)
		}
		if f.Trigger == 0 {
			b.LateMS = strconv.FormatInt(f.Lag.Milliseconds(), 10)
		}
		if longest > 0 {
			b.H = max(3, int(barsHigh*took/longest))
		}
		b.Y = barsHigh - b.H
		b.Title = p.At(f.Instant).Text + "  " + p.Outcome(f.Result()).Text + "  " + p.Short(took.Truncate(time.Millisecond))
		bars = append(bars, b)
	}
	return bars, longest
}

// itemView is one item of a job, with what it keeps.
type itemView struct {
	P     *page
	Name  string
	Item  int
	State cluster.Item
	Known bool
	Kept  *admin.Kept
	// KeptProblem says why what it keeps cannot be shown.
	KeptProblem string
	KeptSize    int64
	Pairs       []pair
	Runs        runTable
	Acts        []act
	// Editable: the reader may change what the item keeps.
	Editable bool
}

// pair is a key of an item's state and its value.
type pair struct{ Name, Value string }

// Offset is the item's offset as text.
func (v itemView) Offset() string {
	if v.Kept == nil || v.Kept.Offset == nil {
		return ""
	}
	return v.P.Line(string(*v.Kept.Offset))
}

// Typable reports whether a form can show the offset and return it unchanged.
func (v itemView) Typable() bool {
	return v.Kept == nil || v.Kept.Offset == nil || (v.Offset() == string(*v.Kept.Offset) && !strings.Contains(v.Offset(), "\r"))
}

// itemPage reads from the registry what the item keeps. Of the other pages only that of a configuration reads
// the registry.
func itemPage(ctx context.Context, c *Console, r *http.Request, p *page) (view, error) {
	name := r.PathValue("job")
	p.Live = liveAll
	number, err := strconv.Atoi(r.PathValue("item"))
	if err != nil || number < 0 {
		return view{}, &cluster.QueryError{Name: "item", Found: r.PathValue("item"), Expected: "a number from 0"}
	}
	d, err := c.o.Service.Job(ctx, name)
	if err != nil {
		return view{}, err
	}
	if number >= d.ShardingTotalCount {
		return view{}, &service.NotFoundError{What: p.T("item.missing", name, number, d.ShardingTotalCount)}
	}
	if err := c.below(ctx, p, name, "now"); err != nil {
		return view{}, err
	}
	p.Title = p.T("item.title", name, number)
	v := itemView{P: p, Name: name, Item: number, Editable: p.may(operation.Author, name)}
	if at := slices.IndexFunc(d.Items, func(i cluster.Item) bool { return i.Item == number }); at >= 0 {
		v.State, v.Known = d.Items[at], true
	}
	if d.ShardingTotalCount <= mostRead {
		v.ask(ctx, c)
	}
	kept, err := c.o.Service.Kept(ctx, name, number)
	if err != nil {
		v.KeptProblem = err.Error()
	} else if len(kept) == 1 {
		v.Kept, v.KeptSize = &kept[0], int64(kept[0].Size)
		for _, key := range v.Kept.Keys {
			v.Pairs = append(v.Pairs, pair{key, p.First(words.ClipTo(string(v.Kept.Values[key]), mostValue))})
		}
	}
	v.Acts = p.itemActs(name, number, &v.State.ItemStatus)
	runs, err := records(ctx, p, history.Filter{Jobs: []string{cluster.Literal(name)}, Item: &number, Limit: mostFires}, c.o.Service.Runs)
	if err := p.without(err); err != nil {
		return view{}, err
	}
	v.Runs = runTable{P: p, Runs: runs.Records}
	return view{"item", v}, nil
}

// mostRead bounds the items of a job of which the registry is asked for one.
const mostRead = 1000

// ask asks the registry whether the item is disabled: hosts learn that when it is due.
func (v *itemView) ask(ctx context.Context, c *Console) {
	shards, err := c.o.Service.Shards(ctx, v.Name)
	if err != nil {
		return // what the item keeps cannot be read either, and the page says why
	}
	at := slices.IndexFunc(shards.Items, func(i admin.Shard) bool { return i.Item == v.Item })
	if at >= 0 {
		v.State.Disabled, v.State.Said = shards.Items[at].Disabled, shards.Items[at].Said
	}
}

// LastBad reports whether an outcome needs attention.
func (p *page) LastBad(o abi.Outcome) bool { return outcomeClass(o) == "bad" }
