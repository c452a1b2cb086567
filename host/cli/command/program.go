// Package command has what commands share: their access to the process, errors on the command line, the flags that name a
// host or a registry, and the forms of output.
//
// The packages of commands import it; host/node/program assembles the commands. It is not safe for concurrent use.
package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/host/cli/terminal"
	"github.com/wasmjob/wasmjob/host/control/admin"
	"github.com/wasmjob/wasmjob/internal/text/times"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

const (
	// EnvPrefix begins the names of the variables that are settings.
	EnvPrefix = "WASMJOB_"
	// ConfigFlag names the configuration file.
	ConfigFlag = "config"
)

// Program is one run of the command line, with its access to the process.
type Program struct {
	In             io.Reader // nil: none
	Out, Err       io.Writer
	OutTTY, ErrTTY bool
	// Raw is stdout for bytes that must arrive unchanged; [Program.Bytes] uses it. Seal is the seal of Out and Err.
	// Protect sets both.
	Raw  io.Writer
	Seal terminal.Seal
	// Width returns the columns of the terminal on stdout, 0 if unknown. It may be nil.
	Width func() int
	// Height returns the lines of the terminal on stdout, 0 if unknown. It may be nil.
	Height  func() int
	Environ []string
	// Notify begins to deliver SIGINT and SIGTERM; the returned function ends that.
	Notify func() (<-chan os.Signal, func())
	// RegistryFlags adds the flags that name a registry. OpenNamespace connects to the registry that the flags, the
	// environment or a configuration file name; writes says that the command changes something there.
	RegistryFlags func(*pflag.FlagSet)
	OpenNamespace func(ctx context.Context, flags *pflag.FlagSet, writes bool) (*Opened, error)
	// Former says that the command was called by a former name: lists are then printed in their former form.
	Former bool
}

// Opened is an open namespace of the registry, for a command.
type Opened struct {
	Namespace string
	Backend   string // as people know it
	Center    registry.Center
	Jobs      *admin.Registry
}

// Close ends the session.
func (o *Opened) Close() error { return o.Center.Close() }

// Heading returns the line that says which registry is shown.
func (o *Opened) Heading(s terminal.Style) string {
	return s.Fact("registry", o.Backend+", namespace "+o.Namespace)
}

// Protect makes Out and Err escape terminal commands in foreign text from any writer. The returned function writes
// what they still hold.
func (p *Program) Protect() (flush func() error) {
	p.Seal = terminal.NewSeal()
	out, errs := terminal.NewTerminal(p.Out, p.Seal), terminal.NewTerminal(p.Err, p.Seal)
	p.Raw, p.Out, p.Err = p.Out, out, errs
	return func() error { return errors.Join(out.Flush(), errs.Flush()) }
}

// Bytes returns the writer for bytes that a pipe or a file gets unchanged: stdout, unless it is a terminal.
func (p *Program) Bytes() io.Writer {
	if p.OutTTY || p.Raw == nil {
		return p.Out
	}
	return p.Raw
}

// Getenv is the value of a variable; empty if there is none.
func (p *Program) Getenv(name string) string { return Lookup(p.Environ, name) }

// Lookup is the value of a variable, the last one if there are several; empty if there is
// none.
func Lookup(environ []string, name string) string {
	value := ""
	for _, e := range environ {
		if v, ok := strings.CutPrefix(e, name+"="); ok {
			value = v
		}
	}
	return value
}

// Colour reports whether a stream gets colours.
func (p *Program) Colour(tty bool) bool {
	return tty && p.Getenv("NO_COLOR") == "" && p.Getenv("TERM") != "dumb"
}

// Tables returns the style of tables on stdout.
func (p *Program) Tables() terminal.Style {
	s := terminal.Style{Colour: p.Colour(p.OutTTY), Seal: p.Seal}
	if p.OutTTY && p.Width != nil {
		s.Width = p.Width()
	}
	if p.OutTTY && p.Height != nil {
		s.Height = p.Height()
	}
	return s
}

// PrintJSON writes a value as JSON; it writes a list as [Program.Print] does.
func (p *Program) PrintJSON(v any) error {
	e := json.NewEncoder(p.Out)
	e.SetIndent("", "  ")
	return e.Encode(p.listed(v))
}

// Done prints what was done, unless there is an error.
func (p *Program) Done(err error, what string) error {
	if err == nil {
		_, err = fmt.Fprintln(p.Out, what)
	}
	return err
}

// UsageError is a mistake on the command line or in the configuration.
type UsageError struct{ error }

// Unwrap is the mistake.
func (u UsageError) Unwrap() error { return u.error }

// Usage marks an error as a mistake on the command line.
func Usage(err error) error { return UsageError{err} }

// Usagef makes one.
func Usagef(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

// Said is an error whose text has been shown in full.
type Said struct{}

func (Said) Error() string { return "failed" }

// Exit is an exit code whose reason has been shown in full.
type Exit int

func (e Exit) Error() string { return "exit code " + strconv.Itoa(int(e)) }

// The exit codes of commands that answer a question, or wait for an end. 0 is yes or success, 1 is any other failure, 2
// is an error on the command line. A running host uses 3 for itself: the process ends so that no guest of a lost session
// continues.
const (
	ExitNo      Exit = 3 // the answer is no
	ExitRunning Exit = 4 // what was to end goes on
	ExitFailed  Exit = 5 // it has ended, and an item was not OK
	ExitNotRun  Exit = 6 // it is over, and an item did not run
	ExitUnknown Exit = 7 // the answer is not known
)

// Exactly requires as many arguments as names; the names are for the message.
func Exactly(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return Usagef("%s is missing", names[len(args)])
		case len(args) > len(names):
			return Usagef("unexpected argument %q", words.Clip(args[len(names)]))
		}
		return nil
	}
}

// Instant is the value of a flag that takes an instant.
func Instant(flag, text string, now time.Time, to times.Direction) (time.Time, error) {
	t, err := times.Instant(text, now, to)
	if err != nil {
		return t, Usagef("--%s: %w", flag, err)
	}
	return t, nil
}

// DurationVar adds a flag that takes a duration.
func DurationVar(flags *pflag.FlagSet, into *time.Duration, name string, standard time.Duration, usage string) {
	*into = standard
	flags.Var((*duration)(into), name, usage)
	if standard == 0 {
		flags.Lookup(name).DefValue = "" // which the help leaves out
	}
}

// duration is a duration as a flag.
type duration time.Duration

func (d *duration) String() string { return words.Duration(time.Duration(*d)) }
func (d *duration) Type() string   { return "duration" }

func (d *duration) Set(text string) error {
	read, err := times.Duration(text)
	*d = duration(read)
	return err
}

// WhoAsks returns the user and the machine, for the audit; empty if both are unknown.
func WhoAsks() string {
	name := ""
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if machine, err := os.Hostname(); err == nil {
		name = strings.TrimSuffix(name+"@"+machine, "@")
	}
	return words.Clip(words.Printable(name))
}

// Group is a command that has others.
func Group(use, short, long, example string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Long: long, Example: example, RunE: func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			hint := ""
			if path := Meant(cmd, args[0], nil); path != "" {
				hint = fmt.Sprintf("; did you mean %q?", path)
			}
			return Usagef("unknown command %q for %q%s", words.Clip(args[0]), cmd.CommandPath(), hint)
		}
		return cmd.Help()
	}}
	for _, c := range commands {
		c.DisableFlagsInUseLine = true
		cmd.AddCommand(c)
	}
	return cmd
}
