package zookeeper

import "testing"

// TestServerNamedTwice has a list of servers that names one twice, and all of
// them accept connections and give no session: each is tried in turn.
func TestServerNamedTwice(t *testing.T) {
	var list servers
	if err := list.Init([]string{"a:1", "a:1", "b:1", "c:1"}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a:1", "b:1", "c:1"} {
		list.empty(name)
	}
	tried := make(map[string]bool)
	for range 6 {
		first, _ := list.Next()
		order, _ := list.from(first)
		tried[order[0].server] = true
		list.used(order[0].server)
	}
	if len(tried) != 3 {
		t.Errorf("tried %v", tried)
	}
}
