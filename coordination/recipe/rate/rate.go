package rate

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
)

// Grace is how long after its time a place remains valid.
const Grace = 10 * time.Second

// Window is the content of a key's node. The zero Window stands for a key without a node. Times are Unix
// milliseconds.
type Window struct {
	// Key is the key; the node's name is an escaped form of it.
	Key string
	// Per and Max are the longest span and the largest number among the jobs whose begins are in the window.
	Per time.Duration
	Max int
	// Begins are when items began, ascending.
	Begins []int64
	// Places are in the order of their times.
	Places []Place
	// Paused is until when nothing begins under the key; 0: it is not paused. By is the job whose guest asked
	// for the pause.
	Paused int64
	By     string
}

// Place is a time from which an item of a job may begin on a host.
type Place struct {
	At int64 `json:"at"`
	Owner
}

// Owner is who has a place: a job on a host.
type Owner struct {
	Host string `json:"host"` // an instance id
	Job  string `json:"job"`
}

// node is the form of a Window in the registry.
type node struct {
	Key    string  `json:"key,omitempty"`
	Per    int64   `json:"per,omitempty"` // milliseconds
	Max    int     `json:"max,omitempty"`
	First  int64   `json:"first,omitempty"`  // the first begin
	Begins []int64 `json:"begins,omitempty"` // milliseconds after the one before
	Places []Place `json:"places,omitempty"`
	Paused int64   `json:"paused,omitempty"`
	By     string  `json:"by,omitempty"`
}

// Parse reads a node. now is the time. It drops what cannot be read, and times so late that only a wrong clock
// can have written them.
func Parse(data []byte, now int64) Window {
	var n node
	if json.Unmarshal(data, &n) != nil {
		return Window{}
	}
	w := Window{Key: n.Key, Per: min(max(time.Duration(n.Per)*time.Millisecond, 0), jobconfig.MaxRateSpan), Max: min(max(n.Max, 0), jobconfig.MaxRate), By: n.By}
	at := n.First
	for k, after := range n.Begins {
		if at += after; k >= jobconfig.MaxRate || after < 0 || at > now+skew {
			break
		}
		w.Begins = append(w.Begins, at)
	}
	for _, p := range n.Places {
		if p.At > 0 && p.At <= now+furthest && len(w.Places) < mostPlaces {
			w.Places = append(w.Places, p)
		}
	}
	slices.SortStableFunc(w.Places, func(a, b Place) int { return cmp.Compare(a.At, b.At) })
	if n.Paused <= now+furthest {
		w.Paused = n.Paused
	}
	return w
}

const (
	// skew is how far two hosts' estimates of the registry's clock may differ, in milliseconds.
	skew = int64(time.Minute / time.Millisecond)
	// furthest is how far after now a place or a pause may be, in milliseconds.
	furthest = int64(MaxPause / time.Millisecond)
	// mostPlaces bounds the places of a key.
	mostPlaces = jobconfig.MaxRate
)

// MaxPause is the longest pause of a key.
const MaxPause = 30 * 24 * time.Hour

// Data is what the node holds.
func (w Window) Data() []byte {
	n := node{Key: w.Key, Per: w.Per.Milliseconds(), Max: w.Max, Places: w.Places, Paused: w.Paused, By: w.By}
	before := int64(0)
	for k, at := range w.Begins {
		if k == 0 {
			n.First, before = at, at
		}
		n.Begins = append(n.Begins, at-before)
		before = at
	}
	data, _ := json.Marshal(n) // numbers and texts always have a JSON form
	return data
}

// Empty reports whether the window holds nothing that still counts.
func (w Window) Empty(now int64) bool {
	w = w.since(now)
	return len(w.Begins) == 0 && len(w.Places) == 0 && w.Paused <= now
}

// since returns the window without what is over.
func (w Window) since(now int64) Window {
	from := now - w.Per.Milliseconds()
	first := 0
	for first < len(w.Begins) && w.Begins[first] <= from {
		first++
	}
	w.Begins = slices.Clone(w.Begins[max(first, len(w.Begins)-jobconfig.MaxRate):])
	w.Places = slices.DeleteFunc(slices.Clone(w.Places), func(p Place) bool { return p.At+Grace.Milliseconds() < now })
	if w.Paused <= now {
		w.Paused, w.By = 0, ""
	}
	if len(w.Begins) == 0 {
		w.Per, w.Max = 0, 0
	}
	return w
}

// within counts the begins of the span that ends now.
func (w Window) within(r jobconfig.Rate, now int64) (n int) {
	for _, at := range slices.Backward(w.Begins) {
		if at <= now-r.Per.Milliseconds() {
			break
		}
		n++
	}
	return n
}

// Free is how many items of a job may begin on a host now.
func (w Window) Free(r jobconfig.Rate, who Owner, now int64) int {
	w = w.since(now)
	if w.Paused > now {
		return 0
	}
	free := r.Max - w.within(r, now)
	own, due, later := 0, 0, false
	for _, p := range w.Places {
		switch {
		case p.At > now:
			later = true
		case p.Owner == who:
			own++
			due++
		default:
			due++
		}
	}
	n := min(own, free)
	if !later { // otherwise a new one would overtake those that wait
		n += max(free-due, 0)
	}
	return max(n, 0)
}

// Due returns when a host may begin the next item of a job that has a place; 0: it has none.
func (w Window) Due(r jobconfig.Rate, who Owner, now int64) int64 {
	w = w.since(now)
	for _, p := range w.Places {
		if p.Owner != who {
			continue
		}
		at := max(p.At, w.Paused)
		if n := len(w.Begins); r.Max > 0 && n >= r.Max {
			at = max(at, w.Begins[n-r.Max]+r.Per.Milliseconds())
		}
		return at
	}
	return 0
}

// Held returns how many places a job has on a host.
func (w Window) Held(who Owner, now int64) (n int) {
	for _, p := range w.since(now).Places {
		if p.Owner == who {
			n++
		}
	}
	return n
}

// Begin returns the window after n items of a job have begun on a host now and waiting others got places there,
// at most as many as may begin in a span. n is at most [Window.Free].
func (w Window) Begin(r jobconfig.Rate, who Owner, n, waiting int, now int64) Window {
	w = w.since(now)
	used, places := n, w.Places[:0]
	held := 0
	most := min(waiting, r.Max)
	for _, p := range w.Places {
		if p.Owner == who {
			if used > 0 && p.At <= now {
				used--
				continue
			}
			if held == most {
				continue // nothing waits for it
			}
			held++
		}
		places = append(places, p)
	}
	w.Places = places
	for range n {
		w.Begins = append(w.Begins, now)
	}
	slices.Sort(w.Begins) // clocks differ slightly
	if n > 0 {
		w.Per, w.Max = max(w.Per, r.Per), max(w.Max, r.Max)
	}
	for ; held < most && len(w.Places) < mostPlaces; held++ {
		w.Places = append(w.Places, Place{w.next(r, now), who})
	}
	return w
}

// next is the earliest time of one more begin, after all places.
func (w Window) next(r jobconfig.Rate, now int64) int64 {
	at := max(now, w.Paused)
	taken := slices.Clone(w.Begins)
	for _, p := range w.Places {
		at = max(at, p.At)
		taken = append(taken, p.At)
	}
	slices.Sort(taken)
	if k := len(taken) - r.Max; k >= 0 {
		at = max(at, taken[k]+r.Per.Milliseconds())
	}
	return at
}

// PausedBy reports whether a guest of a job has paused the key, and the pause is not over.
func (w Window) PausedBy(job string, now int64) bool { return w.Paused > now && w.By == job }

// Resume returns the window without its pause. Places behind the pause are dropped: the waiting jobs get new
// ones.
func (w Window) Resume() Window {
	w.Places = slices.DeleteFunc(slices.Clone(w.Places), func(p Place) bool { return p.At >= w.Paused })
	w.Paused, w.By = 0, ""
	return w
}

// Pause returns the window after a guest of a job has paused the key until a time. It never shortens a pause.
func (w Window) Pause(until int64, job string) Window {
	if until > w.Paused {
		w.Paused, w.By = until, job
	}
	return w
}
