package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/recipe/rate"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/engine/run"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/internal/text/reason"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// A job may be under a rate over the namespace (rate in its definition): the commit that begins its items notes that in
// the key's node; see package rate. An item that may not begin yet keeps the fire that it owes, and has a place: a time.
//
//	due ──▶ pace ──▶ may begin now ──▶ the begin is noted in the same commit
//	          │
//	          └──▶ waits for its time, which is known
//
// What is taken over from a host that died has begun already: it does not wait, and does not count once more.

// rates is this host's part in the job's rate.
type rates struct {
	*admission
	keys map[string]*rate.Turn
	// turns counts the items that began to wait.
	turns uint64
	// at is when the next item may begin, by Go's own clock; zero if none waits.
	at time.Time
	// by is the rate by which places were given.
	by jobconfig.Rate
	// atOnce has the loop look again at once: another host has written a key's node meanwhile.
	atOnce bool
}

// changed has the items that wait looked at again: the job may be under another rate now.
func (r *rates) changed() {
	for it := range r.items.allActive() {
		it.unpace()
	}
}

// rateFresh is how long after the last write of a key's node a host goes by what it knows of it. It is much shorter than
// the time after which a node that says nothing is deleted: one that is made anew has other versions.
const rateFresh = 2 * time.Minute

// rated reports whether the job is under a rate.
func (r *rates) rated() bool { return r.guest.Rate.Key != "" }

// turn is the host's part in a key, as of now.
func (r *rates) turn(now moment, key string) *rate.Turn {
	if r.keys == nil {
		r.keys = make(map[string]*rate.Turn)
	}
	t := r.keys[key]
	if t == nil {
		t = &rate.Turn{Path: rate.Path(r.job.member.Layout, key), Key: key, Owner: rate.Owner{Host: r.job.member.Self.ID, Job: r.job.name}, Version: tree.NoVersion}
		r.keys[key] = t
	}
	t.Rate, t.Now = r.guest.Rate, r.job.host.registryTime(now).UnixMilli()
	t.Known = t.Known && t.Now < t.Wrote+rateFresh.Milliseconds() && t.Now > t.Wrote-rateFresh.Milliseconds()
	return t
}

// pace chooses the items of a fire that may begin now under the job's rate, and has turns note it. waiting are those
// that may not: they owe the fire, and have places.
func (r *rates) pace(now moment, id tree.Fire, items []*item) (paced []*item, turns map[int]*rate.Turn, waiting tree.Items) {
	if !r.rated() || len(items) == 0 {
		return items, nil, nil
	}
	if err := r.renew(now); err != nil {
		r.job.failed(now, "giving up places under a rate", err)
		for _, it := range items {
			r.owe(it, id)
			waiting = append(waiting, it.number)
		}
		return nil, nil, waiting
	}
	keys := make(map[string]*rate.Turn)
	for _, it := range items {
		key := r.keyFor(r.guest.Rate.Key, it.number, id)
		if it.paced != key {
			r.turns++
			it.paced, it.pacedTurn = key, r.turns
		}
		it.asks = true
		keys[key] = r.turn(now, key)
	}
	err := readTurns(r.job.work, r.job.member.Registry, slices.Collect(maps.Values(keys)), func(t *rate.Turn) bool { return !t.Known })
	chosen := make(map[int]bool)
	var stand []*rate.Turn
	for key, t := range keys {
		list, begins := r.items.pacedUnder(key), 0
		free := 0
		if err == nil && t.Version != tree.NoVersion {
			free = min(t.Window.Free(t.Rate, t.Owner, t.Now), len(list))
		}
		for _, it := range list[:free] {
			if it.asks {
				chosen[it.number] = true
				begins++
			}
		}
		t.Waiting = len(list) - begins
		if begins == 0 && err == nil && t.Waiting > 0 && t.Window.Held(t.Owner, t.Now) < min(t.Waiting, t.Rate.Max) {
			stand = append(stand, t)
		}
	}
	if len(stand) > 0 {
		err = rate.Stand(r.job.work, r.job.member.Registry, stand...)
		for _, t := range stand {
			list := r.items.pacedUnder(t.Key)
			if err == nil { // at the first begin under a key
				for _, it := range list[:min(t.Window.Free(t.Rate, t.Owner, t.Now), len(list))] {
					chosen[it.number] = it.asks
					t.Waiting--
				}
			}
		}
	}
	if err != nil {
		r.job.failed(now, "standing in line for a rate", err)
	}
	turns = make(map[int]*rate.Turn)
	for _, it := range items {
		it.asks = false
		if chosen[it.number] && err == nil {
			turns[it.number] = keys[it.paced]
			paced = append(paced, it)
			continue
		}
		r.owe(it, id)
		waiting = append(waiting, it.number)
		if it.pacedFor != id.ID() && err == nil {
			it.pacedFor = id.ID()
			r.reports.skip(it, id, event.SkipLater, reason.New(reason.WaitsForRate, strconv.Quote(it.paced), r.guest.Rate.Max, words.Duration(r.guest.Rate.Per)))
		}
	}
	return paced, turns, waiting
}

// renew gives up the places that the job had by other figures: what waits gets new ones.
func (r *rates) renew(now moment) error {
	if r.by == r.guest.Rate {
		return nil
	}
	var give []*rate.Turn
	for key := range r.keys {
		t := r.turn(now, key)
		if t.Window.Held(t.Owner, t.Now) > 0 {
			t.Waiting = 0
			give = append(give, t)
		}
	}
	if len(give) > 0 {
		if err := rate.Stand(r.job.work, r.job.member.Registry, give...); err != nil {
			return err
		}
	}
	r.by = r.guest.Rate
	return nil
}

// readTurns reads those of the keys that are to be read, in one request.
func readTurns(work context.Context, reg registry.Center, turns []*rate.Turn, which func(*rate.Turn) bool) error {
	turns = slices.DeleteFunc(turns, func(t *rate.Turn) bool { return !which(t) })
	if len(turns) == 0 {
		return nil
	}
	return rate.Read(work, reg, turns...)
}

// contended takes note that another host has written the node of an item's key meanwhile.
func (r *rates) contended(it *item) {
	if t := r.keys[it.paced]; t != nil {
		t.Window, t.Known = rate.Window{}, false
	}
	r.atOnce = true
}

// unpace notes that an item does not wait under a rate any more.
func (it *item) unpace() { it.paced, it.pacedTurn, it.pacedFor = "", 0, "" }

// mayBegin reports whether it is worth a try to begin an item that may be waiting under a rate.
func (r *rates) mayBegin(now moment) func(*item) bool {
	at := r.job.host.registryTime(now).UnixMilli()
	if !r.rated() {
		return func(it *item) bool { return it.state.Record.NotBefore(at) == 0 }
	}
	may := make(map[int]bool)
	tried := make(map[string]bool)
	for it := range r.items.allActive() {
		if it.paced == "" || tried[it.paced] {
			continue
		}
		tried[it.paced] = true
		t, list := r.turn(now, it.paced), r.items.pacedUnder(it.paced)
		n := t.Window.Free(t.Rate, t.Owner, t.Now)
		if t.Version == tree.NoVersion || (!t.Known && t.Window.Paused > t.Now) || t.Window.Held(t.Owner, t.Now) < min(len(list), t.Rate.Max) {
			n = len(list)
		}
		for _, it := range list[:min(n, len(list))] {
			may[it.number] = true
		}
	}
	return func(it *item) bool { return it.state.Record.NotBefore(at) == 0 && (it.paced == "" || may[it.number]) }
}

// returnPlaces forgets the items that do not wait under a rate any more, gives up the places that they had, and says when the
// next may begin. If leaves is set the host begins nothing more of the job.
func (r *rates) returnPlaces(now moment, leaves bool) {
	r.at = r.items.postponedUntil(now, r.job.host.registryTime(now).UnixMilli())
	if len(r.keys) == 0 {
		return
	}
	waiting := make(map[string]int)
	for it := range r.items.allActive() {
		if it.paced == "" {
			continue
		}
		if leaves || !r.rated() || it.run != nil || !r.stillWaits(now, it) {
			it.unpace()
			continue
		}
		waiting[it.paced]++
	}
	var give []*rate.Turn
	for key := range r.keys {
		t := r.turn(now, key)
		t.Waiting = waiting[key]
		held := t.Window.Held(t.Owner, t.Now)
		switch {
		case held > min(t.Waiting, max(t.Rate.Max, 1)) && !r.job.rests(now) && r.job.term.registry.Trusted():
			give = append(give, t)
		case waiting[key] == 0 && held == 0 && !t.Known:
			delete(r.keys, key)
		}
	}
	if len(give) > 0 {
		if err := rate.Stand(r.job.work, r.job.member.Registry, give...); err != nil && !leaves {
			r.job.failed(now, "giving up places under a rate", err)
		}
	}
	for key := range waiting {
		t := r.keys[key]
		due := t.Window.Due(t.Rate, t.Owner, t.Now)
		if t.Window.Paused > t.Now { // an operator may end the pause
			due = min(due, t.Now+rateFresh.Milliseconds())
		}
		if due > t.Now {
			r.at = soonest(r.at, now.Add(time.Duration(due-t.Now)*time.Millisecond))
		}
	}
}

// waitsFor says in words under which rates the job waits here.
func (r *rates) waitsFor(now moment) (forWhat, then string) {
	waiting := make(map[string]int)
	for it := range r.items.allActive() {
		if it.paced != "" {
			waiting[it.paced]++
		}
	}
	var list []string
	for _, key := range slices.Sorted(maps.Keys(waiting)) {
		t := r.turn(now, key)
		text := fmt.Sprintf("rate %s, under which at most %d begin in %s: %s here", strconv.Quote(key), t.Rate.Max, words.Duration(t.Rate.Per), words.Count(waiting[key], "item")+" wait")
		if due := t.Window.Due(t.Rate, t.Owner, t.Now); due != 0 {
			text += ", the next until " + time.UnixMilli(due).UTC().Format(time.RFC3339)
		}
		if t.Window.Paused > t.Now {
			text += ", which job " + t.Window.By + " has paused"
		}
		list = append(list, text)
	}
	if more := len(list) - mostNamedLimits; more > 0 {
		list = append(list[:mostNamedLimits], words.Count(more, "more rate"))
	}
	return "its turn under " + strings.Join(list, "; "), ""
}

// pauseKeys pauses the keys of the job's rate for which guests of runs that have ended ask: before their completions are
// written, so that none is forgotten if this host dies in between.
func (r *rates) pauseKeys(now moment, ended map[int]run.Ended) error {
	for n, e := range ended {
		if !e.Result.PauseKey || e.Later.IsZero() || e.Unfinished {
			continue
		}
		if !r.rated() {
			r.job.log.Warn("a guest asks to pause the key of its rate, and the job has no rate: only the item waits")
			continue
		}
		t := r.turn(now, r.keyFor(r.guest.Rate.Key, n, e.Run.Fire().ID))
		if t.Known && t.Window.Paused >= e.Later.UnixMilli() {
			continue
		}
		t.Waiting = len(r.items.pacedUnder(t.Key))
		if err := rate.Pause(r.job.work, r.job.member.Registry, e.Later.UnixMilli(), t); err != nil {
			return err
		}
	}
	return nil
}
