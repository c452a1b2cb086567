package cluster

import (
	"context"
	"slices"
	"time"

	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
)

const (
	// sightingsKept is how long a host remembers which hosts it has seen to be gone.
	sightingsKept = 24 * time.Hour
	// mostSightings bounds how many events about that it remembers: the newest.
	mostSightings = 1000
)

// sighting is an event of kind event.HostGone, and the generation in which it was learned.
type sighting struct {
	event.Event
	generation uint64
}

// NoteGone learns of events of this host that say which hosts are gone; others are passed over.
// Pages show these hosts without asking a history, which would read all events of a day.
func (l *Local) NoteGone(events ...event.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.generation++
	for _, e := range events {
		if e.Kind == event.HostGone {
			l.sightings = append(l.sightings, sighting{e, l.generation})
		}
	}
	slices.SortStableFunc(l.sightings, func(a, b sighting) int { return a.Time.Compare(b.Time) })
	l.sightings = slices.DeleteFunc(l.sightings, func(s sighting) bool { return time.Since(s.Time) > sightingsKept })
	l.sightings = slices.Delete(l.sightings, 0, max(len(l.sightings)-mostSightings, 0))
}

// RememberGone learns from this host's store which hosts were seen to be gone, when the host
// begins: from as many pages as a store of many events gives in a few seconds.
func (l *Local) RememberGone(ctx context.Context, events func(context.Context, history.Filter) (history.Page[event.Event], error)) {
	f := history.Filter{Kinds: []event.Kind{event.HostGone}, From: time.Now().Add(-sightingsKept), Limit: history.MaxLimit}
	for range mostRemembered {
		page, err := events(ctx, f)
		l.NoteGone(page.Records...)
		if f.After = page.Next; err != nil || f.After == "" {
			return
		}
	}
}

// SeenGone are the events of the last 24 hours by which hosts that are here now have seen that
// others are gone, newest first.
func (c *Cluster) SeenGone() []event.Event {
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
