package cluster

import (
	"context"
	"slices"
	"time"

	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
)

const (
	// sightingsKept is how long a host remembers which hosts it has seen to be gone, and to be back.
	sightingsKept = 24 * time.Hour
	// mostSightings bounds how many events about that it remembers: the newest.
	mostSightings = 1000
	// noticed is the longest time until a dead host is seen to be gone: the longest session timeout that
	// registries grant, and a reserve.
	noticed = 2 * time.Minute
)

// sightingKinds are the kinds of events that say which hosts are gone, and which of them are back.
func sightingKinds() []event.Kind { return []event.Kind{event.HostGone, event.HostBack} }

// sighting is an event of such a kind, and the generation in which it was learned.
type sighting struct {
	event.Event
	generation uint64
}

// Regained reports whether a process that had the id in a session has had another one since.
func Regained(h tree.ClusterDetail, id string) bool {
	at := slices.Index(h.Sessions, event.TermOf(id))
	return at >= 0 && at < len(h.Sessions)-1
}

// IsBack reports whether the host with the id, which was seen to be gone at a time, is back: its process has
// another session, or another process of its server began since. Its own old node, which may be listed a moment
// longer, does not count.
func IsBack(h tree.ClusterDetail, id string, gone time.Time) bool {
	if slices.Contains(h.Sessions, event.TermOf(id)) {
		return Regained(h, id)
	}
	return h.ServerIP == tree.ServerOf(id) && h.Started.After(gone.Add(-noticed))
}

// NoteGone stores this host's events that say which hosts are gone or back; it ignores others. Pages show gone
// hosts without reading a history, which would read all events of a day.
func (l *Local) NoteGone(events ...event.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.noteGone(events)
}

// noteGone is NoteGone. The caller holds l.mu.
func (l *Local) noteGone(events []event.Event) {
	l.generation++
	for _, e := range events {
		if slices.Contains(sightingKinds(), e.Kind) {
			l.sightings = append(l.sightings, sighting{e, l.generation})
		}
	}
	slices.SortStableFunc(l.sightings, func(a, b sighting) int { return a.Time.Compare(b.Time) })
	l.sightings = slices.DeleteFunc(l.sightings, func(s sighting) bool { return time.Since(s.Time) > sightingsKept })
	l.sightings = slices.Delete(l.sightings, 0, max(len(l.sightings)-mostSightings, 0))
}

// NotePeers sets which hosts exist now, including this one. It returns events, for this host's history, that
// say which gone hosts are back, or were back until now: when they stop in good order, nothing else says so.
func (l *Local) NotePeers(list []Peer) (back []event.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	known := make(map[string]bool) // to be back, by term
	for _, s := range l.sightings {
		if s.Kind == event.HostBack {
			known[event.TermOf(s.Other)] = true
		}
	}
	now, seen := time.Now(), slices.Concat(l.peers, list)
	for _, s := range l.sightings {
		term := event.TermOf(s.Other)
		if known[term] || !slices.ContainsFunc(seen, func(p Peer) bool { return IsBack(p.ClusterDetail, s.Other, s.Time) }) {
			continue
		}
		known[term] = true
		back = append(back, event.Event{Kind: event.HostBack, Time: now, Other: s.Other, Reason: "it has another session, or a host of its server has begun since"})
	}
	l.peers = list
	if len(back) > 0 {
		l.noteGone(back)
	}
	return back
}

// RememberGone learns from this host's store which hosts were seen to be gone and back, when the host
// begins: from as many pages as a store of many events gives in a few seconds.
func (l *Local) RememberGone(ctx context.Context, events func(context.Context, history.Filter) (history.Page[event.Event], error)) {
	f := history.Filter{Kinds: sightingKinds(), From: time.Now().Add(-sightingsKept), Limit: history.MaxLimit}
	for range mostRemembered {
		page, err := events(ctx, f)
		l.NoteGone(page.Records...)
		if f.After = page.Next; err != nil || f.After == "" {
			return
		}
	}
}

// Sightings are the events of the last 24 hours by which hosts that are here now have seen that
// others are gone, or back, newest first.
func (c *Cluster) Sightings() []event.Event {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var list []event.Event
	for _, k := range c.hosts {
		for _, e := range k.sightings {
			if time.Since(e.Time) <= sightingsKept {
				list = append(list, e)
			}
		}
	}
	slices.SortStableFunc(list, func(a, b event.Event) int { return b.Time.Compare(a.Time) })
	return list
}
