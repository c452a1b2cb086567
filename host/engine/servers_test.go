package engine_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/coordination/admin/operate"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/history/verify"
)

// TestServersThatCameAndWent: the nodes of servers whose hosts came and went go
// after Config.KeepServers, also where the leader changes meanwhile; that of a
// disabled one stays, and verify lists what is there.
func TestServersThatCameAndWent(t *testing.T) {
	for name, keep := range map[string]time.Duration{"a day": 0, "an hour": time.Hour, "for ever": -1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				c.config = func(cfg *engine.Config) { cfg.KeepServers = keep }
				d := definition("pods", "0 0 * * * ?", 4)
				rc, err := c.server.Connect(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				leader := c.start(1, job(d, sleeper(time.Second)))
				for n := 2; n < 32; n++ {
					h := c.start(n, job(d, sleeper(time.Second)))
					time.Sleep(30 * time.Second)
					h.stop()
					<-h.done
				}
				if _, err := operate.SetServers(t.Context(), rc, tree.NewLayout("test", "pods"), tree.Word{}, false, "10.0.0.7"); err != nil {
					t.Fatal(err)
				}
				limit := max(keep, 0)
				if keep == 0 {
					limit = 24 * time.Hour
				}
				time.Sleep(limit / 2)
				second := c.start(100, job(d, sleeper(time.Second)))
				time.Sleep(time.Minute)
				leader.stop()
				<-leader.done
				servers := func() []string {
					n, err := rc.Read(t.Context(), registry.Children("/test/pods/servers"))
					if err != nil {
						t.Fatal(err)
					}
					return n[0].Names
				}
				if got := len(servers()); got != 32 {
					t.Errorf("%d servers after half of the time, expected 32", got)
				}
				time.Sleep(limit/2 + 30*time.Minute + 7*time.Second) // between two sweeps
				got := servers()
				switch {
				case keep < 0 && len(got) != 32:
					t.Errorf("%d servers, expected 32", len(got))
				case keep >= 0 && (!slices.Contains(got, "10.0.0.7") || !slices.Contains(got, "10.0.0.100") || len(got) > 3): // the first leader went later
					t.Errorf("after the time: servers %v, expected the disabled one, that of the host and at most that of the host before", got)
				}
				looked, left, err := verify.LeftBehind(t.Context(), rc, "test", 0)
				if err != nil || len(left) > 0 {
					t.Errorf("verify finds %v, %v", left, err)
				}
				if len(looked.Unused) != len(got)-1 || !slices.ContainsFunc(looked.Unused, func(u verify.UnusedServer) bool { return u.Server == "10.0.0.7" && u.Disabled }) {
					t.Errorf("verify lists %+v, expected all of %v without the host's, the disabled one as such", looked.Unused, got)
				}
				second.stop()
				<-second.done
				if err := rc.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
