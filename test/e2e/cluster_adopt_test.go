package e2e_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/test/zkserver"
)

// TestClusterAdoptsACopy: a host does not join a job whose records name
// transactions that this ZooKeeper has not had, and does once it was adopted;
// its fences are above those.
func TestClusterAdoptsACopy(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.job("tick", everySecond, "shardingTotalCount: 2")
	const before = int64(9) << 40
	sibling := "/" + c.ns + ".wasmjob/tick/sharding/"
	c.put(c.session(""), sibling+`0 = {"owner":"10.0.0.1@-@1","instant":1,"after":9895604649984,"begun":1,"ended":2,"outcome":"OK"}`, sibling+`1 = {"instant":1}`)

	m := c.add()
	e := m.of("tick", 0, kind(event.JobError))
	if !strings.Contains(e.Reason, "copied from another one") {
		t.Errorf("the host says %q", e.Reason)
	}
	m.stop()
	out := c.registry("registry", "adopt")
	if !strings.HasPrefix(out, "adopted namespace "+c.ns+": the highest number in 1 job and 2 items is 9895604649984; ") {
		t.Errorf("adopt says %q", out)
	}
	c.refused(1, []string{"adopted already"}, "registry", "adopt", "--zk", c.zk, "--namespace", c.ns)
	m = c.add()
	if e := m.of("tick", 0, kind(event.ItemStarted)); e.Fence <= before {
		t.Errorf("an item runs with fence %d, expected one above %d", e.Fence, before)
	}
	m.stop()
}

// TestClusterRegistryIsPutBack: the data directory of the ZooKeeper is put back from a copy of some seconds ago, by its
// own files. The host that was there raises the base, and its fences go on growing.
func TestClusterRegistryIsPutBack(t *testing.T) {
	t.Parallel()
	e := zkserver.ForTest(t, zkserver.Options{TickTime: 300 * time.Millisecond, SyncLimit: 5})
	c := newCluster(t)
	c.zk, c.ns = e.Connect(), "back"
	c.job("tick", everySecond, "shardingTotalCount: 3")
	m := c.add("--session-timeout", "9s")
	c.divided("tick", m)
	up := func() {
		t.Helper()
		if err := e.Restart(0); err != nil {
			t.Fatal(err)
		}
		if err := e.Await(within(t), 0); err != nil {
			t.Fatal(err)
		}
	}
	data := filepath.Join(e.Dir(0), "data")
	if err := e.Stop(0); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(data+".backup", os.DirFS(data)); err != nil {
		t.Fatal(err)
	}
	up()
	at := m.mark()
	for range 12 { // it works on, beyond the copy
		at = m.of("tick", at, kind(event.ItemStarted)).at + 1
	}
	if err := errors.Join(e.Kill(0), os.RemoveAll(data), os.Rename(data+".backup", data)); err != nil {
		t.Fatal(err)
	}
	at = m.mark()
	up()
	for range 6 {
		at = m.of("tick", at, kind(event.ItemStarted)).at + 1
	}
	fences := make(map[int]int64)
	for _, ev := range m.all("tick", 0, kind(event.ItemStarted)) {
		if ev.Fence <= fences[*ev.Item] {
			t.Errorf("item %d began with fence %d after %d", *ev.Item, ev.Fence, fences[*ev.Item])
		}
		fences[*ev.Item] = ev.Fence
	}
}
