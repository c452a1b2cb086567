package engine_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
)

// TestAnOrphanInALatchHoldsUpNoStart (T6 of docs/complaints.md): somebody who is gone, or who
// does not get on, has left a node in the latch of the election, and hosts that
// start wait behind it for ever. Nobody of ElasticJob's is there. Hosts that
// start wait half a minute, all jobs at once, say for whom, and go on; a crash
// is dealt with at once.
func TestAnOrphanInALatchHoldsUpNoStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.config = func(cfg *engine.Config) { cfg.MaxConcurrency = 100 } // nobody waits for a slot
		var jobs []engine.Job
		for n := range 20 {
			d := definition(fmt.Sprintf("job%02d", n), "0/10 * * * * ?", 6)
			d.Failover = true
			jobs = append(jobs, job(d, sleeper(7*time.Second)))
		}
		fleet := []*node{c.start(1, jobs...), c.start(2, jobs...), c.start(3, jobs...)}
		time.Sleep(35 * time.Second)
		for _, n := range fleet {
			n.stop()
			<-n.done
		}
		sleeping, err := c.server.Connect(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		defer sleeping.Close()
		const name = "_c_00000000-0000-0000-0000-000000000000-latch-0000000000"
		for n, j := range jobs {
			for _, latch := range []string{"/leader/election/latch", "/leader/failover/latch"} {
				path := tree.NewLayout("test", j.Definition.JobName).Root() + latch
				if n%2 == 0 {
					c.commit(registry.Ensure(path), registry.Create(path+"/"+name, nil))
					continue
				}
				if _, err := sleeping.Commit(context.Background(), registry.Ensure(path), registry.CreateEphemeral(path+"/"+name, nil)); err != nil {
					t.Fatal(err)
				}
			}
		}
		time.Sleep(time.Until(time.Now().Truncate(10 * time.Second).Add(15 * time.Second)))
		begin := time.Now()
		before := len(c.list(event.ItemStarted))
		fleet = []*node{c.start(4, jobs...), c.start(5, jobs...), c.start(6, jobs...)}
		time.Sleep(45 * time.Second)
		synctest.Wait()
		ran := make(map[string]bool)
		for _, e := range c.list(event.ItemStarted)[before:] {
			ran[fmt.Sprint(e.Job, *e.Item)] = true
		}
		if len(ran) != 6*len(jobs) {
			t.Errorf("45 s after a start behind an orphan %d of %d items have begun", len(ran), 6*len(jobs))
		}
		told := make(map[string]bool)
		for _, e := range c.list(event.JobError) {
			if e.Time.After(begin) && strings.Contains(e.Reason, name+" has stood in the way for 30s") {
				told[e.Job] = true
			}
		}
		if len(told) != len(jobs) {
			t.Errorf("of %d jobs %d say who was in the way: %v", len(jobs), len(told), slices.Sorted(maps.Keys(told)))
		}

		// One dies while its items run, and the others look to it right away.
		time.Sleep(time.Until(time.Now().Truncate(10 * time.Second).Add(12 * time.Second)))
		fleet[0].kill()
		<-fleet[0].done
		time.Sleep(time.Second)
		synctest.Wait()
		again := make(map[string]bool)
		for _, e := range c.list(event.ItemStarted) {
			if e.Source == abi.SourceFailover && !strings.HasPrefix(e.Host, "10.0.0.4@") {
				again[fmt.Sprint(e.Job, *e.Item)] = true
			}
		}
		if len(again) != 2*len(jobs) {
			t.Errorf("a second after a host died with %d items running, %d of them run again", 2*len(jobs), len(again))
		}
		if t.Failed() {
			t.Log("\n" + c.all())
		}
	})
}
