package history

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/event"
)

// Lost, Held and Unknown are outcomes of runs that no guest ended, besides those of abi: the
// host died while failover was off, or one host too many died in runs of the item, or the
// host is gone and the store does not know what became of the run.
const (
	Lost    abi.Outcome = tree.OutcomeLost
	Held    abi.Outcome = tree.OutcomeHeld
	Unknown abi.Outcome = "UNKNOWN"
)

// apart is how far the instants of two fires of one trigger round may be apart. Hosts
// see a round one after the other; a registry that was made again counts its rounds
// from the beginning.
const apart = time.Hour

// FireKey identifies a fire: by its instant, or by the number of its trigger round.
// It is comparable.
type FireKey struct {
	Job     string
	Instant int64 // Unix milliseconds; 0 if Trigger is set
	Trigger int64
}

// KeyOf is the key of the fire that an event is about.
func KeyOf(e event.Event) FireKey { return fireKey(e.Job, e.Instant, e.Trigger) }

func fireKey(job string, instant time.Time, trigger int64) FireKey {
	if trigger != 0 {
		return FireKey{Job: job, Trigger: trigger}
	}
	return FireKey{Job: job, Instant: instant.UnixMilli()}
}

// String is the fire's name: JOB/2026-03-01T03:00:00.000Z, or JOB/t57 for a trigger
// round. The ids of its runs begin with it, and a slash.
func (k FireKey) String() string {
	if k.Trigger != 0 {
		return k.Job + "/t" + strconv.FormatInt(k.Trigger, 10)
	}
	return k.Job + "/" + time.UnixMilli(k.Instant).UTC().Format("2006-01-02T15:04:05.000Z")
}

// Key is the key of the run's fire.
func (r *Run) Key() FireKey { return fireKey(r.Job, r.Instant, r.Trigger) }

// Key is the key of the fire.
func (f *Fire) Key() FireKey { return fireKey(f.Job, f.Instant, f.Trigger) }

// Key is the key of the part's fire.
func (p *Part) Key() FireKey { return fireKey(p.Job, p.Instant, p.Trigger) }

// At is when the run began first that is known, where it stands in lists. It changes only if the host
// that the run was taken over from reports late.
func (r *Run) At() time.Time {
	if r.First.IsZero() {
		return r.Begun
	}
	return r.First
}

// Took is how long the run took on Host, over all its attempts there; 0 while it runs, and if that is
// not known.
func (r *Run) Took() time.Duration {
	switch {
	case r.Ended.IsZero() || r.GivenUp():
		return 0
	case r.Attempt <= 1:
		return r.Duration
	}
	return max(r.Ended.Sub(r.Begun), r.Duration)
}

// GivenUp reports whether the run ended with its host, and not because its guest did.
func (r *Run) GivenUp() bool { return slices.Contains([]abi.Outcome{Unknown, Lost, Held}, r.Outcome) }

// Failed reports whether the run ended, and failed. See [abi.Outcome.Failed].
func (r *Run) Failed() bool { return !r.Ended.IsZero() && r.Outcome.Failed() }

// AboutRun reports whether an event makes or changes a run.
func AboutRun(e event.Event) bool {
	if e.RunID == "" || e.Item == nil {
		return false
	}
	switch e.Kind {
	case event.ItemStarted, event.ItemEnded, event.ItemCompleted, event.ItemHeld:
		return true
	case event.ItemSkipped: // a run that was begun, and is given up
		return e.Outcome != ""
	}
	return false
}

// Reused reports whether the event, which has the run's id, is about another run: that
// of a trigger round whose number was counted twice.
func (r *Run) Reused(e event.Event) bool {
	return e.Trigger != 0 && e.Instant.Sub(r.Instant).Abs() > apart
}

// Apply changes the run by an event for which AboutRun holds. The zero Run is one of
// which nothing is known. Events of a host come in their order; those of several hosts
// in any order: the greater fence is the newer one.
func (r *Run) Apply(e event.Event) {
	if r.ID == "" {
		*r = Run{ID: e.RunID, Job: e.Job, Item: *e.Item, Instant: e.Instant, Trigger: e.Trigger, Source: e.Source, Host: cmp.Or(e.Other, e.Host), Begun: e.Time}
	}
	if r.Supersedes(e) {
		if e.Kind == event.ItemStarted && e.Time.Before(r.At()) {
			r.First = e.Time
			r.setLag(e)
		}
		return
	}
	switch e.Kind {
	case event.ItemStarted:
		r.start(e)
	case event.ItemEnded:
		if e.Again {
			r.pause(e)
		} else {
			r.end(e)
		}
		r.Attempt, r.Digest, r.Signer, r.Duration = e.Attempt, e.Digest, e.Signer, e.Duration
		r.Memory, r.Batches, r.Records, r.DroppedLines, r.Outside = e.Memory, e.Batches, e.Records, e.DroppedLines, e.Outside
	case event.ItemCompleted:
		if !r.known() { // the store has not all events
			r.end(e)
		}
		r.Completed = true
		r.Message = cmp.Or(r.Message, e.Reason)
	case event.ItemSkipped:
		r.skip(e)
	case event.ItemHeld: // as another host says of the one that died
		e.Host = r.Host
		r.end(e)
	}
}

// gaveUp reports whether another host has given the run up since an event of its own host, which may come late.
func (r *Run) gaveUp(e event.Event) bool {
	return (r.Outcome == Lost || r.Outcome == Held) && (r.Fence == 0 || e.Fence == r.Fence) && e.Time.Before(r.Ended)
}

func (r *Run) start(e event.Event) {
	was, gaveUp := *r, r.gaveUp(e)
	if e.Host != r.Host || e.Fence != r.Fence {
		again := r.Fence != 0
		*r = Run{ID: r.ID, Job: r.Job, Item: r.Item, Instant: r.Instant, Trigger: r.Trigger, Source: e.Source, Lag: r.Lag, Begun: r.At()}
		if again && e.Time.After(r.Begun) {
			r.First, r.Begun = r.Begun, e.Time
		}
	}
	r.setLag(e)
	r.Host, r.Fence, r.Attempt, r.Digest, r.Signer = e.Host, e.Fence, e.Attempt, e.Digest, e.Signer
	r.Ended, r.Outcome, r.Message, r.Completed, r.Duration = time.Time{}, "", "", false, 0
	if gaveUp {
		r.Ended, r.Outcome, r.Message = was.Ended, was.Outcome, was.Message
	}
}

func (r *Run) setLag(e event.Event) {
	if e.Trigger == 0 {
		r.Lag = max(r.At().Sub(e.Instant), 0)
	}
}

// Supersedes reports whether the event is of a host that the run was taken over from: it changes
// at most when the run began first.
func (r *Run) Supersedes(e event.Event) bool { return e.Fence != 0 && e.Fence < r.Fence }

func (r *Run) end(e event.Event) {
	r.Host, r.Ended, r.Outcome, r.Message = e.Host, e.Time, e.Outcome, e.Reason
	r.Fence = max(r.Fence, e.Fence)
}

// pause applies the end of an attempt after which another one comes.
func (r *Run) pause(e event.Event) {
	if r.gaveUp(e) {
		return
	}
	r.Message = strings.TrimSuffix(fmt.Sprintf("attempt %d ended %s, and another one comes: %s", e.Attempt, e.Outcome, e.Reason), ": ")
	r.Host, r.Ended, r.Outcome, r.Fence = e.Host, time.Time{}, "", max(r.Fence, e.Fence)
}

// skip applies what became of a run that has no completion.
func (r *Run) skip(e event.Event) {
	// With a fence its own host speaks, after the end; without one another host does, of one that died:
	// which that was stays.
	if !r.known() {
		r.Ended, r.Outcome, r.Message = e.Time, e.Outcome, e.Reason
	} else if e.Fence != 0 {
		r.Message = cmp.Or(r.Message, e.Reason)
	}
}

// Part is what one host has of a fire.
type Part struct {
	Job     string
	Instant time.Time
	Trigger int64
	Source  abi.Source
	Host    string
	Items   []int
	Total   int
	Begun   time.Time
	Ended   time.Time // zero while an item runs
	Lag     time.Duration
	// Outcome is that of the part, which a store may replace by the worst of its runs, with
	// that run's message. It is empty while an item runs.
	Outcome abi.Outcome
	Message string
	// Succeeded and Failed count the items that ended, if a store counts them.
	Succeeded, Failed int
	// open are items of begins without an end: a host that takes items over begins a fire again. worst is of the ends.
	open  []int
	worst abi.Outcome
}

// AboutPart reports whether an event makes or changes a host's part of a fire.
func AboutPart(e event.Event) bool { return e.Kind == event.FireStarted || e.Kind == event.FireEnded }

// Reused reports whether both parts, whose keys are the same, are of two fires: see [Run.Reused].
func (p *Part) Reused(q *Part) bool {
	return p.Trigger != 0 && p.Instant.Sub(q.Instant).Abs() > apart
}

// Apply changes the part by an event for which AboutPart holds. The zero Part is one of
// which nothing is known. A host may begin further items of a fire: those of a host
// that died, or those that were late.
func (p *Part) Apply(e event.Event) {
	if p.Host == "" {
		*p = Part{Job: e.Job, Instant: e.Instant, Trigger: e.Trigger, Source: e.Source, Host: e.Host, Begun: e.Time, Lag: e.Lag}
	}
	for _, item := range e.Items {
		if i, found := slices.BinarySearch(p.Items, item); !found {
			p.Items = slices.Insert(p.Items, i, item)
		}
	}
	if e.Kind == event.FireStarted {
		p.Total = max(p.Total, e.Total)
		p.Ended, p.Outcome = time.Time{}, ""
		p.open = append(p.open, e.Items...) // the event may come again
		return
	}
	if tree.Worse(string(e.Outcome), string(p.worst)) {
		p.worst = e.Outcome
	}
	ended := make(map[int]bool)
	for _, item := range e.Items {
		ended[item] = true
	}
	p.open = slices.DeleteFunc(p.open, func(item int) bool { return ended[item] })
	if len(p.open) == 0 {
		p.Ended, p.Outcome = e.Time, p.worst
	}
}

// Sum is the fire that the hosts' parts and the runs make. There is at least one part
// or run. Without runs, which a store may have forgotten, items ended as the parts did;
// with them, items without one wait for a worker of a part that has not ended. It sorts runs by item.
func Sum(parts []Part, runs []Run) Fire {
	slices.SortFunc(runs, func(a, b Run) int { return cmp.Compare(a.Item, b.Item) })
	var f Fire
	counted := make(map[int]bool)
	for i := range runs {
		f.addRun(&runs[i])
		counted[runs[i].Item] = true
	}
	for i := range parts {
		f.addPart(&parts[i])
		switch {
		case len(runs) == 0:
			f.addItems(&parts[i])
		case parts[i].Ended.IsZero():
			for _, item := range parts[i].Items {
				if !counted[item] {
					counted[item] = true
					f.Running++
					f.Queued++
				}
			}
		}
	}
	slices.Sort(f.Hosts)
	f.Hosts = slices.Compact(f.Hosts)
	slices.Sort(f.Items)
	f.Items = slices.Compact(f.Items)
	f.end()
	return f
}

// end says when the fire ended, if it did, and how long it took.
func (f *Fire) end() {
	f.Duration = 0
	if f.Running > 0 {
		f.Ended = time.Time{}
	} else if !f.Ended.IsZero() && f.Unknown == 0 {
		f.Duration = f.Ended.Sub(f.Begun)
	}
}

// Recount counts the items by their runs, all that are known on whatever hosts.
func (f *Fire) Recount(runs []Run) {
	f.Succeeded, f.Failed, f.Cancelled, f.Running, f.Queued, f.Unknown = 0, 0, 0, 0, 0, 0
	f.Ended, f.Outcome, f.Message = time.Time{}, "", ""
	slices.SortFunc(runs, func(a, b Run) int { return cmp.Compare(a.Item, b.Item) })
	for i := range runs {
		f.count(1, runs[i].Ended, runs[i].Outcome, runs[i].Message)
		if runs[i].ID == "" { // it has not begun
			f.Queued++
		}
	}
	f.end()
}

// Result is the fire's outcome, empty while an item runs.
func (f *Fire) Result() abi.Outcome {
	if f.Running > 0 {
		return ""
	}
	return f.Outcome
}

// Counted is how many items are counted.
func (f *Fire) Counted() int { return f.Succeeded + f.Failed + f.Cancelled + f.Running + f.Unknown }

// Lacks reports whether the fire has items of which nothing is known: that they began, or what became of
// them. They did not begin, or they did on hosts whose histories are missing.
func (f *Fire) Lacks() bool { return len(f.Items) < f.Total }

// Has reports whether a run is of the fire.
func (f *Fire) Has(r *Run) bool {
	return f.Key() == r.Key() && f.Instant.Sub(r.Instant).Abs() <= apart
}

// begin takes over what names the fire: the first to begin says what made it.
func (f *Fire) begin(job string, instant time.Time, trigger int64, source abi.Source, begun time.Time, lag time.Duration) {
	if f.Begun.IsZero() || begun.Before(f.Begun) {
		f.Job, f.Instant, f.Trigger, f.Source, f.Begun, f.Lag = job, instant, trigger, source, begun, lag
	}
}

func (f *Fire) addPart(p *Part) {
	f.begin(p.Job, p.Instant, p.Trigger, p.Source, p.Begun, p.Lag)
	f.Hosts = append(f.Hosts, p.Host)
	f.Items = append(f.Items, p.Items...)
	f.Total = max(f.Total, p.Total)
}

// addItems counts the items of a part of which no runs are known.
func (f *Fire) addItems(p *Part) {
	if p.Ended.IsZero() || p.Succeeded+p.Failed == 0 {
		f.count(len(p.Items), p.Ended, p.Outcome, p.Message)
		return
	}
	f.count(0, p.Ended, p.Outcome, p.Message)
	f.Succeeded, f.Failed = f.Succeeded+p.Succeeded, f.Failed+p.Failed
}

func (f *Fire) addRun(r *Run) {
	f.begin(r.Job, r.Instant, r.Trigger, r.Source, r.At(), r.Lag)
	f.Hosts = append(f.Hosts, r.Host)
	f.Items = append(f.Items, r.Item)
	f.count(1, r.Ended, r.Outcome, r.Message)
}

func (f *Fire) count(items int, ended time.Time, outcome abi.Outcome, message string) {
	switch {
	case ended.IsZero():
		f.Running += items
		return
	case outcome == abi.OutcomeOK:
		f.Succeeded += items
	case outcome == abi.OutcomeCancelled:
		f.Cancelled += items
	case outcome == Unknown:
		f.Unknown += items
	default:
		f.Failed += items
	}
	if ended.After(f.Ended) {
		f.Ended = ended
	}
	if tree.Worse(string(outcome), string(f.Outcome)) {
		f.Outcome, f.Message = outcome, message
	}
}

// Join puts together what two stores have of one fire, the parts of different hosts. Of
// an item that both have, it takes the host to have gone on whose part began later; for certain
// that is known by runs, see [Fire.Recount]. What a failover began came later than what
// was due, whatever the clocks of the two hosts say.
func Join(a, b Fire) Fire {
	begun := a.Begun
	if b.Begun.Before(begun) {
		begun = b.Begun
	}
	tookA, tookB := a.Source == abi.SourceFailover, b.Source == abi.SourceFailover
	if (tookA && !tookB) || (tookA == tookB && b.Begun.Before(a.Begun)) {
		a, b = b, a
	}
	taken := 0
	for _, item := range b.Items {
		if slices.Contains(a.Items, item) {
			taken++
		}
	}
	f := a
	f.Begun = begun
	f.Running = max(a.Running-taken, 0) + b.Running
	f.Queued = min(a.Queued+b.Queued, f.Running)
	f.Unknown = max(a.Unknown-taken, 0) + b.Unknown
	if a.Unknown > 0 && a.Unknown <= taken { // when the host was found to be over, b went on
		a.Ended = b.Ended
		if a.Outcome == Unknown {
			f.Outcome, f.Message = "", ""
			if a.Cancelled > 0 {
				f.Outcome = abi.OutcomeCancelled
			} else if a.Succeeded > 0 {
				f.Outcome = abi.OutcomeOK
			}
		}
	}
	f.Succeeded, f.Failed, f.Cancelled = a.Succeeded+b.Succeeded, a.Failed+b.Failed, a.Cancelled+b.Cancelled
	f.Total = max(a.Total, b.Total)
	f.Hosts = slices.Compact(slices.Sorted(slices.Values(slices.Concat(a.Hosts, b.Hosts))))
	f.Items = slices.Compact(slices.Sorted(slices.Values(slices.Concat(a.Items, b.Items))))
	if tree.Worse(string(b.Outcome), string(f.Outcome)) {
		f.Outcome, f.Message = b.Outcome, b.Message
	}
	f.Ended = later(a.Ended, b.Ended)
	f.end()
	return f
}

// Same reports whether two records are of one fire. Numbers of trigger rounds come again
// in a registry that was made again.
func (f *Fire) Same(g *Fire) bool {
	return f.Key() == g.Key() && f.Instant.Sub(g.Instant).Abs() <= apart
}
