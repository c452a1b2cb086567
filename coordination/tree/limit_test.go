package tree

import (
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

// TestLimit: each key has a node of its own, whatever is in it, and a path that every registry takes.
func TestLimit(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("长", 100)
	seen := make(map[string]string)
	for _, key := range []string{"db", "DB", "db-1", "a/b", "a%2Fb", "..", ".", "-", " ", "\x00", "数据库", long, long + "x", long + "y", "a~b"} {
		path := Limit("team/prod", key)
		if err := registry.CheckPath(path); err != nil {
			t.Errorf("%q: %v", key, err)
		}
		name := strings.TrimPrefix(path, Limits("team/prod")+"/")
		if strings.Contains(name, "/") || len(name) > longestLimitName {
			t.Errorf("%q has the node %q", key, name)
		}
		if other, has := seen[path]; has {
			t.Errorf("%q and %q have one node, %s", key, other, path)
		}
		seen[path] = key
	}
	if got := Limit("n", "db-1"); got != "/n.wasmjob/@-@limits/db-1" {
		t.Errorf("the node is %s", got)
	}
}
