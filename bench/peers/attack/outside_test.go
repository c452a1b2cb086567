//go:build peers

package attack_test

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"sync"
	"time"
)

// What an item says.
const (
	begins    = "begin"
	effect    = "effect"
	committed = "committed" // the host took an offset; ours only
	refused   = "refused"   // it did not
	ends      = "end"
)

// word is a line that an item said.
type word struct {
	// At is when it arrived here.
	At time.Time `json:"at"`
	// Fault and System say what was done to whom.
	Fault  string `json:"fault"`
	Round  int    `json:"round"`
	System string `json:"system"`
	Host   string `json:"host"`
	// Run tells the runs of a host apart: its number, or the fence.
	Run  string `json:"run"`
	Item int    `json:"item"`
	What string `json:"what"`
	// Said is the time by the item's own clock.
	Said time.Time `json:"said"`
}

// outside is where the effects are. It is safe for concurrent use.
type outside struct {
	mu    sync.Mutex
	words []word
	news  chan struct{} // closed, and made anew, with each word
}

func (o *outside) hear(w word) {
	o.mu.Lock()
	defer o.mu.Unlock()
	w.At = time.Now() // under the lock: the list is in order
	o.words = append(o.words, w)
	if o.news != nil {
		close(o.news)
	}
	o.news = make(chan struct{})
}

// look are the words from a mark on, the next mark, and what is closed when
// there is more.
func (o *outside) look(mark int) ([]word, int, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.news == nil {
		o.news = make(chan struct{})
	}
	return slices.Clone(o.words[mark:]), len(o.words), o.news
}

// await waits until the words from the mark on are as wanted, at most so long.
func (o *outside) await(mark int, most time.Duration, ok func([]word) bool) bool {
	over := time.NewTimer(most)
	defer over.Stop()
	for {
		words, _, news := o.look(mark)
		if ok(words) {
			return true
		}
		select {
		case <-news:
		case <-over.C:
			return false
		}
	}
}

// silence waits until nothing was heard for so long; false if that does not
// come within most.
func (o *outside) silence(quiet, most time.Duration) bool {
	over := time.NewTimer(most)
	defer over.Stop()
	for {
		_, _, news := o.look(0)
		still := time.NewTimer(quiet)
		select {
		case <-news:
			still.Stop()
		case <-still.C:
			return true
		case <-over.C:
			still.Stop()
			return false
		}
	}
}

// ourLine reads a line of our host's log; false if no item said it.
func ourLine(line string) (w word, ok bool) {
	var l struct {
		Message string            `json:"message"`
		Attrs   map[string]string `json:"attrs"`
	}
	if json.Unmarshal([]byte(line), &l) != nil || l.Attrs["fence"] == "" {
		return w, false
	}
	item, err := strconv.Atoi(l.Attrs["item"])
	if err != nil {
		return w, false
	}
	micros, err := strconv.ParseInt(l.Attrs["at"], 10, 64)
	if err != nil {
		return w, false
	}
	return word{Run: l.Attrs["fence"], Item: item, What: l.Message, Said: time.UnixMicro(micros)}, true
}

// run is a run of an item, as it looked from outside.
type run struct {
	host, name  string
	item        int
	begin, last time.Time
	ended       time.Time // zero if it said no end
	words       []word
}

// runsOf gathers words into runs, in the order of their begins.
func runsOf(words []word) []*run {
	var list []*run
	for _, w := range words {
		i := slices.IndexFunc(list, func(r *run) bool { return r.host == w.Host && r.name == w.Run && r.item == w.Item })
		if i < 0 {
			i = len(list)
			list = append(list, &run{host: w.Host, name: w.Run, item: w.Item, begin: w.At})
		}
		r := list[i]
		r.last = w.At
		r.words = append(r.words, w)
		if w.What == ends {
			r.ended = w.At
		}
	}
	slices.SortStableFunc(list, func(a, b *run) int { return a.begin.Compare(b.begin) })
	return list
}

// harm is what came of a fault.
type harm struct {
	crashed int           // items that ran on the host
	again   time.Duration // from the fault until the last of them was begun again
	never   int           // of them, those that were not within patience
	runs    int           // of the fire, the first ones included
	// overlaps are the items that had an effect of a former run while a later
	// one was at work; longest is the time between the first such effect and
	// the last, at most.
	overlaps int
	longest  time.Duration
	late     int // effects after the item had been begun elsewhere
	written  int // of these, offsets that the host took
	repeated int // runs begun after the item had ended in this fire
	lost     int // items of the fire that did not end
	// Of the fire afterwards:
	missing, doubled int // items that did not end, items that ran more than once
}

// judge counts. words are those of the fire, in order.
func judge(words []word, total int, victim string, at time.Time) (h harm) {
	runs := runsOf(words)
	h.runs = len(runs)
	for item := range total {
		var mine []*run
		for _, r := range runs {
			if r.item == item {
				mine = append(mine, r)
			}
		}
		if !slices.ContainsFunc(mine, func(r *run) bool { return !r.ended.IsZero() }) {
			h.lost++
		}
		overlapped := false
		for i, later := range mine {
			if slices.ContainsFunc(mine[:i], func(r *run) bool { return !r.ended.IsZero() && r.ended.Before(later.begin) }) {
				h.repeated++
			}
		}
		for i, former := range mine {
			if i+1 == len(mine) {
				break
			}
			next := mine[i+1]
			var first time.Time
			for _, w := range former.words {
				if !w.At.After(next.begin) || w.What == begins || w.What == refused || w.What == ends {
					continue
				}
				if w.What == committed {
					h.written++
					continue
				}
				h.late++
				if w.At.Before(next.last) {
					overlapped = true
					if first.IsZero() {
						first = w.At
					}
					h.longest = max(h.longest, w.At.Sub(first))
				}
			}
		}
		if overlapped {
			h.overlaps++
		}
		i := slices.IndexFunc(mine, func(r *run) bool {
			return r.host == victim && r.begin.Before(at) && (r.ended.IsZero() || r.ended.After(at))
		})
		if i < 0 {
			continue
		}
		h.crashed++
		if j := slices.IndexFunc(mine, func(r *run) bool { return r.begin.After(at) }); j >= 0 {
			h.again = max(h.again, mine[j].begin.Sub(at))
		} else {
			h.never++
		}
	}
	return h
}

// next counts the fire afterwards.
func (h *harm) next(words []word, total int) {
	counts, ended := make(map[int]int), make(map[int]bool)
	for _, r := range runsOf(words) {
		counts[r.item]++
		ended[r.item] = ended[r.item] || !r.ended.IsZero()
	}
	for item := range total {
		if !ended[item] {
			h.missing++
		}
		if counts[item] > 1 {
			h.doubled++
		}
	}
}

// byTime orders the words of several systems.
func byTime(words []word) {
	slices.SortStableFunc(words, func(a, b word) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.System, b.System))
	})
}
