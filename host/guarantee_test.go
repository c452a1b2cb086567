package host_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

// TestListenersOfJavaHostsDoNotWaitInVain: a job has listeners of Java hosts that run
// once over all items, and our module exports none. Ours mark their items all the same;
// if ours are the last, the marks go, so that no Java host waits until it times out.
func TestListenersOfJavaHostsDoNotWaitInVain(t *testing.T) {
	for name, tc := range map[string]struct {
		types     []string
		javaFirst bool
		want      bool // our marks are written
	}{
		"a Java host is the last": {[]string{"summary"}, false, true},
		"ours is the last":        {[]string{"summary"}, true, true},
		"no listeners":            {nil, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				d := definition("mixed", "0 * * * * ?", 4)
				d.JobListenerTypes = tc.types
				c.start(1, job(d, sleeper(5*time.Second)))
				time.Sleep(time.Second)
				java, err := c.server.Connect(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer java.Close()
				commit := func(ops ...registry.Op) {
					t.Helper()
					if _, err := java.Commit(t.Context(), ops...); err != nil {
						t.Fatal(err)
					}
				}
				commit(registry.Create("/test/mixed/servers/10.0.0.9", nil), registry.CreateEphemeral("/test/mixed/instances/10.0.0.9@-@99", nil))
				time.Sleep(30 * time.Second)
				names := func(phase string) []string {
					n, err := java.Read(t.Context(), registry.Children("/test/mixed/guarantee/"+phase))
					if err != nil {
						t.Fatal(err)
					}
					return slices.Sorted(slices.Values(n[0].Names))
				}
				var ours, javas []string
				for i := range 4 {
					item := string(rune('0' + i))
					n, err := java.Read(t.Context(), registry.Data("/test/mixed/sharding/"+item+"/instance"))
					if err != nil {
						t.Fatal(err)
					}
					if string(n[0].Data) == "10.0.0.9@-@99" {
						javas = append(javas, item)
					} else {
						ours = append(ours, item)
					}
				}
				if len(ours) != 2 {
					t.Fatalf("ours has %v", ours)
				}
				register := func(phase string) {
					commit(registry.Ensure("/test/mixed/guarantee/" + phase))
					for _, item := range javas {
						commit(registry.Create("/test/mixed/guarantee/"+phase+"/"+item, nil))
					}
				}
				clear := func(phase string) {
					for _, item := range names(phase) {
						commit(registry.Delete("/test/mixed/guarantee/"+phase+"/"+item, registry.AnyVersion))
					}
					commit(registry.Delete("/test/mixed/guarantee/"+phase, registry.AnyVersion))
				}
				due := time.Now().Truncate(time.Minute).Add(time.Minute)
				for k, phase := range []string{"started", "completed"} {
					time.Sleep(time.Until(due.Add(time.Duration(5*k)*time.Second - 100*time.Millisecond)))
					if tc.javaFirst {
						register(phase)
					}
					time.Sleep(500 * time.Millisecond)
					switch got := names(phase); {
					case !tc.want:
						if len(got) > 0 {
							t.Errorf("%s: marks %v", phase, got)
						}
					case tc.javaFirst:
						if len(got) != 4 {
							t.Errorf("%s: marks %v, want those of all items", phase, got)
						}
						time.Sleep(3 * time.Second)
						if got := names(phase); len(got) > 0 {
							t.Errorf("%s: marks %v are left, and a Java host waits for them", phase, got)
						}
					default:
						if !slices.Equal(got, ours) {
							t.Errorf("%s: marks %v, want those of %v", phase, got, ours)
						}
						register(phase)
						clear(phase) // its listener has run
					}
				}
				if t.Failed() {
					t.Log("\n" + c.all())
				}
			})
		})
	}
}
