package jobs

import (
	"slices"
	"testing"

	"github.com/spf13/pflag"

	"github.com/wasmjob/wasmjob/host/cli/alerts"
	"github.com/wasmjob/wasmjob/host/cli/command"
	"github.com/wasmjob/wasmjob/host/event/operation"
)

// TestCatalogue: the catalogue names the commands that change something, and no other.
func TestCatalogue(t *testing.T) {
	t.Parallel()
	p := &command.Program{RegistryFlags: func(flags *pflag.FlagSet) {
		for _, name := range []string{command.ConfigFlag, "registry", "zk", "namespace"} {
			flags.String(name, "", "")
		}
	}}
	var have []string
	for _, c := range Operate(p) {
		have = append(have, c.Name())
	}
	asks := func(name string) bool {
		return slices.ContainsFunc(operation.All(), func(o operation.Operation) bool { return slices.Contains(o.Row().Commands, name) })
	}
	for _, name := range have {
		if !asks(name) {
			t.Errorf("the command %s changes something, and no operation of the catalogue has it", name)
		}
	}
	for _, c := range alerts.Commands(p, "").Commands() {
		have = append(have, "alert "+c.Name())
	}
	for _, o := range operation.All() {
		for _, name := range o.Row().Commands {
			if !slices.Contains(have, name) {
				t.Errorf("there is no command %s, which the catalogue has for %q", name, o)
			}
		}
	}
}
