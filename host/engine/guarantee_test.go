package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/host/event"
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

// TestJavaHostThatMissedTheEndOfAListener: Java host has items, and does not come to the listeners of a fire any more: it has not
// noticed that those of an earlier fire were over. Our host says so, and deletes the marks of that fire, which wakes it.
func TestJavaHostThatMissedTheEndOfAListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		d := definition("mixed", "0 * * * * ?", 4)
		d.JobListenerTypes = []string{"summary"}
		n := c.start(1, job(d, sleeper(5*time.Second)))
		time.Sleep(time.Second)
		java := c.playJava(t.Context(), "10.0.0.9")
		time.Sleep(2*time.Minute + 30*time.Second)
		deleted := 0
		started := java.node("guarantee/started").Czxid
		time.Sleep(time.Minute)
		if now := java.node("guarantee/started").Czxid; now != started {
			deleted++
		}
		if started == 0 || deleted != 1 {
			t.Errorf("the marks of a fire to which the Java host did not come are left, and it goes on waiting")
		}
		said := ""
		for _, e := range c.list(event.JobError) {
			if e.Wait == event.WaitListener && len(e.Items) == 2 {
				said = e.Reason
			}
		}
		if !strings.Contains(said, java.id) || !strings.Contains(said, "has run nothing for") {
			t.Errorf("no event says that %s does nothing:\n%s", java.id, c.all())
		}
		if w := strings.Join(n.host.Status().Jobs[0].Warnings, "\n"); !strings.Contains(w, java.id) {
			t.Errorf("the status does not say that %s does nothing: %s", java.id, w)
		}

		// One that runs its items is not idle, however late it comes.
		before := len(c.list(event.JobError))
		for i := range 4 {
			if string(java.node(fmt.Sprintf("sharding/%d/instance", i)).Data) == java.id {
				java.commit(registry.CreateEphemeral(java.mark(i, "running"), []byte(java.id)))
			}
		}
		time.Sleep(time.Minute)
		if said := c.list(event.JobError)[before:]; len(said) > 0 {
			t.Errorf("a Java host that runs its items is said to do nothing:\n%s", lines(said))
		}
	})
}

// TestListenerBesideJava: a listener that runs once over all has ended here; a Java host that came just before is not
// waiting yet. The marks stay for a moment.
func TestListenerBesideJava(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		g := &guest{digest: "listens", run: func(context.Context, *abi.Invocation) abi.Result { return ok },
			listeners: map[string]func(*abi.Invocation) abi.Result{abi.ExportBeforeOnce: func(*abi.Invocation) abi.Result { return ok }}}
		d := definition("mixed", "0 * * * * ?", 4)
		d.JobListenerTypes = []string{"summary"}
		c.start(1, job(d, g))
		time.Sleep(time.Second)
		java := c.playJava(t.Context(), "10.0.0.9")
		time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute - time.Second)))
		java.commit(registry.Ensure(java.path("guarantee/started")))
		for i := range 4 {
			if string(java.node(fmt.Sprintf("sharding/%d/instance", i)).Data) == java.id {
				java.commit(registry.Create(java.path(fmt.Sprintf("guarantee/started/%d", i)), nil))
			}
		}
		time.Sleep(time.Second + 400*time.Millisecond)
		if !java.node("guarantee/started").Exists {
			t.Error("the marks were deleted before the Java host can have begun to wait: it would wait for ever")
		}
		time.Sleep(time.Second)
		if java.node("guarantee/started").Exists {
			t.Error("the marks are left, and the Java host waits")
		}
		if t.Failed() {
			t.Log("\n" + c.all())
		}
	})
}
