package engine_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/coordination/admin/operate"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
)

var wantedLayout = tree.NewLayout("test", "j")

// states are the states of the job on hosts.
func states(nodes ...*node) (list []engine.JobState) {
	for _, n := range nodes {
		list = append(list, n.host.Status().Jobs[0].State)
	}
	return list
}

// takeAway has an operator, or another program such as ElasticJob's console, take the job
// away from hosts.
var takeAway = map[string]func(t *testing.T, c *cluster, n *node){
	"removed": func(t *testing.T, _ *cluster, n *node) { noError(t, n.operator().Remove(t.Context(), "j", false)) },
	"purged":  func(t *testing.T, _ *cluster, n *node) { noError(t, n.operator().Remove(t.Context(), "j", true)) },
	"removed by another program": func(t *testing.T, c *cluster, _ *node) {
		c.deleteAll("/test/j")
	},
	"purged by another program": func(t *testing.T, c *cluster, _ *node) {
		c.deleteAll("/test/j")
		c.deleteAll("/test.wasmjob/j")
	},
	"shut down":            func(t *testing.T, _ *cluster, n *node) { noError(t, n.operator().Shutdown(t.Context(), "j", "", "")) },
	"shut down by servers": func(t *testing.T, _ *cluster, n *node) { shutServers(t, n) },
	"shut down by instances": func(t *testing.T, c *cluster, n *node) {
		for _, id := range c.nodes(registry.Children("/test/j/instances"))[0].Names {
			noError(t, n.operator().Shutdown(t.Context(), "j", "", id))
		}
	},
	"shut down by another program": func(_ *testing.T, c *cluster, _ *node) {
		for _, id := range c.nodes(registry.Children("/test/j/instances"))[0].Names {
			c.commit(registry.Delete("/test/j/instances/"+id, registry.AnyVersion))
		}
	},
}

func shutServers(t *testing.T, n *node) {
	for _, ip := range []string{"10.0.0.1", "10.0.0.2"} {
		noError(t, n.operator().Shutdown(t.Context(), "j", ip, ""))
	}
}

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// deleteAll deletes a tree as another program does, node by node.
func (c *cluster) deleteAll(path string) {
	for _, name := range c.nodes(registry.Children(path))[0].Names {
		c.deleteAll(path + "/" + name)
	}
	r, err := c.server.Connect(context.Background())
	if err != nil {
		c.t.Fatal(err)
	}
	defer r.Close()
	_, _ = r.Commit(context.Background(), registry.Delete(path, registry.AnyVersion)) // it may be ephemeral, and gone
}

// TestWanted_holdsInEveryTerm: what was taken away from hosts stays away, also from those
// that had no session then, or lose it later, or are started again, until it is brought back.
func TestWanted_holdsInEveryTerm(t *testing.T) {
	for how, take := range takeAway {
		for _, when := range []string{"sessions end later", "one host has no session", "hosts are started again"} {
			t.Run(how+"/"+when, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := newCluster(t)
					var away atomic.Bool
					c.wrap = func(n int, l *lease) registry.Center {
						for n == 2 && away.Load() {
							time.Sleep(time.Second)
						}
						return l
					}
					d := definition("j", "0 * * * * ?", 2)
					g := sleeper(time.Second)
					n1, n2 := c.start(1, job(d, g)), c.start(2, job(d, g))
					time.Sleep(time.Minute)
					if when == "one host has no session" {
						away.Store(true)
						c.expire(n2)
						time.Sleep(20 * time.Second)
					}
					if when == "one host has no session" && how[0] == 's' && how != "shut down" {
						away.Store(false)
						return // that says nothing of a host that is not there
					}
					take(t, c, n1)
					time.Sleep(10 * time.Second)
					away.Store(false)
					time.Sleep(2 * time.Minute)
					before := len(c.list(event.ItemStarted))
					switch when {
					case "sessions end later":
						c.expire(n1)
						c.expire(n2)
					case "hosts are started again":
						n1.stop()
						n2.stop()
						<-n1.done
						<-n2.done
						n1, n2 = c.start(1, job(d, g)), c.start(2, job(d, g))
					}
					time.Sleep(5 * time.Minute)
					if n := len(c.list(event.ItemStarted)) - before; n > 0 {
						t.Errorf("%d items began of a job that was taken away; states %v", n, states(n1, n2))
					}
					want := engine.JobRemoved
					if how[0] == 's' {
						want = engine.JobStopped
					}
					if got := states(n1, n2); got[0] != want || got[1] != want {
						t.Errorf("states %v, want %s", got, want)
					}
					back, err := n1.operator().Restore(t.Context(), "j")
					if err != nil || !back {
						t.Errorf("restore: %v, %v", back, err)
					}
					time.Sleep(2 * time.Minute)
					if n := len(c.list(event.ItemStarted)) - before; n == 0 || fmt.Sprint(states(n1, n2)) != "[ready ready]" {
						t.Errorf("restored, %d items began; states %v", n, states(n1, n2))
					}
				})
			})
		}
	}
}

// TestWanted_startsOnOneHost: a host may come back alone into a job that is shut down, and
// does so again after it has lost its session.
func TestWanted_startsOnOneHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		d := definition("j", "0 * * * * ?", 2)
		n1, n2 := c.start(1, job(d, sleeper(time.Second))), c.start(2, job(d, sleeper(time.Second)))
		time.Sleep(time.Minute)
		noError(t, n1.operator().Shutdown(t.Context(), "j", "", ""))
		time.Sleep(55 * time.Second)
		noError(t, n1.host.Start(t.Context(), "j", tree.Word{By: "user alice"}))
		for _, when := range []string{"started", "after its session's end"} {
			time.Sleep(150 * time.Second)
			if got := fmt.Sprint(states(n1, n2)); got != "[ready stopped]" {
				t.Errorf("%s: states %s, want ready and stopped", when, got)
			}
			c.expire(n1)
			c.expire(n2)
		}
	})
}

// TestWanted_startsWhileItStops: a host that is still finishing what it runs comes back when
// it has, if it may by then.
func TestWanted_startsWhileItStops(t *testing.T) {
	for _, restore := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			n := c.start(1, job(definition("j", "0 * * * * ?", 1), sleeper(20*time.Second)))
			time.Sleep(65 * time.Second)
			noError(t, n.operator().Shutdown(t.Context(), "j", "", ""))
			time.Sleep(3 * time.Second)
			if restore {
				_, err := n.operator().Restore(t.Context(), "j")
				noError(t, err)
			} else {
				noError(t, n.host.Start(t.Context(), "j", tree.Word{}))
			}
			time.Sleep(time.Minute)
			if got := states(n)[0]; got != engine.JobReady && got != engine.JobRunning {
				t.Errorf("restore %v: state %s\n%s", restore, got, c.all())
			}
		})
	}
}

// TestWanted_disabledOnServersThatComeLater: a job that is disabled, or enabled, is so on
// servers that come later: another machine, a pod that was replaced.
func TestWanted_disabledOnServersThatComeLater(t *testing.T) {
	console := func(state string) func(*testing.T, *cluster, *node) {
		return func(_ *testing.T, c *cluster, _ *node) {
			for _, ip := range c.nodes(registry.Children("/test/j/servers"))[0].Names {
				c.commit(registry.Set("/test/j/servers/"+ip, []byte(state), registry.AnyVersion))
			}
		}
	}
	redefine := func(_ *testing.T, _ *cluster, n *node) {
		d := definition("j", "0 * * * * ?", 2)
		d.Disabled = true
		n.host.Apply([]engine.Job{job(d, sleeper(time.Second))}, nil)
	}
	for how, set := range map[string]struct {
		disabled bool // what the definition says
		do       func(*testing.T, *cluster, *node)
		runs     bool
	}{
		"disabled":             {false, func(t *testing.T, _ *cluster, n *node) { noError(t, n.operator().Disable(t.Context(), "j")) }, false},
		"enabled":              {true, func(t *testing.T, _ *cluster, n *node) { noError(t, n.operator().Enable(t.Context(), "j")) }, true},
		"disabled in console":  {false, console("DISABLED"), false},
		"enabled in console":   {true, console("ENABLED"), true},
		"disabled by its file": {false, redefine, false},
		"disabled on a server": {false, func(t *testing.T, _ *cluster, n *node) {
			noError(t, n.operator().DisableServer(t.Context(), "j", "10.0.0.1"))
		}, true},
		"another server is enabled": {false, func(t *testing.T, _ *cluster, n *node) {
			noError(t, n.operator().Disable(t.Context(), "j"))
			noError(t, n.operator().EnableServer(t.Context(), "j", "10.0.0.1"))
		}, false},
	} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				d := definition("j", "0 * * * * ?", 2)
				d.Disabled = set.disabled
				n1 := c.start(1, job(d, sleeper(time.Second)))
				time.Sleep(30 * time.Second)
				set.do(t, c, n1)
				time.Sleep(2 * time.Minute)
				c.start(2, job(d, sleeper(time.Second)))
				time.Sleep(5 * time.Minute)
				began := 0
				for _, e := range c.list(event.ItemStarted) {
					if tree.ServerOf(e.Host) == "10.0.0.2" {
						began++
					}
				}
				if (began > 0) != set.runs {
					t.Errorf("%d items began on a server that came later; servers %v", began, c.nodes(registry.Data("/test/j/servers/10.0.0.1"), registry.Data("/test/j/servers/10.0.0.2")))
				}
			})
		})
	}
}

// TestWanted_oldDefinitions: a host that was away while a job was removed and made anew does
// not bring its old definition back into force.
func TestWanted_oldDefinitions(t *testing.T) {
	for _, how := range []string{"not removed", "removed", "purged", "removed and restored", "purged and restored", "removed by another program"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				older := definition("j", "0 * * * * ?", 3)
				newer := older
				newer.Cron, newer.ShardingTotalCount = "0 0/5 * * * ?", 6
				n1, n2 := c.start(1, job(older, sleeper(time.Second))), c.start(2, job(older, sleeper(time.Second)))
				time.Sleep(time.Minute)
				n2.stop()
				<-n2.done
				restored := how == "removed and restored" || how == "purged and restored"
				if restored { // the newer one was in force already
					n1.host.Apply([]engine.Job{job(newer, sleeper(time.Second))}, nil)
					time.Sleep(time.Minute)
				}
				switch how {
				case "not removed":
				case "removed by another program":
					c.deleteAll("/test/j")
				default:
					noError(t, n1.operator().Remove(t.Context(), "j", how[0] == 'p'))
				}
				time.Sleep(10 * time.Second)
				if restored {
					_, err := n1.operator().Restore(t.Context(), "j")
					noError(t, err)
				} else {
					n1.host.Apply([]engine.Job{job(newer, sleeper(time.Second))}, nil)
				}
				time.Sleep(time.Minute)
				check := func(when string) {
					if s := n1.host.Status().Jobs[0]; s.Cron != newer.Cron || s.ShardingTotalCount != 6 {
						t.Errorf("%s: cron %q, %d items, %s %s", when, s.Cron, s.ShardingTotalCount, s.State, s.Reason)
					}
				}
				check("before the host with the old file has come")
				c.start(2, job(older, sleeper(time.Second)))
				time.Sleep(time.Minute)
				check("after that")
			})
		})
	}
}

// TestWanted_anEarlierVersionBringsAJobBack: a host that does not know what is wanted makes a
// removed job again when it has a new session. A host that does removes it again; one
// that another program makes stays.
func TestWanted_anEarlierVersionBringsAJobBack(t *testing.T) {
	for _, ours := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			d := definition("j", "0 * * * * ?", 2)
			n := c.start(1, job(d, sleeper(time.Second)))
			time.Sleep(time.Minute)
			noError(t, n.operator().Remove(t.Context(), "j", false))
			time.Sleep(time.Minute)
			ops := []registry.Op{registry.Ensure("/test/j"), registry.Create("/test/j/config", d.YAML())}
			if ours { // both in one commit, and not what is wanted
				ops = append(ops, registry.Set("/test.wasmjob/j/definition", d.YAML(), registry.AnyVersion))
			}
			c.commit(ops...)
			time.Sleep(55 * time.Second)
			want := engine.JobReady
			if ours {
				want = engine.JobRemoved
			}
			if got := states(n)[0]; got != want || c.nodes(registry.Data("/test/j/config"))[0].Exists == ours {
				t.Errorf("made by ours %v: state %s, want %s\n%s", ours, got, want, c.all())
			}
		})
	}
}

// TestWanted_saysWho: what is wanted names who wants it, and why.
func TestWanted_saysWho(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		n := c.start(1, job(definition("j", "0 * * * * ?", 2), sleeper(time.Second)))
		time.Sleep(time.Minute)
		by := n.operator().For("user alice", "an incident")
		noError(t, by.Disable(t.Context(), "j"))
		noError(t, by.Disable(t.Context(), "j"))
		noError(t, by.Shutdown(t.Context(), "j", "", ""))
		w := tree.ParseWanted(c.nodes(registry.Data(wantedLayout.Wanted()))[0].Data)
		for what, word := range map[string]tree.Word{"disabled": w.Disabled[tree.WholeJob], "stopped": w.Stopped[tree.WholeJob]} {
			if !word.Off || word.By != "user alice" || word.Why != "an incident" || word.Since == 0 {
				t.Errorf("%s: %+v", what, word)
			}
		}
		noError(t, by.Remove(t.Context(), "j", true))
		if w := tree.ParseWanted(c.nodes(registry.Data(wantedLayout.Wanted()))[0].Data); w.Removed == nil || w.Removed.By != "user alice" || w.Removed.Why != "an incident" {
			t.Errorf("removed: %+v", w)
		}
		r, err := c.server.Connect(t.Context())
		noError(t, err)
		defer r.Close()
		noError(t, operate.Forget(t.Context(), r, wantedLayout))
	})
}
