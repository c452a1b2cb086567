package e2e_test

import (
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/test/zkserver"
)

// TestDeniedItem: an ACL that an administrator sets keeps one item from being written. The
// others run on, status and explain name it, and it runs when the ACL allows it again.
func TestDeniedItem(t *testing.T) {
	t.Parallel()
	e := zkserver.ForTest(t, zkserver.Options{NoSync: true})
	c := newCluster(t)
	c.zk, c.ns = e.Connect(), "denied"
	c.job("tick", everySecond, "shardingTotalCount: 4", "failover: true")
	m := c.add(longest...)
	c.divided("tick", m)
	conn, _, err := zk.Connect([]string{e.Addr(0)}, 10*time.Second, zk.WithLogInfo(false), zk.WithEventCallback(func(zk.Event) {}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	const bad = 1
	for _, path := range []string{"/denied.wasmjob/tick/sharding/1", "/denied/tick/sharding/1"} {
		at := m.mark()
		if _, err := conn.SetACL(path, zk.WorldACL(zk.PermRead|zk.PermAdmin), -1); err != nil {
			t.Fatal(err)
		}
		denied := m.of("tick", at, kind(event.JobError))
		if len(denied.Items) != 1 || denied.Items[0] != bad || !strings.Contains(denied.Reason, path) {
			t.Errorf("%s: the error is of items %v: %s", path, denied.Items, denied.Reason)
		}
		since := denied.at
		for range 3 {
			for _, i := range []int{0, 2, 3} {
				since = max(since, m.of("tick", denied.at, kind(event.ItemCompleted), item(i)).at)
			}
			denied.at = since
		}
		if j := m.place.job("tick"); j.State != engine.JobError || !strings.Contains(j.Reason, path) {
			t.Errorf("%s: the status is %s, %q", path, j.State, j.Reason)
		}
		if out := m.must("status", "tick"); !strings.Contains(out, path) || !strings.Contains(out, "error") {
			t.Errorf("%s: status says\n%s", path, out)
		}
		if out := m.must("explain", "tick", "--item", "1"); !strings.Contains(out, "item cannot be written") || !strings.Contains(out, path) {
			t.Errorf("%s: explain says\n%s", path, out)
		}
		at = m.mark()
		if _, err := conn.SetACL(path, zk.WorldACL(zk.PermAll), -1); err != nil {
			t.Fatal(err)
		}
		m.of("tick", at, kind(event.ItemCompleted), item(bad))
		m.of("tick", at, kind(event.JobConfigured), test{"without a reason", func(e event.Event) bool { return e.Reason == "" }})
	}
}
