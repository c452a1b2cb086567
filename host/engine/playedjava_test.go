package engine_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
)

// playedJava is a Java host of job "mixed", of which the test makes the requests.
type playedJava struct {
	c  *cluster
	rc registry.Center
	id string
}

// playJava starts a Java host at an address.
func (c *cluster) playJava(ctx context.Context, ip string) *playedJava {
	c.t.Helper()
	rc, err := c.server.Connect(ctx)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = rc.Close() })
	p := &playedJava{c, rc, ip + "@-@99"}
	p.commit(registry.Create(p.path("servers/"+ip), []byte("ENABLED")), registry.CreateEphemeral(p.path("instances/"+p.id), fmt.Appendf(nil, "jobInstanceId: %s\nserverIp: %s\n", p.id, ip)))
	return p
}

func (p *playedJava) path(name string) string { return "/test/mixed/" + name }

func (p *playedJava) mark(item int, name string) string {
	return p.path(fmt.Sprintf("sharding/%d/%s", item, name))
}

func (p *playedJava) commit(ops ...registry.Op) {
	p.c.t.Helper()
	if _, err := p.rc.Commit(context.Background(), ops...); err != nil {
		p.c.t.Fatal(err)
	}
}

// node reads a node of the job.
func (p *playedJava) node(name string) registry.Node {
	p.c.t.Helper()
	n, err := p.rc.Read(context.Background(), registry.Data(p.path(name)))
	if err != nil {
		p.c.t.Fatal(err)
	}
	return n[0]
}

// divide gives the items away as a Java leader does, and takes the flag down.
func (p *playedJava) divide(owners ...string) {
	p.c.t.Helper()
	p.commit(registry.CreateEphemeral(p.path("leader/sharding/processing"), nil))
	for i := range owners {
		if p.node(fmt.Sprintf("sharding/%d/instance", i)).Exists {
			p.commit(registry.Delete(p.mark(i, "instance"), registry.AnyVersion))
		}
	}
	var ops []registry.Op
	for i, id := range owners {
		ops = append(ops, registry.Create(p.mark(i, "instance"), []byte(id)))
	}
	p.commit(append(ops, registry.Delete(p.path("leader/sharding/necessary"), registry.AnyVersion), registry.Delete(p.path("leader/sharding/processing"), registry.AnyVersion))...)
}

// TestOutageUnderAJavaLeader: our host loses its session, a Java host is elected, and divides the items with its first fire
// after our host is back. That instant runs on the host that has the item then, as a Java host in its place
// would run it, and each instant before has a reason.
func TestOutageUnderAJavaLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var away time.Time
		c.config = func(cfg *engine.Config) {
			dial := cfg.Dial
			cfg.Dial = func(ctx context.Context) (registry.Center, error) {
				if time.Now().Before(away) {
					return nil, registry.ErrUnavailable
				}
				return dial(ctx)
			}
		}
		n := c.start(1, job(definition("mixed", "*/10 * * * * ?", 2), sleeper(time.Second)))
		time.Sleep(time.Second)
		java := c.playJava(t.Context(), "10.0.0.9")
		time.Sleep(44 * time.Second)
		from := time.Now().Truncate(10 * time.Second)
		away = from.Add(35 * time.Second)
		c.expire(n)
		time.Sleep(time.Second)
		java.commit(registry.CreateEphemeral(java.path("leader/election/instance"), []byte(java.id)))
		due := from.Add(50 * time.Second)
		time.Sleep(time.Until(due.Add(-3 * time.Second)))
		if !java.node("leader/sharding/necessary").Exists {
			java.commit(registry.Ensure(java.path("leader/sharding")), registry.Create(java.path("leader/sharding/necessary"), nil))
		}
		time.Sleep(time.Until(due.Add(200 * time.Millisecond)))
		ours := ""
		list, err := java.rc.Read(t.Context(), registry.Children(java.path("instances")))
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range list[0].Names {
			if id != java.id {
				ours = id
			}
		}
		java.divide(java.id, ours)
		time.Sleep(25 * time.Second)

		accounted := make(map[time.Time]event.Kind)
		for _, e := range c.list(event.ItemCompleted, event.ItemSkipped) {
			if *e.Item != 1 {
				continue
			}
			for at := e.Instant; !at.After(later(e.Instant, e.Through)); at = at.Add(10 * time.Second) {
				accounted[at.UTC()] = e.Kind
			}
		}
		for at := from.Add(-10 * time.Second); !at.After(due.Add(10 * time.Second)); at = at.Add(10 * time.Second) {
			if accounted[at.UTC()] == "" {
				t.Errorf("item 1 has neither run for %s nor a reason", at.UTC().Format(time.TimeOnly))
			}
		}
		if got := accounted[due.UTC()]; got != event.ItemCompleted {
			t.Errorf("item 1 has %q for %s, the instant of the division; expected a run", got, due.UTC().Format(time.TimeOnly))
		}
		if t.Failed() {
			t.Log("\n" + c.all())
		}
	})
}

// TestMarksThatOutliveAJavaHost: the running mark of a Java host stays when its session is over, and its server was disabled
// before, so that no Java host marks the item as crashed. The item runs on ours all the same.
func TestMarksThatOutliveAJavaHost(t *testing.T) {
	for name, tc := range map[string]struct {
		another bool // Java host, which leads and waits for the mark
		later   bool // ours comes when that host is gone
	}{
		"ours alone":                    {},
		"ours comes later":              {later: true},
		"another Java host leads":       {another: true},
		"another leads, and ours comes": {another: true, later: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				d := definition("mixed", "*/10 * * * * ?", 2)
				d.Failover = true
				n := c.start(1, job(d, sleeper(time.Second)))
				time.Sleep(time.Second)
				dies := c.playJava(t.Context(), "10.0.0.9")
				time.Sleep(31 * time.Second) // divided
				const item = 0
				if owner := string(dies.node("sharding/0/instance").Data); owner != dies.id {
					t.Fatalf("item 0 belongs to %s, expected the Java host", owner)
				}
				dies.commit(registry.Create(dies.mark(item, "running"), []byte(dies.id)))
				dies.commit(registry.Set(dies.path("servers/10.0.0.9"), []byte("DISABLED"), registry.AnyVersion))
				leads := dies
				if tc.another {
					leads = c.playJava(t.Context(), "10.0.0.8")
				}
				if tc.another || tc.later {
					n.kill()
					<-n.done
					delete(c.hosts, "10.0.0.1")
				}
				if tc.another {
					leads.commit(registry.CreateEphemeral(leads.path("leader/election/instance"), []byte(leads.id)))
					if !leads.node("leader/sharding/necessary").Exists {
						leads.commit(registry.Ensure(leads.path("leader/sharding")), registry.Create(leads.path("leader/sharding/necessary"), nil))
					}
				}
				if tc.another && !tc.later {
					c.start(1, job(d, sleeper(time.Second)))
					time.Sleep(10 * time.Second)
				}
				if err := dies.rc.Close(); err != nil {
					t.Fatal(err)
				}
				if tc.later {
					c.start(1, job(d, sleeper(time.Second)))
				}
				gone := time.Now()
				time.Sleep(40 * time.Second)
				runs := 0
				for _, e := range c.list(event.ItemCompleted) {
					if *e.Item == item && e.Time.After(gone) {
						runs++
					}
				}
				if runs == 0 {
					t.Errorf("item %d has not run since the Java host was gone\n%s", item, c.all())
				}
			})
		})
	}
}
