package event_test

import (
	"testing"

	"github.com/wasmjob/wasmjob/host/event"
)

// TestBehind: what a host has found holds for one session, with its doubts.
func TestBehind(t *testing.T) {
	t.Parallel()
	var b event.Behind
	session := func(host, reason string) event.Event {
		return event.Event{Kind: event.Session, Host: host, Reason: reason}
	}
	for n, step := range []struct {
		event           event.Event
		behind, changed bool
	}{
		{session("a", "live"), false, false},
		{session("a", "lost"), false, false},
		{event.Event{Kind: event.RegistryBehind}, true, true},
		{session("b", "live"), true, false},
		{session("b", "suspect"), true, false},
		{session("b", "live"), true, false},
		{event.Event{Kind: event.Session, Wait: event.WaitSession, Reason: "live"}, true, false},
		{session("b", "lost"), true, false},
		{event.Event{Kind: event.RegistryBehind}, true, false},
		{session("c", "live"), true, false},
		{session("c", "lost"), true, false},
		{session("d", "live"), false, true},
		{session("d", "live"), false, false},
	} {
		if behind, changed := b.See(step.event); behind != step.behind || changed != step.changed {
			t.Errorf("event %d: behind is %v, changed %v; expected %v, %v", n, behind, changed, step.behind, step.changed)
		}
	}
}
