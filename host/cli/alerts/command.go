// Package alerts has the command alert: test and export, which need the file of alerts and
// no host, and what looks at alerts and silences them.
package alerts

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/wasmjob/wasmjob/host/cli/command"

	"github.com/spf13/cobra"

	"github.com/wasmjob/wasmjob/host/alert"
	"github.com/wasmjob/wasmjob/host/alert/notify"
)

// files are the commands that need the file of alerts alone.
type files struct {
	*command.Program
	file string // unless the flag --alerts names one; empty: none
}

// Commands is the command alert, with those below it. file is the file of alerts unless the
// flag --alerts names one; empty: none.
func Commands(p *command.Program, file string) *cobra.Command {
	f := &files{p, file}
	return command.Group("alert", "Show alerts, silence them, and try who gets them", `Show what is wrong with jobs and hosts, keep messages about it from being sent for
a while, send a test message, and make Prometheus rules of the rules. Rules, routes and
receivers stand in the file of 'wasmjob run --alerts'; docs/alerts.md has its form.`,
		"  wasmjob alert list\n  wasmjob alert silence 'etl-*' --for 2h --reason 'the database is moved'\n  wasmjob alert test --alerts alerts.yaml",
		f.test(), f.export(), listCommand(p), silenceCommand(p), unsilenceCommand(p))
}

// flag adds --alerts.
func (f *files) flag(cmd *cobra.Command) *string {
	return cmd.Flags().String("alerts", f.file, "`FILE` with rules, routes and receivers, that of 'wasmjob run --alerts'")
}

// read reads the file. A mistake in it is one of usage.
func (f *files) read(path string) (*alert.File, error) {
	if path == "" {
		return nil, command.Usage(fmt.Errorf("--alerts is missing, the file with rules, routes and receivers"))
	}
	rules, err := alert.Read(path)
	if err != nil {
		return nil, command.Usage(fmt.Errorf("--alerts: %w", err))
	}
	return rules, nil
}

func (f *files) test() *cobra.Command {
	var file *string
	route := ""
	cmd := &cobra.Command{
		Use:   "test [flags]",
		Short: "Send a test message to the receivers of all routes, or of one",
		Long: `Send a message that says that it is a test to each receiver of each route of the
file, or of the route that --route names, and show who took it. The exit code is 1
if one did not. Secrets are read as a host reads them: run it as the host's user.`,
		Example: "  wasmjob alert test --alerts alerts.yaml\n  wasmjob alert test --route nights --alerts alerts.yaml",
		Args:    command.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			rules, err := f.read(*file)
			if err != nil {
				return err
			}
			routes, err := rules.RoutesNamed(route)
			if err != nil {
				return command.Usage(fmt.Errorf("--route: %s: %w", *file, err))
			}
			return f.send(cmd.Context(), rules, routes)
		},
	}
	file = f.flag(cmd)
	cmd.Flags().StringVar(&route, "route", "", "only the route with this `NAME`")
	return cmd
}

// send sends a test message to the receivers of routes.
func (f *files) send(ctx context.Context, rules *alert.File, routes []alert.Route) error {
	sender := notify.New()
	defer sender.Close()
	failed := false
	for _, t := range rules.Try(ctx, routes, sender.Send, time.Now()) {
		said := "sent"
		if t.Error != "" {
			failed, said = true, "not sent: "+t.Error
		}
		if _, err := fmt.Fprintf(f.Out, "%s (%s): %s\n", t.Target, t.Kind, said); err != nil {
			return err
		}
	}
	if failed {
		return command.Said{}
	}
	return nil
}

func (f *files) export() *cobra.Command {
	var file *string
	cmd := &cobra.Command{
		Use:   "export [flags]",
		Short: "Make Prometheus rules of the rules of the file",
		Long: `Write the rules of the file as a rule file of Prometheus, over the metrics of the
hosts. Some of them are only near to what hosts do: docs/alerts.md says which.`,
		Example: "  wasmjob alert export --alerts alerts.yaml > wasmjob-alerts.rules.yaml",
		Args:    command.Exactly(),
		RunE: func(*cobra.Command, []string) error {
			rules, err := f.read(*file)
			if err != nil {
				return err
			}
			_, err = io.WriteString(f.Out, rules.Prometheus(*file))
			return err
		},
	}
	file = f.flag(cmd)
	return cmd
}
