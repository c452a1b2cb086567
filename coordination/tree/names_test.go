package tree

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
)

// TestJobNamesArePaths: a registry takes the nodes of every name that a job may have.
func TestJobNamesArePaths(t *testing.T) {
	t.Parallel()
	for r := rune(1); r <= utf8.MaxRune; r++ {
		if r > 0x20000 && r%0x1000 > 1 {
			continue // of what is alike the edges
		}
		name := "a" + string(r) + "b"
		if err := jobconfig.CheckJobName(name); err == nil {
			if err := registry.CheckPath(NewLayout("ns", name).Config()); err != nil {
				t.Fatalf("%U: %v", r, err)
			}
		}
	}
	for _, name := range []string{"报表", "café", "a\u00a0b", "\uFFEF"} {
		if err := jobconfig.CheckJobName(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"😀", "a\U00020000", "\uE000", "\uF8FF", "\uFFFD"} {
		if err := jobconfig.CheckJobName(name); err == nil || !strings.Contains(err.Error(), "beyond U+FFEF") {
			t.Errorf("%q: found %v, expected that ZooKeeper does not take it", name, err)
		}
	}
}
