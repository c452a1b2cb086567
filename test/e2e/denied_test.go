package e2e_test

import (
	"fmt"
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

// TestUnreadableItem: an ACL that an administrator sets keeps the record of one item from being read when a host is
// given the items of another. The rest runs, status, explain and shards name the item, and it runs when it can be read.
func TestUnreadableItem(t *testing.T) {
	t.Parallel()
	e := zkserver.ForTest(t, zkserver.Options{NoSync: true})
	c := newCluster(t)
	c.zk, c.ns = e.Connect(), "unread"
	c.job("tick", everySecond, "shardingTotalCount: 4", "failover: true")
	m, other := c.add(longest...), c.add(longest...)
	c.divided("tick", m, other)
	conn, _, err := zk.Connect([]string{e.Addr(0)}, 10*time.Second, zk.WithLogInfo(false), zk.WithEventCallback(func(zk.Event) {}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	owned := other.place.job("tick").Items
	bad := owned[len(owned)-1].Item
	path := fmt.Sprintf("/unread.wasmjob/tick/sharding/%d", bad)
	at := m.mark()
	if _, err := conn.SetACL(path, zk.WorldACL(zk.PermWrite|zk.PermCreate|zk.PermDelete|zk.PermAdmin), -1); err != nil {
		t.Fatal(err)
	}
	other.stop()
	denied := m.of("tick", at, kind(event.JobError))
	if len(denied.Items) != 1 || denied.Items[0] != bad || !strings.Contains(denied.Reason, path) {
		t.Errorf("the error is of items %v: %s", denied.Items, denied.Reason)
	}
	since := denied.at
	for range 3 {
		for i := range 4 {
			if i != bad {
				since = max(since, m.of("tick", denied.at, kind(event.ItemCompleted), item(i)).at)
			}
		}
		denied.at = since
	}
	if j := m.place.job("tick"); j.State != engine.JobError || !strings.Contains(j.Reason, "cannot be read") || !strings.Contains(j.Reason, path) {
		t.Errorf("the status is %s, %q", j.State, j.Reason)
	}
	for _, command := range [][]string{{"status", "tick"}, {"explain", "tick", "--item", fmt.Sprint(bad)}, {"job", "items", "tick"}} {
		if out := m.must(command...); !strings.Contains(out, "cannot be read") || !strings.Contains(out, path) {
			t.Errorf("%s says\n%s", strings.Join(command, " "), out)
		}
	}
	at = m.mark()
	if _, err := conn.SetACL(path, zk.WorldACL(zk.PermAll), -1); err != nil {
		t.Fatal(err)
	}
	m.of("tick", at, kind(event.ItemCompleted), item(bad))
	m.of("tick", at, kind(event.JobConfigured), test{"without a reason", func(e event.Event) bool { return e.Reason == "" }})
}

// TestUnreadableConfiguration: an ACL that hides the configuration of one job stops that job, which says so, and no
// other. When it can be read again, what was changed meanwhile takes effect.
func TestUnreadableConfiguration(t *testing.T) {
	t.Parallel()
	e := zkserver.ForTest(t, zkserver.Options{NoSync: true})
	c := newCluster(t)
	c.zk, c.ns = e.Connect(), "hidden"
	c.job("tick", everySecond, "shardingTotalCount: 2")
	c.job("other", everySecond, "shardingTotalCount: 2")
	m := c.add(longest...)
	c.divided("tick", m)
	c.divided("other", m)
	conn, _, err := zk.Connect([]string{e.Addr(0)}, 10*time.Second, zk.WithLogInfo(false), zk.WithEventCallback(func(zk.Event) {}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	const path = "/hidden/tick/config"
	at := m.mark()
	if _, err := conn.SetACL(path, zk.WorldACL(zk.PermWrite|zk.PermAdmin), -1); err != nil {
		t.Fatal(err)
	}
	said := m.of("tick", at, kind(event.JobError))
	if !strings.Contains(said.Reason, "what was last known of the job stays in force") || !strings.Contains(said.Reason, path) {
		t.Errorf("the error: %s", said.Reason)
	}
	if out := m.must("status", "tick"); !strings.Contains(out, path) || !strings.Contains(out, "error") {
		t.Errorf("status says\n%s", out)
	}
	for i := range 2 {
		m.of("other", said.at, kind(event.ItemCompleted), item(i))
	}
	at = m.mark()
	if _, err := conn.SetACL(path, zk.WorldACL(zk.PermAll), -1); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		m.of("tick", at, kind(event.ItemCompleted), item(i))
	}
	m.of("tick", at, kind(event.JobConfigured), test{"without a reason", func(e event.Event) bool { return e.Reason == "" }})
}
