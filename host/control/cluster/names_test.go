package cluster

import (
	"testing"

	"github.com/wasmjob/wasmjob/coordination/tree"
)

// TestNamesOf: a host is called by its server, and by its API's address as well where that is not
// enough.
func TestNamesOf(t *testing.T) {
	t.Parallel()
	host := func(id, server, api string) Peer { return Peer{id, tree.ClusterDetail{ServerIP: server, API: api}} }
	hosts := []Peer{
		host("a", "192.0.2.2", "http://127.0.0.1:9870"),
		host("b", "10.0.0.7", "http://10.0.0.7:9770"), host("b2", "10.0.0.7", "http://10.0.0.7:9770"), // an earlier process
		host("c", "10.0.0.8", "https://10.0.0.8:9771"), host("d", "10.0.0.8", "https://10.0.0.8:9772"), host("e", "10.0.0.8", ""),
		host("f", "10.0.0.9", "http://127.0.0.1:1"), host("g", "10.0.0.9", "http://127.0.0.1:2"),
	}
	want := []string{"192.0.2.2", "10.0.0.7", "10.0.0.7", "10.0.0.8:9771", "10.0.0.8:9772", "10.0.0.8", "10.0.0.9 (127.0.0.1:1)", "10.0.0.9 (127.0.0.1:2)"}
	name := namesOf(hosts)
	for i, p := range hosts {
		if got := name(p); got != want[i] {
			t.Errorf("%s: %q, expected %q", p.ID, got, want[i])
		}
	}
}
