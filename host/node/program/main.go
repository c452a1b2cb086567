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
	"strings"
	"syscall"
	"time"

	alertcommand "github.com/wasmjob/wasmjob/host/cli/alerts"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/wasmjob/wasmjob/host/cli/command"
	"github.com/wasmjob/wasmjob/host/cli/jobs"
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
	// Only the standard library's HTTP client writes there: what servers send unasked, which may
	// be a secret that a guest's request has had.
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

// program is one run of the command: what it may touch of the process.
type program struct {
	command.Program
	// self makes a command that starts this program once more; nil: it cannot.
	self func(args ...string) *exec.Cmd
}

// main runs the command line and returns the exit code.
func (p *program) main(ctx context.Context, args []string) int {
	protected := *p // a second run begins with the same streams
	p = &protected
	flush := p.Protect()
	defer func() { _ = flush() }() // a closed stream cannot report its own error
	p.RegistryFlags = addRegistryFlags
	p.OpenNamespace = func(ctx context.Context, flags *pflag.FlagSet, writes bool) (*command.Opened, error) {
		return openNamespace(ctx, p, flags, writes)
	}
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

// Groups of commands in the help.
const (
	groupHost    = "host"
	groupAccess  = "access"
	groupAuthor  = "author"
	groupLook    = "look"
	groupOperate = "operate"
	groupMove    = "move"
	groupCheck   = "check"
)

// Commands is the tree of the program's commands, for what describes them. Its
// defaults are those of a machine without an environment. It is not to be run.
func Commands() *cobra.Command {
	p := &program{}
	root := p.root()
	p.completion(root)
	return root
}

func (p *program) root() *cobra.Command {
	p.RegistryFlags = addRegistryFlags
	p.OpenNamespace = func(ctx context.Context, flags *pflag.FlagSet, writes bool) (*command.Opened, error) {
		return openNamespace(ctx, p, flags, writes)
	}
	root := &cobra.Command{
		Use:     "wasmjob",
		Short:   "Sharded cron jobs in WebAssembly sandboxes",
		Version: versionLine(),
		Long: `wasmjob runs cron jobs that are WebAssembly modules. A job is divided into
items, which run side by side. Drop NAME.wasm and NAME.yaml into the plugins
directory and the job runs; replace or delete them and it follows, without a
restart. A host alone has its registry built in; hosts on several machines share
one in ZooKeeper (--zk), with ElasticJob 3.x if you like.`,
		Example: `  wasmjob demo
  wasmjob run --plugins plugins/examples
  wasmjob status
  wasmjob run --plugins jobs --zk zk1:2181,zk2:2181,zk3:2181 --namespace prod
  wasmjob invoke plugins/examples/cities.wasm --total 3 --param "0=Beijing,1=Shanghai"`,
		SilenceErrors:              true,
		SilenceUsage:               true,
		SuggestionsMinimumDistance: 2,
		Args:                       cobra.ArbitraryArgs,
		// An unknown command with flags of its own is still an unknown command.
		FParseErrWhitelist: cobra.FParseErrWhitelist{UnknownFlags: true},
		RunE:               func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetOut(p.Out)
	root.SetErr(p.Err)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return command.Usage(flagError(cmd, err)) })
	root.SetUsageTemplate(wrapFlags(root.UsageTemplate()))
	root.AddGroup(
		&cobra.Group{ID: groupHost, Title: "Run a host:"},
		&cobra.Group{ID: groupAccess, Title: "Say who may use a host:"},
		&cobra.Group{ID: groupAuthor, Title: "Write jobs:"},
		&cobra.Group{ID: groupLook, Title: "Look at the cluster, by any of its hosts:"},
		&cobra.Group{ID: groupOperate, Title: "Operate jobs, by the host that runs here or in ZooKeeper itself (--zk):"},
		&cobra.Group{ID: groupCheck, Title: "Check what hosts have done:"},
		&cobra.Group{ID: groupMove, Title: "Take jobs over from a registry, and keep what is in one:"},
	)
	add := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
			c.DisableFlagsInUseLine = true
			root.AddCommand(c)
		}
	}
	add(groupHost, demoCommand(p), initCommand(p), runCommand(p), grantsCommand(p), docsCommand(p), versionCommand(p))
	add(groupAccess, accessCommands(p)...)
	add(groupAuthor, invokeCommand(p), inspectCommand(p), validateCommand(p), nextCommand(p), planCommand(p), schemaCommand(p),
		signCommand(p), verifySignatureCommand(p))
	add(groupLook, jobs.Look(&p.Program)...)
	add(groupOperate, append(jobs.Operate(&p.Program), alertcommand.Commands(&p.Program, p.Getenv(alertsSetting(defaults{}).variable())))...)
	add(groupMove, importCommand(p), exportCommand(p), adoptCommand(p), backupCommand(p))
	add(groupCheck, jobs.Explain(&p.Program), verifyCommand(p))
	root.AddCommand(compileCommand(p), guestsCommand(p))
	return root
}

// unknownCommand is the error about a command that there is not; neither --help nor
// the command help hides it.
func unknownCommand(root *cobra.Command, args []string) error {
	if len(args) > 0 && args[0] == "help" {
		args = args[1:]
	}
	cmd, rest, err := root.Find(args)
	n := slices.IndexFunc(rest, func(s string) bool { return !strings.HasPrefix(s, "-") })
	if err != nil || cmd != root || n < 0 {
		return nil // cobra's own error says it, if there is one
	}
	name := rest[n]
	switch name {
	case "help", cobra.ShellCompRequestCmd, cobra.ShellCompNoDescRequestCmd:
		return nil // cobra adds them later
	case "print-config":
		return command.Usagef("unknown command %q; 'wasmjob run --print-config' shows the settings", name)
	case "chaos":
		return command.Usagef("unknown command %q; it is a program of its own: wasmjob-chaos", name)
	case "events":
		return command.Usagef("unknown command %q; 'wasmjob history', 'wasmjob runs' and 'wasmjob why JOB' show what has happened, GET /v1/events the events themselves", name)
	case "migrate":
		return command.Usagef("unknown command %q; 'wasmjob import elasticjob' takes jobs over from ElasticJob", name)
	}
	names := []string{"help"}
	for _, c := range root.Commands() {
		if slices.Contains(c.SuggestFor, name) {
			return command.Usagef("unknown command %q; did you mean %q?", name, c.Name())
		}
		names = append(names, c.Name())
	}
	return command.Usagef("unknown command %q%s", words.Clip(name), words.Suggest(name, names))
}

// completion has the command of that name refuse a shell that it does not know.
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

// flagError says what is wrong with a flag in the words of this program.
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
		// What other programs call what is meant.
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

// wrapFlags has long descriptions of flags broken into lines.
func wrapFlags(template string) string {
	template = strings.ReplaceAll(template, ".LocalFlags.FlagUsages", "(.LocalFlags.FlagUsagesWrapped 100)")
	return strings.ReplaceAll(template, ".InheritedFlags.FlagUsages", "(.InheritedFlags.FlagUsagesWrapped 100)")
}
