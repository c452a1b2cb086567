package cluster

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
)

// TestSeenGone: pages know which hosts were seen to be gone in the last day, by whichever host that
// is here, and ask no history for it; a host that begins knows it from its store.
func TestSeenGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		one := newShip("1")
		f, c := sail(t, one)
		gone := func(id string, ago time.Duration) event.Event {
			return event.Event{Kind: event.HostGone, Other: id, Time: time.Now().Add(-ago)}
		}
		shows := func(want string) {
			t.Helper()
			stale()
			refresh(t, c, 0)
			got := ""
			for _, e := range c.SeenGone() {
				got += e.Other
			}
			if got != want {
				t.Errorf("seen to be gone: %q, want %q", got, want)
			}
		}
		one.local.NoteGone(gone("b", time.Hour), event.Event{Kind: event.HostStarted, Time: time.Now()}, gone("old", 25*time.Hour))
		f.self.local.NoteGone(gone("c", time.Minute))
		shows("cb")
		one.local.NoteGone(gone("d", 0))
		shows("dcb")
		pages := 0
		one.local.RememberGone(t.Context(), func(_ context.Context, f history.Filter) (history.Page[event.Event], error) {
			pages++
			if f.From.IsZero() || (pages > 1 && f.After != "more") {
				t.Errorf("question %d: %+v", pages, f)
			}
			return history.Page[event.Event]{Records: []event.Event{gone(fmt.Sprint("p", pages), 2*time.Hour)}, Next: map[int]string{1: "more"}[pages]}, nil
		})
		shows("dcbp1p2")
		one.start() // another life: it has forgotten, and answers all
		shows("c")
		f.lists()
		shows("c")
		time.Sleep(24 * time.Hour)
		shows("")
		for n := range mostSightings + 5 {
			f.self.local.NoteGone(gone(fmt.Sprint("n", n), 0))
		}
		stale()
		refresh(t, c, 0)
		if n := len(c.SeenGone()); n != mostSightings || len(f.self.local.sightings) != mostSightings {
			t.Errorf("%d are known", n)
		}
	})
}
