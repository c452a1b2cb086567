package program

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/wasmjob/wasmjob/host/cli/command"
	"github.com/wasmjob/wasmjob/host/sandbox/plugin"
	"github.com/wasmjob/wasmjob/host/sandbox/process"
)

// Commands that this program runs itself as.
const (
	compileWord = "compile-module"
	guestsWord  = "run-guests"
)

// thisProgram returns a func that makes commands of this program; nil if its file cannot be found.
func thisProgram() func(args ...string) *exec.Cmd {
	path, err := os.Executable()
	if err != nil { // without /proc it is where it was started from
		if path, err = exec.LookPath(os.Args[0]); err == nil {
			path, err = filepath.Abs(path)
		}
		if err != nil {
			return nil
		}
	} else if runtime.GOOS == "linux" {
		// The running program, even if its file was replaced: another version might not find what this one
		// compiles.
		path = "/proc/self/exe"
	}
	return func(args ...string) *exec.Cmd {
		c := exec.Command(path, args...)
		c.Args[0] = os.Args[0] // as people know it
		return c
	}
}

// compiler returns plugin.Options' Compiler; nil: modules are compiled in this process.
func compiler(p *program) func() *exec.Cmd {
	if p.self == nil {
		return nil
	}
	return func() *exec.Cmd { return p.self(compileWord) }
}

// newWorkers makes the worker processes of a runtime; nil if this program cannot start itself. items is how
// many items run at once; 0 if not set.
func newWorkers(p *program, r *plugin.Runtime, items int, log *slog.Logger) *process.Workers {
	if p.self == nil {
		return nil
	}
	return process.New(process.Options{Runtime: r, Items: items, Logger: log, Command: func(label string) *exec.Cmd { return p.self(guestsWord, label) }})
}

func guestsCommand(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   guestsWord + " LABEL",
		Short: "Run guests for the host that has started this",
		Long: `Run the guests of one job or of several, in a sandbox that is closed before the
first of them. A host starts itself with it, and so do invoke and validate; it is
of no use to people. LABEL says in lists of processes whose guests they are.`,
		Example: "  wasmjob run-guests guests",
		Hidden:  true,
		Args:    command.Exactly("the label"),
		RunE: func(*cobra.Command, []string) error {
			if p.In == nil {
				return fmt.Errorf("%s has no standard input", guestsWord)
			}
			return process.Serve(p.In, p.Bytes())
		},
	}
}

func compileCommand(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   compileWord,
		Short: "Compile a module for the host that has started this",
		Long: `Compile the module that comes on standard input, with what the program that has
started this says of it. A host starts itself with it, and so do invoke and
validate; it is of no use to people.`,
		Example: "  wasmjob compile-module",
		Hidden:  true,
		Args:    command.Exactly(),
		RunE: func(*cobra.Command, []string) error {
			if p.In == nil {
				return fmt.Errorf("%s has no standard input", compileWord)
			}
			return plugin.ServeCompile(p.In, p.Bytes())
		},
	}
}
