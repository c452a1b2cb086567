package engine_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/host/engine"
)

// forgetful is a host that keeps so many bytes of jobs without a definition.
func forgetful(t *testing.T, bytes int64) *cluster {
	c := newCluster(t)
	c.config = func(cfg *engine.Config) { cfg.OnlyHost, cfg.KeepUnused = true, bytes }
	c.start(1)
	return c
}

// bring gives the host these jobs, for a minute.
func (c *cluster) bring(names ...string) {
	var jobs []engine.Job
	for _, name := range names {
		d := definition(name, "0 0 0 1 1 ?", 1)
		d.Description = strings.Repeat("x", 100_000) // twice in the registry
		jobs = append(jobs, job(d, sleeper(time.Second)))
	}
	c.hosts["10.0.0.1"].host.Apply(jobs, nil)
	time.Sleep(time.Minute)
}

// there checks which jobs the registry has, and that nothing is left of others.
func (c *cluster) there(want string) {
	c.t.Helper()
	for _, root := range []string{"/test", "/test.wasmjob"} {
		var names []string
		for _, name := range c.nodes(registry.Children(root))[0].Names {
			if strings.HasPrefix(name, "job-") {
				names = append(names, name)
			}
		}
		if got := strings.Join(names, " "); got != want {
			c.t.Errorf("%s has %q, expected %q", root, got, want)
		}
	}
}

// Of jobs without a definition those that had one for the shortest time are forgotten, as
// far as they take more than the registry keeps; and a job comes back as a new one.
func TestKeepUnused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := forgetful(t, 500_000)
		c.bring("job-old")
		time.Sleep(time.Hour)
		c.bring("job-1", "job-2")
		c.bring("job-3") // 1, 2 and old are gone: one is too many
		c.there("job-2 job-3 job-old")
		for range 20 {
			c.bring("job-4")
			c.bring("job-5")
		}
		c.bring()
		c.there("job-5 job-old")
		c.bring("job-1", "job-old", "job-5")
		c.there("job-1 job-5 job-old")
	})
}

// A job that an operator has disabled is not forgotten, so that it does not come back enabled;
// nor is one that was there before this host.
func TestKeepUnused_stays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := forgetful(t, 1)
		n := c.hosts["10.0.0.1"]
		c.bring("job-1", "job-2")
		noError(t, n.operator().Disable(t.Context(), "job-1"))
		c.bring()
		c.there("job-1")
		c.bring("job-2")
		n.stop()
		<-n.done
		c.start(1)
		time.Sleep(time.Minute)
		c.bring("job-3")
		c.bring()
		c.there("job-1 job-2")
	})
}

// A registry that other hosts use keeps all.
func TestKeepUnused_shared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := forgetful(t, 0)
		c.bring("job-1", "job-2")
		c.bring()
		c.there("job-1 job-2")
	})
}
