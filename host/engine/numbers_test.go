package engine_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/coordination/fence"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/embedded"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
)

// backup is a registry on the disk that can be put back from a copy.
type backup struct {
	c    *cluster
	file string
	copy []byte
}

func newBackup(c *cluster) *backup {
	b := &backup{c: c, file: filepath.Join(c.t.TempDir(), "registry.db")}
	first := c.server
	c.t.Cleanup(func() {
		if err := c.server.Close(); err != nil {
			c.t.Error(err)
		}
		c.server = first
	})
	b.open()
	return b
}

func (b *backup) open() {
	b.c.t.Helper()
	server, err := embedded.Open(embedded.Options{Dir: filepath.Dir(b.file)})
	if err != nil {
		b.c.t.Fatal(err)
	}
	b.c.swap.Lock()
	defer b.c.swap.Unlock()
	b.c.server = server
}

// make copies the file.
func (b *backup) make() {
	b.c.t.Helper()
	var err error
	if b.copy, err = os.ReadFile(b.file); err != nil {
		b.c.t.Fatal(err)
	}
}

// restore ends all sessions and puts the copy in the place of the file.
func (b *backup) restore() {
	b.c.t.Helper()
	for _, n := range b.c.hosts {
		b.c.expire(n)
	}
	if err := b.c.server.Close(); err != nil {
		b.c.t.Fatal(err)
	}
	if err := os.WriteFile(b.file, b.copy, 0o600); err != nil {
		b.c.t.Fatal(err)
	}
	b.open()
}

// work has the registry make so many transactions.
func (b *backup) work(transactions int) {
	b.c.t.Helper()
	rc, err := b.c.server.Connect(b.c.t.Context())
	if err != nil {
		b.c.t.Fatal(err)
	}
	defer rc.Close()
	var all sync.WaitGroup
	for range transactions { // those that come together share a write to the disk
		all.Go(func() {
			if _, err := rc.Commit(b.c.t.Context(), registry.Ensure("/other"), registry.Set("/other", nil, registry.AnyVersion)); err != nil {
				b.c.t.Error(err)
			}
		})
	}
	all.Wait()
}

// fencesGrow complains of items whose fences do not grow, and returns the greatest.
func fencesGrow(c *cluster) (greatest int64) {
	c.t.Helper()
	last := make(map[int]int64)
	for _, e := range c.list(event.ItemStarted) {
		if e.Fence <= last[*e.Item] {
			c.t.Errorf("at %s item %d began with fence %d after %d", e.Time.UTC().Format("15:04:05"), *e.Item, e.Fence, last[*e.Item])
		}
		last[*e.Item] = e.Fence
		greatest = max(greatest, e.Fence)
	}
	return greatest
}

// TestRegistryIsPutBack: fences go on growing after the registry was put back from its own
// backup. A host that was there raises the base, once; a host that begins anew and knows the
// fences from elsewhere begins nothing until somebody has, and one alone raises it by itself.
//
// It kills the mutant "numbers of the registry not compared".
func TestRegistryIsPutBack(t *testing.T) {
	const behind = 3000 // transactions
	began := func(c *cluster) int { return len(c.list(event.ItemStarted)) }
	run := func(name string, test func(t *testing.T, c *cluster, b *backup, started func(n int) *node)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				b := newBackup(c)
				d := definition("j", "*/10 * * * * ?", 4)
				d.Failover = true
				test(t, c, b, func(n int) *node { return c.start(n, job(d, sleeper(time.Second))) })
			})
		})
	}

	run("two hosts were there", func(t *testing.T, c *cluster, b *backup, started func(int) *node) {
		started(1)
		started(2)
		time.Sleep(30 * time.Second)
		b.make()
		b.work(behind)
		time.Sleep(30 * time.Second)
		before := fencesGrow(c)
		b.restore()
		n := began(c)
		time.Sleep(time.Minute)
		if after := fencesGrow(c); began(c)-n < 16 || after <= before {
			t.Errorf("%d items began after it, with fences up to %d; %d was the greatest before", began(c)-n, after, before)
		}
		if said := c.list(event.RegistryBehind); len(said) != 1 || !strings.Contains(said[0].Reason, "from now on all numbers of the namespace are above") {
			t.Errorf("said of it:\n%s", lines(said))
		}
		node := c.nodes(registry.Data("/test.wasmjob"))[0]
		if node.Version != 1 || !strings.Contains(string(node.Data), `"raisedBy"`) {
			t.Errorf("the base was set %d times: %s", node.Version, node.Data)
		}
	})

	run("a host knows it from its history", func(t *testing.T, c *cluster, b *backup, started func(int) *node) {
		first := started(1)
		time.Sleep(30 * time.Second)
		b.make()
		b.work(behind)
		time.Sleep(30 * time.Second)
		before := fencesGrow(c)
		first.stop()
		<-first.done
		b.restore()
		c.config = func(cfg *engine.Config) {
			cfg.Numbers = new(fence.Known)
			cfg.Numbers.Hear(before, "the history")
		}
		n := began(c)
		second := started(2)
		time.Sleep(time.Minute)
		s := second.host.Status().Jobs[0]
		if s.State != engine.JobError || !strings.Contains(s.Reason, "gone back") || !strings.Contains(s.Reason, "the history") || began(c) != n {
			t.Errorf("%d items began; the job is %s: %s", began(c)-n, s.State, s.Reason)
		}
		if said := c.list(event.RegistryBehind); len(said) != 1 || !strings.Contains(said[0].Reason, "wasmjob registry adopt --above") {
			t.Errorf("said of it:\n%s", lines(said))
		}
		rc, err := c.server.Connect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer rc.Close()
		if _, err := fence.Adopt(t.Context(), rc, "test", before, "ann"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		if after := fencesGrow(c); began(c)-n < 8 || after <= before {
			t.Errorf("%d items began after it was adopted, with fences up to %d; %d was the greatest before", began(c)-n, after, before)
		}
	})

	run("the only host knows it from its history", func(t *testing.T, c *cluster, b *backup, started func(int) *node) {
		c.config = func(cfg *engine.Config) { cfg.OnlyHost = true }
		first := started(1)
		time.Sleep(30 * time.Second)
		b.make()
		b.work(behind)
		time.Sleep(30 * time.Second)
		before := fencesGrow(c)
		first.stop()
		<-first.done
		b.restore()
		c.config = func(cfg *engine.Config) {
			cfg.OnlyHost, cfg.Numbers = true, new(fence.Known)
			cfg.Numbers.Hear(before, "the history")
		}
		n := began(c)
		started(1)
		time.Sleep(30 * time.Second)
		if after := fencesGrow(c); began(c)-n < 8 || after <= before {
			t.Errorf("%d items began after it, with fences up to %d; %d was the greatest before", began(c)-n, after, before)
		}
	})

	// A host that knows nothing is there first. It hears late of what is watched.
	run("a host that knows nothing begins before", func(t *testing.T, c *cluster, b *backup, started func(int) *node) {
		first := started(1)
		time.Sleep(30 * time.Second)
		b.make()
		b.work(behind)
		time.Sleep(30 * time.Second)
		b.restore()
		first.stop()
		<-first.done
		c.wrap = func(n int, l *lease) registry.Center { return &slow{l, 0, 5 * time.Second} }
		low := began(c)
		started(2)
		time.Sleep(30 * time.Second)
		if began(c) == low {
			t.Fatal("nothing began on the host that knows nothing")
		}
		c.mu.Lock() // its fences are lower: nobody could know that
		c.events, c.from, c.at = nil, nil, nil
		c.mu.Unlock()
		c.wrap = nil
		c.config = func(cfg *engine.Config) {
			cfg.OnlyHost, cfg.Numbers = true, new(fence.Known) // as if it had been there
			cfg.Numbers.Hear(behind, "this host was there")
		}
		started(3)
		time.Sleep(2 * time.Minute)
		if greatest := fencesGrow(c); greatest <= behind || began(c) < 40 {
			t.Errorf("%d items began, with fences up to %d", began(c), greatest)
		}
		high := false
		for _, e := range c.list(event.ItemStarted) {
			if high = high || e.Fence > behind; high && e.Fence <= behind {
				t.Errorf("at %s item %d began on %s with fence %d, after the base was raised", e.Time.UTC().Format("15:04:05"), *e.Item, e.Host, e.Fence)
			}
		}
	})
}
