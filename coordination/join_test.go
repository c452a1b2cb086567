package coordination_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	co "github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registrytest"
)

// members are the names in the list.
func (c *cluster) members() []string {
	return strings.Fields(string(c.node(c.layout.Sibling() + "/members").Data))
}

// arrive calls Join once for a host that has waited for others for a while; it
// reports how long the host is to wait on.
func (h *simHost) arrive(definition jobconfig.Configuration, applied *co.Applied, waited time.Duration) (wait time.Duration, err error) {
	err = h.perform(moves.Join(&h.Member, co.Joining{Definition: definition, Applied: applied, Detail: co.HostDetail{State: co.DetailReady},
		Wait: &wait, Waited: waited}))
	return wait, err
}

// TestJoinInACrowd: hosts that come at once are written down by one of them.
func TestJoinInACrowd(t *testing.T) {
	t.Parallel()
	newHosts := func(c *chronicle, n int) []*simHost {
		var hosts []*simHost
		for k := range n {
			h := c.addHost(fmt.Sprintf("N%d", k), fmt.Sprintf("10.0.1.%d", k+1))
			h.connect()
			hosts = append(hosts, h)
		}
		return hosts
	}
	appeared := func(c *chronicle, h *simHost) bool { return c.node(c.layout.Root() + "/instances/" + h.Self.ID).Exists }

	t.Run("one writes all names", func(t *testing.T) {
		c, _ := group(t, 1, nil)
		hosts := newHosts(c, 3)
		// The others announce themselves while the first is about to join alone.
		first := hosts[0]
		first.beforeCommit(func() {
			for _, h := range hosts[1:] {
				c.hand(registry.Create(c.layout.Sibling()+"/instances/"+h.Self.ID, nil))
			}
			members := c.node(c.layout.Sibling() + "/members")
			c.hand(registry.Set(members.Path, members.Data, members.Version))
		})
		wait, err := first.arrive(c.file, new(co.Applied), 0)
		must(t, err)
		if wait != 0 || !appeared(c, first) {
			t.Errorf("the first of them waits %s, and is in the list of instances: %v", wait, appeared(c, first))
		}
		for _, h := range hosts {
			if !slices.Contains(c.members(), h.Self.ID) {
				t.Errorf("%s is not among the members %v", h.name, c.members())
			}
		}
		// Their announcements are their own: they have one step to go.
		for _, h := range hosts[1:] {
			commits := 0
			h.plan = countCommits(&commits)
			wait, err := h.arrive(c.file, new(co.Applied), 0)
			must(t, err)
			if wait != 0 || !appeared(c, h) || commits != 1 {
				t.Errorf("%s waits %s after %d commits, and is in the list of instances: %v", h.name, wait, commits, appeared(c, h))
			}
		}
	})
	t.Run("does not wait for ever", func(t *testing.T) {
		c, _ := group(t, 1, nil)
		hosts := newHosts(c, 2)
		lower := c.layout.Sibling() + "/instances/" + hosts[0].Self.ID
		c.hand(registry.Create(lower, nil)) // one that comes no further
		var applied co.Applied
		wait, err := hosts[1].arrive(c.file, &applied, 0)
		must(t, err)
		if wait <= 0 || appeared(c, hosts[1]) {
			t.Fatalf("it waits %s for the other, and is in the list of instances: %v", wait, appeared(c, hosts[1]))
		}
		if !c.node(c.layout.Sibling() + "/instances/" + hosts[1].Self.ID).Exists {
			t.Error("it waits unannounced")
		}
		wait, err = hosts[1].arrive(c.file, &applied, 10*time.Second)
		must(t, err)
		if wait != 0 || !appeared(c, hosts[1]) {
			t.Errorf("it waits on, %s, and is in the list of instances: %v", wait, appeared(c, hosts[1]))
		}
	})
	t.Run("tells what all steps changed", func(t *testing.T) {
		c, _ := group(t, 1, nil)
		hosts := newHosts(c, 2)
		c.hand(registry.Create(c.layout.Sibling()+"/instances/"+hosts[0].Self.ID, nil))
		file := c.file
		file.Description = "another"
		var applied co.Applied
		_, err := hosts[1].arrive(file, &applied, 0)
		must(t, err)
		_, err = hosts[1].arrive(file, &applied, 10*time.Second)
		must(t, err)
		if !slices.Equal(applied.Changed, []string{"description"}) {
			t.Errorf("changed: %q", applied.Changed)
		}
	})
}

// TestBury: who left nothing is buried with the others, who left something is
// told of, who is on its way or finishes what it runs lives.
func TestBury(t *testing.T) {
	t.Parallel()
	c, hosts := group(t, 5, func(cfg *jobconfig.Configuration) { cfg.Failover = true })
	leader, runs, idle, idleToo, stopped := hosts[0], hosts[1], hosts[2], hosts[3], hosts[4]
	begin(t, runs, c.now.Add(time.Second))
	var dead []string
	for _, h := range hosts[1:4] {
		dead = append(dead, h.Self.ID)
		h.crash()
	}
	c.hand(registry.Delete(c.layout.Root()+"/instances/"+stopped.Self.ID, registry.AnyVersion))
	dead = append(dead, stopped.Self.ID)
	must(t, leader.look())
	var left []string
	must(t, leader.perform(moves.Bury(&leader.Member, dead, false, &left)))
	if !slices.Equal(left, []string{runs.Self.ID}) || len(c.members()) != 5 {
		t.Errorf("looking: left %v, members %v", left, c.members())
	}
	commits := 0
	leader.plan = countCommits(&commits)
	must(t, leader.perform(moves.Bury(&leader.Member, dead, true, &left)))
	want := []string{leader.Self.ID, runs.Self.ID, stopped.Self.ID}
	if got := c.members(); !slices.Equal(left, []string{runs.Self.ID}) || !slices.Equal(got, want) || commits != 1 {
		t.Errorf("left %v, members %v after %d commits, want %v after one", left, got, commits, want)
	}
	for _, h := range []*simHost{idle, idleToo} {
		for _, of := range []string{"/runs/", "/assignment/"} {
			if c.node(c.layout.Sibling() + of + h.Self.ID).Exists {
				t.Errorf("%s%s is there still", of, h.name)
			}
		}
	}
	if !c.node(c.layout.Root() + "/leader/sharding/necessary").Exists {
		t.Error("nobody is asked to divide what the dead owned")
	}
}

// countCommits counts the commits.
func countCommits(n *int) func(int, string) registrytest.Fault {
	return func(_ int, op string) registrytest.Fault {
		if op == "commit" {
			*n++
		}
		return registrytest.NoFault
	}
}
