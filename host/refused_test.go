package host_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/host"
)

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
			if s.Cron != tc.want || s.RefusedCron != tc.refused || (s.State == host.JobError) != (tc.refused != "") {
				t.Errorf("cron %q: status shows %q, refused %q, state %s", tc.cron, s.Cron, s.RefusedCron, s.State)
			}
			if tc.refused != "" && !strings.Contains(s.Reason, "99") {
				t.Errorf("reason %q", s.Reason)
			}
		}
	})
}
