package engine_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/host/engine"
)

// TestSupersededDefinition: a definition that hosts have replaced by a newer one
// is not applied by a host that comes back with it, whether that has lost its
// session or was started again, with overwrite or without; the host says so. Who
// changes the file on a host that has the newer one goes back on purpose.
//
// It kills the mutant "superseded definition applied".
// It kills the mutant "superseded definition never applied".
func TestSupersededDefinition(t *testing.T) {
	for name, overwrite := range map[string]bool{"merged": false, "overwrite": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				older := definition("roll", "0 * * * * ?", 3)
				older.Overwrite = overwrite
				newer := older
				newer.Cron, newer.ShardingTotalCount = "0 0/5 * * * ?", 6
				with := func(d jobconfig.Configuration) engine.Job { return job(d, sleeper(time.Second)) }
				apply := func(n *node, d jobconfig.Configuration) {
					n.host.Apply([]engine.Job{with(d)}, nil)
					time.Sleep(10 * time.Second)
				}
				n1, n2, n3 := c.start(1, with(older)), c.start(2, with(older)), c.start(3, with(older))
				inForce := func(want jobconfig.Configuration, when string) {
					t.Helper()
					s := n1.host.Status().Jobs[0]
					if s.Cron != want.Cron || s.ShardingTotalCount != want.ShardingTotalCount {
						t.Errorf("%s: cron %q and %d items are in force, expected %q and %d", when, s.Cron, s.ShardingTotalCount, want.Cron, want.ShardingTotalCount)
					}
				}
				saysSo := func(n *node) bool {
					return strings.Contains(strings.Join(n.host.Status().Jobs[0].Warnings, "\n"), "the definition file is out of date")
				}
				time.Sleep(time.Minute)
				apply(n1, newer)
				apply(n2, newer)
				inForce(newer, "two of three hosts have the new file")

				c.expire(n3)
				time.Sleep(time.Minute)
				inForce(newer, "the third has lost its session and come back")
				if !saysSo(n3) || saysSo(n1) {
					t.Errorf("out of date: the third host says %v, expected true; the first %v, expected false", saysSo(n3), saysSo(n1))
				}
				n3.stop()
				<-n3.done
				n3 = c.start(3, with(older))
				time.Sleep(time.Minute)
				inForce(newer, "the third was started again")
				n3.host.Apply([]engine.Job{job(older, sleeper(2*time.Second))}, nil)
				time.Sleep(time.Minute)
				inForce(newer, "the third was given another module")
				if !saysSo(n3) {
					t.Error("the third host has another module, and says no more that its file is out of date")
				}
				apply(n3, newer)
				if saysSo(n3) {
					t.Error("the third host has the newer file, and still says that it is out of date")
				}

				apply(n1, older)
				inForce(older, "the file was changed back on the first host")
				c.expire(n2)
				time.Sleep(time.Minute)
				inForce(older, "the second, which has the newer file, has lost its session and come back")
				if !saysSo(n2) {
					t.Error("the second host does not say that its file is out of date")
				}
				n4 := c.start(4, with(newer))
				time.Sleep(time.Minute)
				if !saysSo(n4) {
					t.Error("a fourth host with the newer file does not say that it is out of date")
				}
				apply(n3, older)
				apply(n3, newer)
				inForce(newer, "the file was changed again on the third host, as on the fourth before")
				if saysSo(n4) {
					t.Error("the fourth host still says that its file is out of date")
				}
				apply(n3, older)
				inForce(older, "and once more")
				apply(n2, older)
				apply(n3, older)
				newer.Description = "anew"
				n3.stop()
				<-n3.done
				c.start(3, with(newer))
				time.Sleep(time.Minute)
				inForce(newer, "the third was started with a file that nobody had")
			})
		})
	}
}
