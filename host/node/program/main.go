// Package program is the program wasmjob, which cmd/host and cmd/wasmjob start. It
// runs a host of sharded cron jobs whose jobs are WebAssembly modules, and holds
// the tools around it: trying a module, checking definitions, and operating a
// running host.
//
// This package is the only one that reads flags, environment and configuration
// files. It wires the other packages together (wire.go) and decides what people
// see: the log, a line per fire in a terminal, and the exit code.
package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/wasmjob/wasmjob/host/cli/command"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// Exit codes.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
	exitStuck   = 3 // a guest of a lost session could not be stopped; commands have command.Exit
)

// Main runs the program with the command line, environment and streams of this
// process, and ends the process with the exit code.
func Main() {
	// Only the standard library's HTTP client writes there: unsolicited data of servers, which may contain a secret of a
	// guest's request.
	log.SetOutput(io.Discard)
	p := &program{
		Program: command.Program{
			In:     os.Stdin,
			Out:    os.Stdout,
			Err:    os.Stderr,
			OutTTY: term.IsTerminal(int(os.Stdout.Fd())),
			ErrTTY: term.IsTerminal(int(os.Stderr.Fd())),
			Width: func() int {
				w, _, err := term.GetSize(int(os.Stdout.Fd()))
				if err != nil {
					return 0
				}
				return w
			},
			Height: func() int {
				_, h, err := term.GetSize(int(os.Stdout.Fd()))
				if err != nil {
					return 0
				}
				return h
			},
			Environ: os.Environ(),
			Notify: func() (<-chan os.Signal, func()) {
				c := make(chan os.Signal, 2)
				signal.Notify(c, os.Interrupt, syscall.SIGTERM)
				return c, func() { signal.Stop(c) }
			},
		},
		self: thisProgram(),
	}
	if zone, err := ownZone(p.Environ); err == nil && zone != nil { // main says what is wrong
		time.Local = zone
	}
	os.Exit(p.main(context.Background(), os.Args[1:]))
}

// program is one run of the command, with its access to the process.
type program struct {
	command.Program
	// self returns a command that starts this program again; nil: it cannot be started.
	self func(args ...string) *exec.Cmd
}

// main runs the command line and returns the exit code.
func (p *program) main(ctx context.Context, args []string) int {
	protected := *p // a second run begins with the same streams
	p = &protected
	flush := p.Protect()
	defer func() { _ = flush() }() // a closed stream cannot report its own error
	args, p.Former = withNewNames(args)
	root := p.root()
	root.SetArgs(args)
	p.completion(root)
	cmd, err := root, unknownCommand(root, args)
	if err == nil {
		_, err = ownZone(p.Environ)
	}
	if err == nil {
		cmd, err = root.ExecuteContextC(ctx)
	}
	if err == nil {
		return exitOK
	}
	var said command.Said
	var usage command.UsageError
	var exit command.Exit
	switch {
	case errors.As(err, &said):
	case errors.As(err, &exit):
		return int(exit)
	case errors.As(err, &usage):
		fmt.Fprintf(p.Err, "wasmjob: %v\nSee '%s --help'.\n", err, cmd.CommandPath())
		return exitUsage
	default:
		fmt.Fprintf(p.Err, "wasmjob: %v\n", err)
	}
	return exitFailure
}

// Commands returns the tree of the program's commands, for tools that describe them. Its defaults are those of a machine
// without an environment. It must not be run.
func Commands() *cobra.Command {
	p := &program{}
	root := p.root()
	p.completion(root)
	return root
}

// completion makes the command of that name reject a shell that it does not know.
func (p *program) completion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	cmd, _, err := root.Find([]string{"completion"})
	if err != nil || cmd == root {
		return // there is none
	}
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		return command.Usagef("there is no completion for %q; expected bash, zsh, fish or powershell", words.Clip(args[0]))
	}
}

// flagError words an error about a flag.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var invalid *pflag.InvalidValueError
	switch {
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() == "":
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				names = append(names, "--"+f.Name)
			}
		})
		name := unknown.GetSpecifiedName()
		// Names of other programs for flags of this one.
		other := map[string]string{"tail": "--limit", "lines": "--limit", "since": "--from", "until": "--to", "grep": "--text"}[name]
		if slices.Contains(names, other) {
			return fmt.Errorf("unknown flag --%s; did you mean %q?", name, other)
		}
		return fmt.Errorf("unknown flag --%s%s", words.Clip(name), words.Suggest("--"+name, names))
	case errors.As(err, &invalid):
		f := invalid.GetFlag()
		want := map[string]string{"duration": "a duration such as 500ms, 10s, 1h30m or 7d", "int": "a whole number", "uint64": "a whole number from 0", "bool": "true or false"}[f.Value.Type()]
		if want != "" {
			return fmt.Errorf("--%s: %q is not %s", f.Name, words.Clip(invalid.GetValue()), want)
		}
	}
	return err
}
