package jobs

import (
	"slices"
	"testing"

	"github.com/spf13/pflag"

	"github.com/wasmjob/wasmjob/host/cli/command"
	"github.com/wasmjob/wasmjob/host/event/operation"
)

// TestCatalogue: the catalogue has each command that changes something.
func TestCatalogue(t *testing.T) {
	t.Parallel()
	p := &command.Program{RegistryFlags: func(flags *pflag.FlagSet) {
		for _, name := range []string{command.ConfigFlag, "registry", "zk", "namespace"} {
			flags.String(name, "", "")
		}
	}}
	for _, c := range Operate(p) {
		if !slices.ContainsFunc(operation.All(), func(o operation.Operation) bool { return slices.Contains(o.Row().Commands, "job "+c.Name()) }) {
			t.Errorf("the command %s changes something, and no operation of the catalogue has it", c.Name())
		}
	}
}
