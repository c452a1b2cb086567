package program

import (
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/host/event/operation"
)

// TestCatalogue: there is each command that the catalogue of operations names.
func TestCatalogue(t *testing.T) {
	t.Parallel()
	for _, o := range operation.All() {
		for _, name := range o.Row().Commands {
			if c, _, err := (&program{}).root().Find(strings.Fields(name)); err != nil || c.CommandPath() != "wasmjob "+name {
				t.Errorf("there is no command %s, which the catalogue has for %q: %v", name, o, err)
			}
		}
	}
}
