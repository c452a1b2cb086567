//go:build interop

package interop_test

import (
	"slices"
	"syscall"
	"testing"

	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/test/interop/peer"
)

// runsOf waits until each of the items has ended so many times since the mark
// and all is quiet, and returns how often every item was begun.
func (c *cluster) runsOf(mark, total, times int, which ...int) []int {
	c.t.Helper()
	c.runs("the items to run as often as they were triggered", mark, func(list []peer.Run) bool {
		ended := make([]int, total)
		for _, r := range list {
			if !r.End.IsZero() && !r.Cut {
				ended[r.Item]++
			}
		}
		return !slices.ContainsFunc(which, func(i int) bool { return ended[i] < times })
	})
	c.until("quiet", func(v *view) bool { return v.idle(total) })
	begun := make([]int, total)
	for _, r := range c.log.Runs(c.job, mark) {
		begun[r.Item]++
	}
	return begun
}

// ranEach waits until each item has ended so many times since the mark and all
// is quiet, and demands that none ran more often.
func (c *cluster) ranEach(mark, total, times int) {
	c.t.Helper()
	if begun := c.runsOf(mark, total, times, items(total)...); slices.Max(begun) != times {
		c.t.Errorf("the items ran %v times, want %d each:\n%s", begun, times, peer.Text(c.log.Runs(c.job, mark)))
	}
}

// leader is which of ours leads.
func (c *cluster) leader() *ours {
	c.t.Helper()
	for _, o := range c.ours {
		if c.leads(o.ip) {
			return o
		}
	}
	c.t.Fatal("none of ours leads")
	return nil
}

// TestConsoleTriggersBesideADisabledServer: ElasticJob's API triggers while a
// server of ours is disabled, and while it is just being disabled or enabled:
// each item of each round runs once.
func TestConsoleTriggersBesideADisabledServer(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "triggered")
	const total = 7
	for range 3 {
		c.start(definition(total))
	}
	c.divided(total, 3)
	for _, o := range c.ours { // the leader, and two that follow
		mark := c.log.Mark()
		c.console("disable", peer.Request{"ip": o.ip}, nil)
		c.console("trigger", nil, nil) // the items are being divided anew
		c.ranEach(mark, total, 1)
		c.divided(total, 3)
		c.once(mark, total, items(total)...)
		for range 2 {
			c.round(total)
		}

		// Whoever is enabled again does not make up for what it was not
		// to do.
		mark = c.log.Mark()
		c.console("enable", peer.Request{"ip": o.ip}, nil)
		c.divided(total, 3)
		c.round(total)
		c.ranEach(mark, total, 1)

		mark = c.log.Mark()
		c.console("disable", peer.Request{"ip": o.ip}, nil)
		c.divided(total, 3)
		c.console("enable", peer.Request{"ip": o.ip}, nil)
		c.console("trigger", nil, nil)
		c.ranEach(mark, total, 1)
		c.divided(total, 3)
	}
	c.apart()
}

// TestConsoleTriggersWhileItemsRunAndAServerIsDisabled: the trigger waits for
// the running items. What a server would have run that was disabled in the
// meantime runs once elsewhere, or the server says in its history that it did
// not: it depends on whether the others hear first that they are triggered or
// that the items are divided anew.
func TestConsoleTriggersWhileItemsRunAndAServerIsDisabled(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "pending")
	const total = 6
	for range 3 {
		c.start(definition(total))
	}
	c.divided(total, 3)
	for _, o := range c.ours {
		o.hold()
	}
	mark := c.log.Mark()
	c.console("trigger", nil, nil)
	c.begun(mark, items(total)...)
	c.until("all to have consumed it", func(v *view) bool { return len(v.children("trigger")) == 0 })
	o := c.ours[1]
	var id string
	c.now(func(v *view) { id = o.idIn(v) })
	theirs := c.owned(id, total)
	events := o.Mark()
	c.console("trigger", nil, nil)
	c.console("disable", peer.Request{"ip": o.ip}, nil)
	for _, o := range c.ours {
		o.release()
	}
	others := slices.DeleteFunc(items(total), func(i int) bool { return slices.Contains(theirs, i) })
	c.runsOf(mark, total, 2, others...)
	c.divided(total, 3)
	c.until("its trigger to be consumed", func(v *view) bool { return !v.has("trigger/" + id) })
	begun := c.runsOf(mark, total, 1, items(total)...)
	for i, n := range begun {
		switch {
		case n == 2:
		case n == 1 && slices.Contains(theirs, i):
			o.await("the items that were not run", events, func(e event.Event) bool {
				return e.Kind == event.FireSkipped && e.Cause == event.SkipDisabled
			})
		default:
			t.Errorf("item %d ran %d times, want 2 (those of the disabled server: %v):\n%s", i, n, theirs, peer.Text(c.log.Runs(c.job, mark)))
		}
	}
	c.round(total)
	c.apart()
}

// TestConsoleTriggersRightAfterAJoin: ElasticJob's API triggers when a host of
// ours has joined and the items are not divided anew yet, since the leader
// sleeps: each item of the round runs once, by the old division or the new one.
func TestConsoleTriggersRightAfterAJoin(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "joined")
	const total = 7
	c.start(definition(total))
	c.start(definition(total))
	c.divided(total, 2)
	c.status("OK") // the console is there
	tried := false
	for n := 3; n <= 5; n++ {
		leader := c.leader()
		var before, after string
		c.now(func(v *view) { before = leader.idIn(v) })
		mark := c.log.Mark()
		c.check(leader.Signal(syscall.SIGSTOP))
		c.start(definition(total)) // nobody asks for a division: the leader will see it
		c.console("trigger", nil, nil)
		c.check(leader.Signal(syscall.SIGCONT))
		c.divided(total, n)
		c.now(func(v *view) { after = leader.idIn(v) })
		if after != before {
			// It slept too long for its session, and came back as another
			// instance, which nobody has triggered.
			t.Logf("%d hosts: the leader lost its session on this slow machine", n)
			c.until("quiet", func(v *view) bool { return v.idle(total) })
		} else {
			tried = true
			c.ranEach(mark, total, 1)
		}
		c.round(total)
	}
	if !tried {
		t.Error("the leader lost its session each time: nothing was shown")
	}
	c.apart()
}

// TestConsoleTriggersWhileItemsRunAndAHostJoins: what runs stays where it is,
// and moves when it has ended; the trigger that was made meanwhile runs each
// item once more.
func TestConsoleTriggersWhileItemsRunAndAHostJoins(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "busy")
	const total = 6
	a := c.start(definition(total))
	b := c.start(definition(total))
	c.divided(total, 2)
	a.hold()
	b.hold()
	mark := c.log.Mark()
	c.console("trigger", nil, nil)
	c.begun(mark, items(total)...)
	c.until("both to have consumed it", func(v *view) bool { return len(v.children("trigger")) == 0 })
	c.start(definition(total))
	c.console("trigger", nil, nil)
	a.release()
	b.release()
	c.ranEach(mark, total, 2)
	c.divided(total, 3)
	c.round(total)
	c.apart()
}
