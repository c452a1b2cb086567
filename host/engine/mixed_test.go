package engine_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/host/event"
)

// A leader gives Java hosts the time that they need to have seen the flag,
// however its wall clock is set meanwhile.
func TestADivisionWaitsForJavaHostsWhateverTheClock(t *testing.T) {
	for _, jump := range []time.Duration{0, -time.Hour, time.Hour} {
		t.Run(jump.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, w := newCluster(t), &wallClock{}
				c.onWallClock(w)
				c.start(1, job(definition("mixed", "0 30 * * * ?", 4), sleeper(time.Second)))
				time.Sleep(time.Minute)
				before := len(c.list(event.Sharded))
				java, err := c.server.Connect(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer java.Close()
				if _, err := java.Commit(t.Context(),
					registry.Create("/test/mixed/servers/10.0.0.9", nil),
					registry.CreateEphemeral("/test/mixed/instances/10.0.0.9@-@99", nil)); err != nil {
					t.Fatal(err)
				}
				time.Sleep(coordination.FlagSettle / 2)
				w.set(jump)
				time.Sleep(coordination.FlagSettle/2 - time.Millisecond)
				if n := len(c.list(event.Sharded)); n != before {
					t.Fatalf("the items were divided before a Java host can have seen the flag:\n%s", c.all())
				}
				time.Sleep(2 * time.Millisecond)
				if n := len(c.list(event.Sharded)); n != before+1 {
					t.Errorf("the items were divided %d times since the Java host came:\n%s", n-before, c.all())
				}
			})
		})
	}
}

// TestMixedFlag: while a division is asked for, our hosts begin no more than Java
// hosts do, whichever kind leads; the instant that is due meanwhile runs after it.
// Else a schedule of each second never has a moment at which items can move.
// It kills the mutant "begin beside a flag for Java hosts".
func TestMixedFlag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.start(1, job(definition("mixed", "* * * * * ?", 4), sleeper(time.Millisecond)))
		time.Sleep(time.Minute)
		due := time.Now().Truncate(time.Second).Add(time.Second)
		const before = coordination.FlagSettle / 5
		time.Sleep(time.Until(due.Add(-before)))
		started := func() int { return len(c.list(event.ItemStarted)) }
		had := started()
		java, err := c.server.Connect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer java.Close()
		if _, err := java.Commit(t.Context(),
			registry.Create("/test/mixed/servers/10.0.0.9", nil),
			registry.CreateEphemeral("/test/mixed/instances/10.0.0.9@-@99", nil)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Until(due.Add(coordination.FlagSettle - before - time.Millisecond)))
		if n := started() - had; n != 0 {
			t.Errorf("%d items began while the flag stood:\n%s", n, c.all())
		}
		time.Sleep(10 * time.Millisecond)
		if n := started() - had; n == 0 {
			t.Errorf("the instant did not run after the division:\n%s", c.all())
		}
	})
}
