package host_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/host"
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
				before := len(c.list(host.EventSharded))
				java, err := c.server.Connect(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer java.Close()
				if _, err := java.Commit(t.Context(),
					coordination.Create("/test/mixed/servers/10.0.0.9", nil),
					coordination.CreateEphemeral("/test/mixed/instances/10.0.0.9@-@99", nil)); err != nil {
					t.Fatal(err)
				}
				time.Sleep(coordination.FlagSettle / 2)
				w.set(jump)
				time.Sleep(coordination.FlagSettle/2 - time.Millisecond)
				if n := len(c.list(host.EventSharded)); n != before {
					t.Fatalf("the items were divided before a Java host can have seen the flag:\n%s", c.all())
				}
				time.Sleep(2 * time.Millisecond)
				if n := len(c.list(host.EventSharded)); n != before+1 {
					t.Errorf("the items were divided %d times since the Java host came:\n%s", n-before, c.all())
				}
			})
		})
	}
}
