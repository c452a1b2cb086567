package e2e_test

import (
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/host/event"
)

// TestNoSecretIsInTheRegistry: whatever a host is told, and whatever it writes.
func TestNoSecretIsInTheRegistry(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.job("tick", everySecond, "shardingTotalCount: 1")
	c.ns = "guarded" // what is above it is made with the credentials, too
	const credentials = "owner:very-secret-word"
	m := &member{place: newPlace(t), ip: "127.0.1.1"}
	m.place.guestJob("tick", c.jobs["tick"]...)
	m.process = m.place.startEnv([]string{"WASMJOB_ZK_CREDENTIALS=" + credentials}, "--zk", c.zk, "--namespace", c.ns, "--session-timeout", "2m", "--server-ip", m.ip)
	m.of("tick", 0, kind(event.FireEnded))
	s := c.session(credentials)
	found := 0
	for path, data := range subtree(t, s, "/"+c.ns, "/"+c.ns+".wasmjob") {
		found++
		if strings.Contains(path+string(data), "secret-word") {
			t.Errorf("%s holds %q", path, data)
		}
	}
	if found < 20 {
		t.Errorf("%d nodes were looked at", found)
	}
	m.stop()
}
