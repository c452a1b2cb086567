package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/wasmjob/wasmjob/host/plugin"
)

// compileWord is what this program is started with by itself.
const compileWord = "compile-module"

// thisProgram makes the command with which this program compiles modules beside
// itself; nil if it cannot be found.
func thisProgram() func() *exec.Cmd {
	path, err := os.Executable()
	if err != nil {
		return nil
	}
	if runtime.GOOS == "linux" {
		// This very program, also if its file was replaced since: what one
		// version compiles, another might not find.
		path = "/proc/self/exe"
	}
	return func() *exec.Cmd {
		c := exec.Command(path, compileWord)
		c.Args[0] = os.Args[0] // as people know it
		return c
	}
}

func (p *program) compileCommand() *cobra.Command {
	return &cobra.Command{
		Use:   compileWord,
		Short: "Compile a module for the host that has started this",
		Long: `Compile the module that comes on standard input, with what the program that has
started this says of it. A host starts itself with it, and so do invoke and
validate; it is of no use to people.`,
		Example: "  wasmjob compile-module",
		Hidden:  true,
		Args:    exactly(),
		RunE: func(*cobra.Command, []string) error {
			if p.in == nil {
				return fmt.Errorf("%s has no standard input", compileWord)
			}
			return plugin.ServeCompile(p.in, p.out)
		},
	}
}
