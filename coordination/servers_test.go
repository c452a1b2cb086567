package coordination_test

import (
	"slices"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/coordination/admin/cleanup"
	"github.com/wasmjob/wasmjob/coordination/registry"
)

// TestRetireServers: the node of a server goes when it says ENABLED and no
// instance was there for a day, counted over all leaders, and stays otherwise.
//
// It kills the mutant "disabled server removed".
func TestRetireServers(t *testing.T) {
	t.Parallel()
	c, h := group(t, 2, nil)
	const day = 24 * time.Hour
	node := func(ip string) registry.Node { return c.node(c.layout.Root() + "/servers/" + ip) }
	retire := func(by *simHost) (retired []string) {
		t.Helper()
		must(t, by.look())
		must(t, by.perform(moves.RetireServers(&by.Member, c.now, day, &retired)))
		return retired
	}
	must(t, c.operate(moves.SetServers(c.layout, true, "10.0.1.1", "10.0.1.2", "10.0.1.3")))
	must(t, c.operate(moves.SetServers(c.layout, false, "10.0.1.4")))
	must(t, second(c.op.Commit(c.ctx, registry.Create(c.layout.Root()+"/servers/10.0.1.5", nil))))                          // as 2.x made it
	must(t, second(c.op.Commit(c.ctx, registry.Create(c.layout.Root()+"/instances/10.0.1.3@-@77", []byte("a Java host"))))) // never leaves
	all := []string{"10.0.0.1", "10.0.0.2", "10.0.1.1", "10.0.1.2", "10.0.1.3", "10.0.1.4", "10.0.1.5"}
	left := func(when string, want []string) {
		t.Helper()
		var got []string
		for _, ip := range all {
			if node(ip).Exists {
				got = append(got, ip)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: servers %v, expected %v", when, got, want)
		}
	}
	c.now = time.Now().Add(2 * day) // the registry goes by the machine's clock
	retire(h[0])
	left("on the first look", all)
	c.now = c.now.Add(day - time.Minute)
	retire(h[1])
	left("a minute before a day is over", all)

	// One of them comes back for a while, and one is set.
	z := c.addHost("Z", "10.0.1.2")
	must(t, second(z.join(c.file)))
	retire(h[1])
	must(t, z.look())
	must(t, z.perform(moves.Leave(&z.Member)))
	c.now = c.now.Add(2 * time.Minute)
	if got := retire(h[1]); len(got) != 1 {
		t.Errorf("retired %v, expected one server", got)
	}
	left("after a day", []string{"10.0.0.1", "10.0.0.2", "10.0.1.2", "10.0.1.3", "10.0.1.4", "10.0.1.5"})
	c.now = c.now.Add(day)
	retire(h[0])
	left("after two days", []string{"10.0.0.1", "10.0.0.2", "10.0.1.3", "10.0.1.4", "10.0.1.5"})
}

// TestRetireServersWhileAHostComes: the node of a server whose host joins between
// the look and the removal stays.
//
// It kills the mutant "join without its server's node".
func TestRetireServersWhileAHostComes(t *testing.T) {
	t.Parallel()
	c, h := group(t, 1, nil)
	path := c.layout.Root() + "/servers/10.0.1.1"
	must(t, c.operate(moves.SetServers(c.layout, true, "10.0.1.1")))
	c.now = time.Now().Add(2 * 24 * time.Hour)
	h[0].Registry = h[0].rc
	_, err := cleanup.RetireServers(c.ctx, h[0].Registry, h[0].Layout, c.now, 24*time.Hour)
	must(t, err)
	c.now = c.now.Add(25 * time.Hour)
	z := c.addHost("Z", "10.0.1.1")
	between := beforeCommits{Center: h[0].rc, do: func() { must(t, second(z.join(c.file))) }}
	h[0].Registry = between
	retired, err := cleanup.RetireServers(c.ctx, h[0].Registry, h[0].Layout, c.now, 24*time.Hour)
	must(t, err)
	if n := c.node(path); !n.Exists || len(retired) > 0 {
		t.Errorf("the server of a host that has come: node %v, removed %v", n.Exists, retired)
	}
}
