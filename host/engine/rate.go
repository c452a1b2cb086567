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

// rateFresh is how long after the last write of a key's node a host goes by what it knows of it. It is much shorter than
// the time after which a node that says nothing is deleted: one that is made anew has other versions.
const rateFresh = 2 * time.Minute

// rated reports whether the job is under a rate.
func (p *place) rated() bool { return p.guest.Rate.Key != "" }

// rateTurn is the host's part in a key, as of now.
func (rn *runner) rateTurn(now moment, key string) *rate.Turn {
	if rn.rates.keys == nil {
		rn.rates.keys = make(map[string]*rate.Turn)
	}
	t := rn.rates.keys[key]
	if t == nil {
		t = &rate.Turn{Path: rate.Path(rn.member.Layout, key), Key: key, Owner: rate.Owner{Host: rn.member.Self.ID, Job: rn.name}, Version: tree.NoVersion}
		rn.rates.keys[key] = t
	}
	t.Rate, t.Now = rn.guest.Rate, rn.host.registryTime(now).UnixMilli()
	t.Known = t.Known && t.Now < t.Wrote+rateFresh.Milliseconds() && t.Now > t.Wrote-rateFresh.Milliseconds()
	return t
}

// pace chooses the items of a fire that may begin now under the job's rate, and has turns note it. waiting are those
// that may not: they owe the fire, and have places.
func (rn *runner) pace(now moment, id tree.Fire, items []*item) (paced []*item, turns map[int]*rate.Turn, waiting tree.Items) {
	if !rn.rated() || len(items) == 0 {
		return items, nil, nil
	}
	if err := rn.renewPlaces(now); err != nil {
		rn.failed(now, "giving up places under a rate", err)
		for _, it := range items {
			rn.owe(it, id)
			waiting = append(waiting, it.number)
		}
		return nil, nil, waiting
	}
	keys := make(map[string]*rate.Turn)
	for _, it := range items {
		key := rn.keyFor(rn.guest.Rate.Key, it.number, id)
		if it.paced != key {
			rn.rates.turns++
			it.paced, it.pacedTurn = key, rn.rates.turns
		}
		it.asks = true
		keys[key] = rn.rateTurn(now, key)
	}
	err := readTurns(rn.work, rn.member.Registry, slices.Collect(maps.Values(keys)), func(t *rate.Turn) bool { return !t.Known })
	chosen := make(map[int]bool)
	var stand []*rate.Turn
	for key, t := range keys {
		list, begins := rn.items.pacedUnder(key), 0
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
		err = rate.Stand(rn.work, rn.member.Registry, stand...)
		for _, t := range stand {
			list := rn.items.pacedUnder(t.Key)
			if err == nil { // at the first begin under a key
				for _, it := range list[:min(t.Window.Free(t.Rate, t.Owner, t.Now), len(list))] {
					chosen[it.number] = it.asks
					t.Waiting--
				}
			}
		}
	}
	if err != nil {
		rn.failed(now, "standing in line for a rate", err)
	}
	turns = make(map[int]*rate.Turn)
	for _, it := range items {
		it.asks = false
		if chosen[it.number] && err == nil {
			turns[it.number] = keys[it.paced]
			paced = append(paced, it)
			continue
		}
		rn.owe(it, id)
		waiting = append(waiting, it.number)
		if it.pacedFor != id.ID() && err == nil {
			it.pacedFor = id.ID()
			rn.reports.skip(it, id, event.SkipLater, reason.New(reason.WaitsForRate, strconv.Quote(it.paced), rn.guest.Rate.Max, words.Duration(rn.guest.Rate.Per)))
		}
	}
	return paced, turns, waiting
}

// renewPlaces gives up the places that the job had by other figures: what waits gets new ones.
func (rn *runner) renewPlaces(now moment) error {
	if rn.rates.by == rn.guest.Rate {
		return nil
	}
	var give []*rate.Turn
	for key := range rn.rates.keys {
		t := rn.rateTurn(now, key)
		if t.Window.Held(t.Owner, t.Now) > 0 {
			t.Waiting = 0
			give = append(give, t)
		}
	}
	if len(give) > 0 {
		if err := rate.Stand(rn.work, rn.member.Registry, give...); err != nil {
			return err
		}
	}
	rn.rates.by = rn.guest.Rate
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

// mayPace reports whether it is worth a try to begin an item that may be waiting under a rate.
func (rn *runner) mayPace(now moment) func(*item) bool {
	at := rn.host.registryTime(now).UnixMilli()
	if !rn.rated() {
		return func(it *item) bool { return it.state.Record.NotBefore(at) == 0 }
	}
	may := make(map[int]bool)
	tried := make(map[string]bool)
	for _, it := range rn.items {
		if it.paced == "" || tried[it.paced] {
			continue
		}
		tried[it.paced] = true
		t, list := rn.rateTurn(now, it.paced), rn.items.pacedUnder(it.paced)
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

// endPacing forgets the items that do not wait under a rate any more, gives up the places that they had, and says when the
// next may begin. If leaves is set the host begins nothing more of the job.
func (rn *runner) endPacing(now moment, leaves bool) {
	r := &rn.rates
	r.at = rn.items.postponedUntil(now, rn.host.registryTime(now).UnixMilli())
	if len(r.keys) == 0 {
		return
	}
	waiting := make(map[string]int)
	for _, it := range rn.items {
		if it.paced == "" {
			continue
		}
		if leaves || !rn.rated() || it.run != nil || !rn.stillWaits(now, it) {
			it.unpace()
			continue
		}
		waiting[it.paced]++
	}
	var give []*rate.Turn
	for key := range r.keys {
		t := rn.rateTurn(now, key)
		t.Waiting = waiting[key]
		held := t.Window.Held(t.Owner, t.Now)
		switch {
		case held > min(t.Waiting, max(t.Rate.Max, 1)) && !now.Before(rn.refusal.retryAt) && rn.term.registry.Trusted():
			give = append(give, t)
		case waiting[key] == 0 && held == 0 && !t.Known:
			delete(r.keys, key)
		}
	}
	if len(give) > 0 {
		if err := rate.Stand(rn.work, rn.member.Registry, give...); err != nil && !leaves {
			rn.failed(now, "giving up places under a rate", err)
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

// waitsForRate says in words under which rates the job waits here.
func (rn *runner) waitsForRate(now moment) (forWhat, then string) {
	waiting := make(map[string]int)
	for _, it := range rn.items {
		if it.paced != "" {
			waiting[it.paced]++
		}
	}
	var list []string
	for _, key := range slices.Sorted(maps.Keys(waiting)) {
		t := rn.rateTurn(now, key)
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
