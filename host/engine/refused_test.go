package engine_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/internal/text/reason"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// TestRefusalsEnd: each host says when it refuses nothing of a job any more, also one that has no item,
// and though what is in force is what was in force before.
func TestRefusalsEnd(t *testing.T) {
	good, bad := sleeper(time.Second), &guest{digest: "bad", bad: errors.New("job_execute is missing")}
	d := definition("refused", "0 0 3 * * ?", 1)
	config := func(change func(*jobconfig.Configuration)) func(*cluster, []*node) {
		return func(c *cluster, _ []*node) {
			changed := d
			change(&changed)
			c.commit(registry.Set("/test/refused/config", changed.YAML(), registry.AnyVersion))
		}
	}
	module := func(g *guest) func(*cluster, []*node) {
		return func(_ *cluster, hosts []*node) {
			for _, n := range hosts {
				n.host.Apply([]engine.Job{job(d, g)}, nil)
			}
		}
	}
	as := config(func(*jobconfig.Configuration) {})
	for name, change := range map[string]struct{ refused, mended func(*cluster, []*node) }{
		"settings": {config(func(d *jobconfig.Configuration) { d.ShardingTotalCount = 20000 }), as},
		"cron":     {config(func(d *jobconfig.Configuration) { d.Cron = "0 0 99 * * ?" }), as},
		"module":   {module(bad), module(good)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				c.config = func(cfg *engine.Config) { cfg.Ceilings = ceilings(t, "*:shardingTotalCount=10") }
				hosts := []*node{c.start(1, job(d, good)), c.start(2, job(d, good))}
				time.Sleep(time.Minute)
				change.refused(c, hosts)
				time.Sleep(time.Minute)
				change.mended(c, hosts)
				time.Sleep(time.Minute)
				for _, server := range []string{"10.0.0.1@", "10.0.0.2@"} {
					said := slices.DeleteFunc(c.list(event.JobError, event.JobConfigured), func(e event.Event) bool { return !strings.HasPrefix(e.Host, server) })
					reasons := make([]string, len(said))
					for i, e := range said {
						reasons[i] = string(e.Kind) + " " + e.Reason
					}
					if len(said) != 4 || !slices.Equal(reasons, []string{"job.configured ", "job.error " + said[1].Reason, "job.configured " + said[1].Reason, "job.configured "}) {
						t.Errorf("want that it is configured, an error, that it is configured in spite of that, and that it is without:\n%s", lines(said))
					}
				}
			})
		})
	}
}

// TestStatusShowsTheCronInForce: a console writes a cron that is refused.
func TestStatusShowsTheCronInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		d := definition("refused", "0 * * * * ?", 2)
		n := c.start(1, job(d, sleeper(time.Second)))
		time.Sleep(time.Minute)
		for _, tc := range []struct{ cron, want, refused string }{
			{"0 0 99 * * ?", "0 * * * * ?", "0 0 99 * * ?"},
			{"0 0 3 * * ?", "0 0 3 * * ?", ""},
		} {
			d.Cron = tc.cron
			c.commit(registry.Set("/test/refused/config", d.YAML(), registry.AnyVersion))
			time.Sleep(time.Second)
			s := n.host.Status().Jobs[0]
			if s.Cron != tc.want || s.RefusedCron != tc.refused || (s.State == engine.JobError) != (tc.refused != "") {
				t.Errorf("cron %q: status shows %q, refused %q, state %s", tc.cron, s.Cron, s.RefusedCron, s.State)
			}
			if tc.refused != "" && !strings.Contains(s.Reason, "99") {
				t.Errorf("reason %q", s.Reason)
			}
		}
	})
}

// TestReasonsAreBounded: what a host says about itself and its jobs is short, also if a file or the registry has very
// much to say.
func TestReasonsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		long := strings.Repeat("long ", 10_000)
		c.config = func(cfg *engine.Config) { cfg.LastEnd = reason.New(reason.LastHostDied, 1, long, long) }
		d := definition("bounded", "0 0 3 * * ?", 1)
		n := c.start(1, job(d, sleeper(time.Second)))
		time.Sleep(time.Minute)
		if started := c.list(event.HostStarted); len(started) != 1 || len(started[0].Reason) > event.MaxReason || !strings.HasSuffix(started[0].Reason, " more bytes)") {
			t.Errorf("the start: %.300v", started)
		} else if because := started[0].Because; len(because) != 1 || len(because.Arg("reason")) > event.MaxReason/4 || len(because.Arg("at")) > event.MaxReason/4 {
			t.Errorf("the arguments of the start: %.300v", because)
		}
		// Keys that nobody knows are warnings, values of another kind are errors.
		c.commit(registry.Set("/test/bounded/config", []byte(string(d.YAML())+strings.Repeat("unknown: 1\n", 5000)), registry.AnyVersion))
		time.Sleep(time.Minute)
		if s := status(n, "bounded"); len(s.Warnings) == 0 || len(s.Warnings) > words.MostProblems || len(strings.Join(s.Warnings, "")) > words.MaxReasons {
			t.Errorf("%d warnings of %d bytes", len(s.Warnings), len(strings.Join(s.Warnings, "")))
		}
		c.commit(registry.Set("/test/bounded/config", []byte(string(d.YAML())+"jobListenerTypes: ["+strings.Repeat("[],", 5000)+"]\n"), registry.AnyVersion))
		time.Sleep(time.Minute)
		if s := status(n, "bounded"); s.State != engine.JobError || len(s.Reason) > words.MaxReason || !strings.HasSuffix(s.Reason, " more bytes)") {
			t.Errorf("%s: %.300s", s.State, s.Reason)
		}
	})
}
