package chaos

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/wasmjob/wasmjob/host/history/verify"
)

// evidence is what the guests said. It is safe for concurrent use.
type evidence struct {
	mu      sync.Mutex
	items   map[itemID]*testimony
	pauses  []interval // of processes that were halted
	oddment []string   // lines of stderr that are no lines of a log
	lines   int
}

// itemID is an item of a job.
type itemID struct {
	job  string
	item int
}

func (i itemID) String() string { return i.job + "/" + strconv.Itoa(i.item) }

// testimony is all that was said of an item, by process and fence.
type testimony struct{ stints []*stint }

// stint is one guest's work under one fence.
type stint struct {
	id       itemID
	host     string
	pid      int
	instance string
	run      string
	fence    int64
	begun    time.Time
	said     []word
	over     bool // it said that it is
	module   string
}

// word is one line of a guest. at is its own clock.
type word struct {
	at   time.Time
	what string
	n    int64 // the number that it gave, if any
}

// interval is a time in which a process could not do anything.
type interval struct {
	pid      int
	from, to time.Time
}

func newEvidence() *evidence { return &evidence{items: make(map[itemID]*testimony)} }

func (e *evidence) strange(host, line string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.oddment) < 200 {
		e.oddment = append(e.oddment, host+": "+strings.TrimSpace(line))
	}
}

// add takes a line of a guest that reached us at the time arrived.
func (e *evidence) add(h *node, pid int, arrived time.Time, l logLine) {
	id, ok := itemOf(l.Attrs["run"])
	fence, ferr := strconv.ParseInt(l.Attrs["fence"], 10, 64)
	micros, terr := strconv.ParseInt(l.Attrs["at"], 10, 64)
	if !ok || ferr != nil || terr != nil {
		e.strange(h.name, fmt.Sprintf("a guest says %q with %v", l.Message, l.Attrs))
		return
	}
	w := word{at: time.UnixMicro(micros), what: l.Message}
	if w.at.After(arrived) { // it cannot have been: it was heard before
		w.at = arrived
	}
	for _, key := range []string{"n", "code", "why", "status", "attempt"} {
		if text, has := l.Attrs[key]; has {
			w.n, _ = strconv.ParseInt(text, 10, 64) // the guest writes numbers only
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lines++
	t := e.items[id]
	if t == nil {
		t = &testimony{}
		e.items[id] = t
	}
	var s *stint
	for _, other := range slices.Backward(t.stints) {
		if other.pid == pid && other.fence == fence {
			s = other
			break
		}
	}
	if s == nil {
		_, instance, _ := strings.Cut(l.Attrs["task"], "@-@READY@-@")
		s = &stint{id: id, host: h.name, pid: pid, instance: instance, run: l.Attrs["run"], fence: fence, begun: w.at, module: l.Attrs["module"]}
		t.stints = append(t.stints, s)
	}
	s.said = append(s.said, w)
	s.over = final(w.what)
}

// itemOf reads JOB/INSTANT/ITEM.
func itemOf(run string) (itemID, bool) {
	first, last := strings.IndexByte(run, '/'), strings.LastIndexByte(run, '/')
	if first <= 0 || last <= first {
		return itemID{}, false
	}
	n, err := strconv.Atoi(run[last+1:])
	return itemID{run[:first], n}, err == nil
}

// halted notes that a process was stopped for a while.
func (e *evidence) halted(pid int, from, to time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.pauses = append(e.pauses, interval{pid, from, to})
}

// begins are the times at which the item began, in order.
func (e *evidence) begins(id itemID) []time.Time { return e.beginsOn(id, "") }

// beginsOn are the times at which the item began on a host, in order; host "" is any.
func (e *evidence) beginsOn(id itemID, host string) []time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	var times []time.Time
	if t := e.items[id]; t != nil {
		for _, s := range t.stints {
			if host == "" || s.host == host {
				times = append(times, s.begun)
			}
		}
	}
	slices.SortFunc(times, time.Time.Compare)
	return times
}

// open are the stints of a process that had begun and said nothing of an end.
// There may be too many among them: a guest that traps says nothing either.
func (e *evidence) open(pid int) []*stint {
	e.mu.Lock()
	defer e.mu.Unlock()
	var list []*stint
	for _, id := range e.ids() {
		for _, s := range e.items[id].stints {
			if s.pid == pid && !s.over {
				list = append(list, s)
			}
		}
	}
	return list
}

// again is when the run was begun by anybody under a greater fence, first.
func (e *evidence) again(s *stint) (time.Time, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var first time.Time
	for _, other := range e.items[s.id].stints {
		if other.run == s.run && other.fence > s.fence && (first.IsZero() || other.begun.Before(first)) {
			first = other.begun
		}
	}
	return first, !first.IsZero()
}

func (e *evidence) ids() []itemID {
	var ids []itemID
	for id := range e.items {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b itemID) int {
		if a.job != b.job {
			return strings.Compare(a.job, b.job)
		}
		return a.item - b.item
	})
	return ids
}

// said counts the words of a kind within a time, by item.
func (e *evidence) said(what string, from, to time.Time) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := 0
	for _, t := range e.items {
		for _, s := range t.stints {
			for _, w := range s.said {
				if w.what == what && !w.at.Before(from) && !w.at.After(to) {
					n++
				}
			}
		}
	}
	return n
}

// most is the greatest number that was said with a word of the item.
func (e *evidence) most(id itemID, what string) (most int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if t := e.items[id]; t != nil {
		for _, s := range t.stints {
			for _, w := range s.said {
				if w.what == what {
					most = max(most, w.n)
				}
			}
		}
	}
	return most
}

// outdated counts what began later with another module.
func (e *evidence) outdated(since time.Time, module string) (n int, example string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, id := range e.ids() {
		for _, s := range e.items[id].stints {
			if s.begun.After(since) && s.module != "" && s.module != module {
				n++
				example = fmt.Sprintf("%s on %s at %s with %s, and not %s", s.run, s.host, clock(s.begun), s.module, module)
			}
		}
	}
	return n, example
}

// overlap is two guests of one item that were alive at once.
type overlap struct {
	former, latter *stint
	// words of the former after the latter had begun.
	words []word
}

func (o overlap) String() string {
	text := fmt.Sprintf("item %s: %s (process %d, fence %d) spoke %d times, up to %s, after %s (process %d, fence %d) had begun at %s",
		o.former.id, o.former.host, o.former.pid, o.former.fence, len(o.words), clock(o.words[len(o.words)-1].at),
		o.latter.host, o.latter.pid, o.latter.fence, clock(o.latter.begun))
	for _, w := range o.words {
		text += fmt.Sprintf("; %s %q %d", clock(w.at), w.what, w.n)
	}
	return text
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05.000000") }

// overlaps finds all pairs of guests of one item that were alive at once.
func (e *evidence) overlaps() (stints int, list []overlap) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, id := range e.ids() {
		t := e.items[id]
		stints += len(t.stints)
		byBegin := slices.Clone(t.stints)
		slices.SortStableFunc(byBegin, func(a, b *stint) int { return a.begun.Compare(b.begun) })
		for n, former := range byBegin {
			last := former.said[len(former.said)-1].at
			for _, latter := range byBegin[n+1:] {
				if !latter.begun.Before(last) {
					break
				}
				o := overlap{former: former, latter: latter}
				for _, w := range former.said {
					if w.at.After(latter.begun) {
						o.words = append(o.words, w)
					}
				}
				if len(o.words) == 0 {
					continue
				}
				list = append(list, o)
			}
		}
	}
	return stints, list
}

// wakingTime is how long a halted process may take, when it goes on, until its
// guests have ended. What they do in that time has no effect.
const wakingTime = 2 * time.Second

// late is what guests said that were at work when their process was halted for
// so long that the session was over, after it had gone on. Nothing of it can be:
// each of a guest's calls finds out first that time has passed, and a line whose
// writing was under way has a time from before. guests is how many there were.
func (e *evidence) late(beyond time.Duration) (guests int, lines []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range e.pauses {
		if p.to.Sub(p.from) < beyond {
			continue
		}
		for _, id := range e.ids() {
			for _, s := range e.items[id].stints {
				if s.pid != p.pid || !s.begun.Before(p.to) {
					continue
				}
				if !s.ended(p.from) {
					guests++
				}
				for _, w := range s.said {
					if !w.at.Before(p.to) {
						lines = append(lines, fmt.Sprintf("item %s on %s (process %d, fence %d), halted from %s to %s, said %q %d at %s",
							id, s.host, s.pid, s.fence, clock(p.from), clock(p.to), w.what, w.n, clock(w.at)))
					}
				}
			}
		}
	}
	return guests, lines
}

// ended reports whether the last that the guest had said by then was that it is
// over. One that traps says nothing.
func (s *stint) ended(by time.Time) bool {
	ended := false
	for _, w := range s.said {
		if !w.at.After(by) {
			ended = final(w.what)
		}
	}
	return ended
}

// final reports whether a guest says nothing more after such a word, unless it
// is called once more.
func final(what string) bool { return what == "end" || what == "cancelled" || what == "refused" }

// What a guest was told, by the ABI's numbers: the item is lost, and of a commit
// that it is another host's or that the guest has to end.
const cancelLost, errConflict, errCancelled = 3, -7, -8

// stopped are the times at which guests said that their item is lost to this
// host, or that a commit was refused for that.
func (e *evidence) stopped(from, to time.Time) []time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	var list []time.Time
	for _, t := range e.items {
		for _, s := range t.stints {
			for _, w := range s.said {
				lost := w.what == "cancelled" && w.n == cancelLost || w.what == "refused" && (w.n == errConflict || w.n == errCancelled)
				if lost && !w.at.Before(from) && !w.at.After(to) {
					list = append(list, w.at)
				}
			}
		}
	}
	slices.SortFunc(list, time.Time.Compare)
	return list
}

// excused reports whether the histories' finding of a guest that outlived its
// session is about a process that was halted when the other guest began, or had
// just gone on. That is the only excuse: who is merely cut off knows in time that
// it has to stop.
func (e *evidence) excused(f verify.Finding) bool {
	if f.Invariant != verify.OneOwner {
		return true // a start that was told late, of a run that had no effect
	}
	if len(f.Lines) < 4 {
		return false
	}
	// The lines are start and end of either guest.
	first, last, latter := f.Lines[0], f.Lines[1], f.Lines[len(f.Lines)-2]
	_, token, _ := strings.Cut(first.Text, "@-@")
	digits, _, _ := strings.Cut(token, "-")
	pid, err := strconv.Atoi(digits)
	if err != nil {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.ContainsFunc(e.pauses, func(p interval) bool {
		return p.pid == pid && !latter.Time.Before(p.from) && !last.Time.After(p.to.Add(wakingTime))
	})
}
