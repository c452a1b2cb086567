package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
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
			layout := tree.NewLayout("test", "back")
			if err := stopInstance(t.Context(), r, layout, n.host.Status().Instance); err != nil {
				t.Fatal(err)
			}
		},
		"after remove": func(t *testing.T, _ *cluster, n *node) {
			if err := n.operator().Remove(t.Context(), "back", false); err != nil {
				t.Fatal(err)
			}
		},
		"after remove with purge": func(t *testing.T, _ *cluster, n *node) {
			if err := n.operator().Remove(t.Context(), "back", true); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				n := c.start(1, job(definition("back", "*/5 * * * * ?", 2), sleeper(time.Second)))
				time.Sleep(11 * time.Second)
				if err := n.host.Start(t.Context(), "back", tree.Word{By: "user alice"}); err != nil {
					t.Errorf("of a job that runs: %v", err)
				}
				time.Sleep(time.Second)
				if joined := len(c.list(event.JobAdded)); joined != 1 {
					t.Errorf("joined %d times, want once", joined)
				}
				stop(t, c, n)
				time.Sleep(10 * time.Second)
				s := n.host.Status().Jobs[0]
				if s.State != engine.JobStopped && s.State != engine.JobRemoved {
					t.Fatalf("state %s, want stopped or removed", s.State)
				}
				if !s.Next.IsZero() {
					t.Errorf("the next fire is shown as %s, want none", s.Next)
				}
				before := len(c.list(event.ItemCompleted))
				if err := n.host.Start(t.Context(), "back", tree.Word{By: "user alice"}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(16 * time.Second)
				s = n.host.Status().Jobs[0]
				if ran := len(c.list(event.ItemCompleted)) - before; ran < 4 || s.Next.IsZero() {
					t.Errorf("after start: state %s, next %s, %d items ran\n%s", s.State, s.Next, ran, c.all())
				}
				if err := n.host.Start(t.Context(), "none", tree.Word{}); !errors.Is(err, engine.ErrNoJob) {
					t.Errorf("of a job that is not there: %v", err)
				}
			})
		})
	}
}

// TestLastFireAfterRestart: a host that has just begun shows what the registry's
// records know of its items and of the job's last fire.
func TestLastFireAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		d := definition("hourly", "0 0 * * * ?", 2)
		g := &guest{digest: "ends", run: func(_ context.Context, inv *abi.Invocation) abi.Result {
			time.Sleep(2 * time.Second)
			if inv.Context.ShardingItem == 1 {
				return abi.Result{Outcome: abi.OutcomeTrap, Message: "boom"}
			}
			return ok
		}}
		first := c.start(1, job(d, g))
		time.Sleep(time.Until(time.Now().Truncate(time.Hour).Add(time.Hour + 5*time.Second)))
		began := time.Now().Truncate(time.Hour)
		first.stop()
		<-first.done
		second := c.start(1, job(d, g))
		time.Sleep(5 * time.Second)
		s := second.host.Status().Jobs[0]
		f := s.LastFire
		if f == nil || !f.Instant.Equal(began) || f.Source != abi.SourceSchedule || len(f.Items) != 2 || f.Outcome != abi.OutcomeTrap || f.Duration < time.Second || f.Duration > 4*time.Second {
			t.Errorf("last fire %+v, want the one of %s with TRAP", f, began)
		}
		for n, want := range []abi.Outcome{abi.OutcomeOK, abi.OutcomeTrap} {
			if i := s.Items[n]; i.LastOutcome != want || i.LastEnd.Sub(began) < time.Second {
				t.Errorf("item %+v, want %s", i, want)
			}
		}
	})
}

// TestFailoverWithoutMarks: a configuration in the registry whose failover never
// happens is warned of.
func TestFailoverWithoutMarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		d := definition("marks", "", 1)
		d.Failover, d.MonitorExecution = true, false
		n := c.start(1, job(d, sleeper(time.Second)))
		time.Sleep(time.Second)
		if w := n.host.Status().Jobs[0].Warnings; len(w) != 1 || w[0] != "failover is true, but monitorExecution is false: items of a host that dies are not taken over" {
			t.Errorf("warnings %q", w)
		}
	})
}

// TestHandlerThatSendsNothing: a job whose error handler sends nothing says so, in its status and
// once in the log.
func TestHandlerThatSendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		core, logs := observer.New(zap.WarnLevel)
		c.log = zap.New(core)
		c.config = func(cfg *engine.Config) {
			cfg.HandlerProblem = func(handler string) string {
				if handler == "EMAIL" {
					return "there is no file of alerts"
				}
				return ""
			}
		}
		mail, plain := definition("mail", "", 1), definition("plain", "", 1)
		mail.JobErrorHandlerType = "EMAIL"
		n := c.start(1, job(mail, sleeper(time.Second)), job(plain, sleeper(time.Second)))
		time.Sleep(time.Second)
		for _, s := range n.host.Status().Jobs {
			if w := s.Warnings; (s.Name == "mail") != (len(w) == 1 && w[0] == "jobErrorHandlerType EMAIL sends nothing: there is no file of alerts") {
				t.Errorf("job %s: warnings %q", s.Name, w)
			}
		}
		said := logs.FilterMessage("the job's error handler sends nothing").All()
		if len(said) != 1 || said[0].ContextMap()["job"] != "mail" {
			t.Errorf("log %v", said)
		}
	})
}

// TestDrainNamesItems: the log says which items a host that drains waits for.
func TestDrainNamesItems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		core, logs := observer.New(zap.InfoLevel)
		c.log = zap.New(core)
		n := c.start(1, job(definition("long", "", 3), sleeper(5*time.Second)), job(definition("idle", "", 1), sleeper(time.Second)))
		synctest.Wait()
		if err := n.operator().Trigger(t.Context(), "long"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		n.stop()
		<-n.done
		waits := logs.FilterMessage("draining: waiting for items to end").All()
		if len(waits) != 1 || waits[0].ContextMap()["job"] != "long" || waits[0].ContextMap()["items"] != "0-2" {
			t.Errorf("log %v, want one line with items 0-2 of long", waits)
		}
	})
}

// TestItemFailedLine: the log has the error of an item beside its reason only if it says more.
func TestItemFailedLine(t *testing.T) {
	for _, c := range []struct{ reason, text, shown string }{
		{"panic: boom, at main.go:4", "job_execute: trap: unreachable", ""},
		{"boom", "job_execute: boom", ""},
		{"job_execute: trap: unreachable: boom", "job_execute: trap: unreachable: boom", ""},
		{"mount: host: open /data: no such file or directory", "mount: host: open /data: no such file or directory", ""},
		{"timeout after 2s: context deadline exceeded", "job_execute: timeout: context deadline exceeded", ""},
		{"panic: boom", "job_execute: trap: out of bounds memory access", "job_execute: trap: out of bounds memory access"},
	} {
		synctest.Test(t, func(t *testing.T) {
			cl := newCluster(t)
			core, logs := observer.New(zap.InfoLevel)
			cl.log = zap.New(core)
			g := &guest{digest: "fails", run: func(context.Context, *abi.Invocation) abi.Result {
				return abi.Result{Outcome: abi.OutcomeTrap, Message: c.reason, Err: errors.New(c.text)}
			}}
			n := cl.start(1, job(definition("fails", "", 1), g))
			synctest.Wait()
			if err := n.operator().Trigger(t.Context(), "fails"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			failed := logs.FilterMessage("item failed").All()
			if len(failed) != 1 || failed[0].ContextMap()["reason"] != c.reason {
				t.Fatalf("log %v, want one line with reason %q", failed, c.reason)
			}
			if shown, _ := failed[0].ContextMap()["error"].(string); shown != c.shown {
				t.Errorf("reason %q: error %q, want %q", c.reason, shown, c.shown)
			}
		})
	}
}

// TestRemovedByConsole: ElasticJob's console removes a job node by node. A host whose
// instance went first is not stopped: the job is removed, on all hosts.
func TestRemovedByConsole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		for n := range 2 {
			c.start(n+1, job(definition("gone", "0 0 * * * ?", 4), sleeper(time.Second)))
		}
		time.Sleep(time.Minute)
		rc, err := c.server.Connect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer rc.Close()
		nodes, err := rc.Read(t.Context(), registry.Children("/test/gone/instances"))
		if err != nil || len(nodes[0].Names) != 2 {
			t.Fatal(nodes, err)
		}
		for _, path := range []string{"/test/gone/instances/" + nodes[0].Names[0], "/test/gone/config", "/test/gone/instances/" + nodes[0].Names[1]} {
			if _, err := rc.Commit(t.Context(), registry.Delete(path, registry.AnyVersion)); err != nil && !errors.Is(err, registry.ErrConflict) {
				t.Fatal(err) // a conflict: the host has deleted it itself
			}
			time.Sleep(50 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		for name, n := range c.hosts {
			if s := n.host.Status().Jobs[0]; s.State != engine.JobRemoved {
				t.Errorf("%s: %s (%s), want removed", name, s.State, s.Reason)
			}
		}
	})
}

// TestRemovedHostsAreGone: hosts that a removal has ended leave nothing in the
// registry that looks alive, also if another host brings the job back at once.
func TestRemovedHostsAreGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		j := job(definition("back", "0/5 * * * * ?", 4), sleeper(100*time.Millisecond))
		n := c.start(1, j)
		c.start(2, j)
		c.start(3, j)
		time.Sleep(11 * time.Second)
		if err := n.operator().Remove(t.Context(), "back", false); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if err := n.host.Start(t.Context(), "back", tree.Word{By: "user alice"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		for _, node := range c.nodes(registry.Children("/test/back/instances"), registry.Children("/test.wasmjob/back/instances")) {
			for _, id := range node.Names {
				if !strings.HasSuffix(id, "-2") {
					t.Errorf("%s has %q, want those of hosts that have come back alone", node.Path, node.Names)
				}
			}
			if len(node.Names) != 3 {
				t.Errorf("%s has %q, want all three hosts back", node.Path, node.Names)
			}
		}
	})
}
