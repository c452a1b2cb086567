package host_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/host"
)

// TestStart: an operator's start brings a job back that was shut down or removed,
// with the definition that is still there; a job that runs is left alone.
func TestStart(t *testing.T) {
	for name, stop := range map[string]func(*testing.T, *cluster, *node){
		"after shutdown": func(t *testing.T, c *cluster, n *node) {
			r, err := c.server.Connect(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			layout := coordination.NewLayout("test", "back")
			if err := coordination.Perform(t.Context(), r, coordination.StopInstance(layout, n.host.Status().Instance)); err != nil {
				t.Fatal(err)
			}
		},
		"after remove": func(t *testing.T, _ *cluster, n *node) {
			if err := n.host.Remove(t.Context(), "back", false); err != nil {
				t.Fatal(err)
			}
		},
		"after remove with purge": func(t *testing.T, _ *cluster, n *node) {
			if err := n.host.Remove(t.Context(), "back", true); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				n := c.start(1, job(definition("back", "*/5 * * * * ?", 2), sleeper(time.Second)))
				time.Sleep(11 * time.Second)
				if err := n.host.Start(t.Context(), "back"); err != nil {
					t.Errorf("of a job that runs: %v", err)
				}
				time.Sleep(time.Second)
				if joined := len(c.list(host.EventJobAdded)); joined != 1 {
					t.Errorf("joined %d times, want once", joined)
				}
				stop(t, c, n)
				time.Sleep(10 * time.Second)
				s := n.host.Status().Jobs[0]
				if s.State != host.JobStopped && s.State != host.JobRemoved {
					t.Fatalf("state %s, want stopped or removed", s.State)
				}
				if !s.Next.IsZero() {
					t.Errorf("the next fire is shown as %s, want none", s.Next)
				}
				before := len(c.list(host.EventItemCompleted))
				if err := n.host.Start(t.Context(), "back"); err != nil {
					t.Fatal(err)
				}
				time.Sleep(16 * time.Second)
				s = n.host.Status().Jobs[0]
				if ran := len(c.list(host.EventItemCompleted)) - before; ran < 4 || s.Next.IsZero() {
					t.Errorf("after start: state %s, next %s, %d items ran\n%s", s.State, s.Next, ran, c.all())
				}
				if err := n.host.Start(t.Context(), "none"); !errors.Is(err, host.ErrNoJob) {
					t.Errorf("of a job that is not there: %v", err)
				}
			})
		})
	}
}
