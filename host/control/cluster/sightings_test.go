package cluster

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
)

// TestNotePeers: a host remembers that another one is back which it had seen to be gone, for when that has
// stopped in good order: a host of the server that began since, or the same process in another session. What the host that died had published, which may be listed a moment
// longer, is no sign of that; nor is another host of its server that was there before.
func TestNotePeers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		one := newShip("1")
		_, c := sail(t, one)
		began := func(server string, ago time.Duration) Peer {
			return Peer{ID: server, ClusterDetail: tree.ClusterDetail{ServerIP: server, Started: time.Now().Add(-ago)}}
		}
		notes := func(want string, peers ...Peer) {
			t.Helper()
			got := ""
			for _, e := range one.local.NotePeers(peers) {
				got += string(e.Kind) + " " + e.Other
			}
			if got != want {
				t.Errorf("noted %q, want %q", got, want)
			}
		}
		other := began("10.0.0.9", time.Hour)
		died := began("10.0.0.3", time.Minute)
		died.Sessions = []string{"10.0.0.3@-@1-a"}
		other.Sessions = []string{"10.0.0.9@-@1-c"}
		notes("", other, died)
		one.local.NoteGone(event.Event{Kind: event.HostGone, Host: "10.0.0.1@-@1-a", Other: "10.0.0.3@-@1-a-2", Time: time.Now()},
			event.Event{Kind: event.HostGone, Host: "10.0.0.1@-@1-a", Other: "10.0.0.9@-@1-b", Time: time.Now()})
		notes("", other, died)
		time.Sleep(time.Second)
		back := began("10.0.0.3", 0)
		back.Sessions = []string{"10.0.0.3@-@1-d"}
		notes("host.back 10.0.0.3@-@1-a-2", other, died, back) // at once
		notes("", other)                                       // it has stopped
		refresh(t, c, 0)
		kinds := ""
		for _, e := range c.Sightings() { // newest first
			kinds += string(e.Kind) + " " + e.Other + "\n"
		}
		if kinds != "host.back 10.0.0.3@-@1-a-2\nhost.gone 10.0.0.3@-@1-a-2\nhost.gone 10.0.0.9@-@1-b\n" {
			t.Errorf("others learn of\n%s", kinds)
		}
		if d := one.local.Delta("", 0); len(d.Sightings) != 2 || len(d.Back) != 1 { // hosts of an earlier version know the first alone
			t.Errorf("%+v and %+v", d.Sightings, d.Back)
		}
		// The next life of the host reads it from its store.
		one.start()
		one.local.RememberGone(t.Context(), func(_ context.Context, f history.Filter) (history.Page[event.Event], error) {
			if !slices.Equal(f.Kinds, []event.Kind{event.HostGone, event.HostBack}) {
				t.Errorf("asked for %s", f.Kinds)
			}
			return history.Page[event.Event]{Records: []event.Event{
				{Kind: event.HostBack, Other: "10.0.0.3@-@1-a", Time: time.Now().Add(-time.Minute)},
				{Kind: event.HostGone, Other: "10.0.0.3@-@1-a-2", Time: time.Now().Add(-2 * time.Minute)},
			}}, nil
		})
		notes("", back)
		notes("", other)
	})
}

// TestNotePeers_sameProcess: a process that has another session is back, however long it was there
// before, and also if that was seen before it was seen to be gone.
func TestNotePeers_sameProcess(t *testing.T) {
	t.Parallel()
	l := newShip("1").local
	gone := func(id string) event.Event {
		return event.Event{Kind: event.HostGone, Host: "10.0.0.1@-@1-a", Other: id, Time: time.Now()}
	}
	host := func(sessions ...string) Peer {
		return Peer{ClusterDetail: tree.ClusterDetail{ServerIP: "10.0.0.3", Started: time.Now().Add(-time.Hour), Sessions: sessions}}
	}
	l.NoteGone(gone("10.0.0.3@-@1-a-2"))
	if back := l.NotePeers([]Peer{host("10.0.0.3@-@1-a")}); len(back) != 0 { // what it had published
		t.Errorf("%+v", back)
	}
	if back := l.NotePeers([]Peer{host("10.0.0.3@-@1-a", "10.0.0.3@-@1-b")}); len(back) != 1 || back[0].Other != "10.0.0.3@-@1-a-2" {
		t.Errorf("%+v", back)
	}
	l.NotePeers([]Peer{host("10.0.0.3@-@1-a", "10.0.0.3@-@1-b", "10.0.0.3@-@1-c")})
	l.NoteGone(gone("10.0.0.3@-@1-b"))
	if back := l.NotePeers(nil); len(back) != 1 || back[0].Other != "10.0.0.3@-@1-b" {
		t.Errorf("%+v", back)
	}
}

// TestSightings: pages know which hosts were seen to be gone in the last day, by whichever host that
// is here, and ask no history for it; a host that begins knows it from its store.
func TestSightings(t *testing.T) {
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
			for _, e := range c.Sightings() {
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
		if n := len(c.Sightings()); n != mostSightings || len(f.self.local.sightings) != mostSightings {
			t.Errorf("%d are known", n)
		}
	})
}
