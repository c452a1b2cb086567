package engine_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/event"
)

// TestRunThatOthersRecordedAsLost: an operator deletes both nodes of a host that lives, which declares it
// dead. The host says what has become of its run, and not that it is completed.
func TestRunThatOthersRecordedAsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		d := definition("j", "0 0 * * * ?", 2)
		c.start(1, job(d, sleeper(20*time.Second)))
		c.start(2, job(d, sleeper(20*time.Second)))
		time.Sleep(time.Hour + 5*time.Second)
		l := tree.NewLayout("test", "j")
		var id string
		for _, name := range c.nodes(registry.Children(l.Details()))[0].Names {
			if strings.HasPrefix(name, "10.0.0.1@-@") {
				id = name
			}
		}
		if err := c.operate(func(ctx context.Context, r registry.Center) error {
			_, err := r.Commit(ctx, registry.Delete(l.Instance(id), registry.AnyVersion), registry.Delete(l.Detail(id), registry.AnyVersion))
			return err
		}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		said := 0
		for _, e := range c.list(event.ItemSkipped) {
			if e.Cause == event.SkipLost && e.Outcome == tree.OutcomeLost && strings.HasPrefix(e.Reason, "other hosts took this host for dead and recorded the run as LOST") {
				said++
			}
		}
		if done := c.list(event.ItemCompleted); len(done) != 1 || said != 1 {
			t.Errorf("%d are completed, and %d said to be lost by their own host, want one and one\n%s", len(done), said, c.all())
		}
	})
}
