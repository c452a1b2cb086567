package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/admin/operate"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/host/cli/command"
	"github.com/wasmjob/wasmjob/host/cli/show"
	"github.com/wasmjob/wasmjob/host/cli/terminal"
	"github.com/wasmjob/wasmjob/host/control/admin"
	"github.com/wasmjob/wasmjob/host/control/client"
	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/control/forecast"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

func editCommand(p *command.Program) *cobra.Command {
	preview := false
	cmd := &cobra.Command{
		Use:   "edit JOB [SETTING=VALUE …] [flags]",
		Short: "Show or change the settings of a job on all its hosts",
		Long: `Change settings of a job in the registry, by their names in a definition file: all
hosts of the job take them over at once. An empty
value takes a setting back to its default. Without a setting, show those that there
are, and where each comes from: a default, the definition file, or who changed it,
when and why. --preview shows what would change, and what of the next seven days' fires
would overlap or not run.

A definition file that has another value wins only when that value changes there, or
if the definition says overwrite: true.`,
		Example: "  wasmjob job edit cities\n  wasmjob job edit cities cron='0 0 4 * * ?' --reason 'the backup runs until 3'\n  wasmjob job edit cities shardingTotalCount=8 --preview",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return command.Usagef("the job's name is missing")
			}
			_, err := parseEdits(args[1:])
			return err
		},
	}
	cmd.Flags().BoolVar(&preview, "preview", false, "change nothing")
	var how command.Shown
	how.AddOutput(cmd, "them")
	p.OnChange(cmd, func(ctx context.Context, r *command.Reached, args []string) error {
		job := args[0]
		edits, err := parseEdits(args[1:])
		if err != nil {
			return err
		}
		if len(edits) == 0 {
			c, err := r.Config(ctx, job)
			if err != nil {
				return r.Similar(ctx, job, err)
			}
			return p.Print(&how, c, settingsText(p.Tables(), c, time.Now())+show.Silent(p.Tables(), c.Silent))
		}
		e, err := r.EditConfig(ctx, job, admin.Edit{Version: -1, Settings: edits, Preview: preview})
		if err != nil {
			return badSettings(r.Similar(ctx, job, err))
		}
		if !preview || e.Unchanged() {
			return p.Print(&how, e, editText(job, e, preview))
		}
		shown := previewed{Edited: e}
		text := editText(job, e, preview)
		if shown.Plan = planOf(ctx, r, e); shown.Plan != nil {
			text += show.EditPlan(p.Tables(), shown.Plan)
		}
		return p.Print(&how, shown, text)
	})
	complete := cmd.ValidArgsFunction
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, part string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return complete(cmd, args, part)
		}
		var names []string
		for _, s := range operate.Editable() {
			names = append(names, s.Name+"=")
		}
		return names, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
	}
	return cmd
}

// previewed is an edit that was tried.
type previewed struct {
	*admin.Edited
	// Plan is what it does within the next days; nil if that is not known.
	Plan *forecast.Edit `json:"plan,omitempty"`
}

// planOf says what an edit does, with the durations that the host knows; the registry knows none. It returns nil if that cannot be said,
// as of settings of a host of another version.
func planOf(ctx context.Context, r *command.Reached, e *admin.Edited) *forecast.Edit {
	d := forecast.NewDurations(forecast.DefaultDuration, false)
	if r.Client != nil {
		var found cluster.Found[history.Run]
		query := url.Values{"job": {e.After.Job}, "outcome": {string(abi.OutcomeOK)}, "limit": {"100"}}
		if err := r.Client.Get(ctx, "/v1/runs?"+query.Encode(), &found); err != nil {
			found.Silent = append(found.Silent, err.Error())
		}
		d.Missing(found.Silent...)
		for _, run := range found.Records {
			d.AddRun(run)
		}
	}
	planned, err := forecast.OfEdit(ctx, e, time.Now(), d)
	if err != nil {
		return nil
	}
	return planned
}

// parseEdits reads SETTING=VALUE.
func parseEdits(args []string) (map[string]string, error) {
	edits := make(map[string]string)
	for _, arg := range args {
		name, value, ok := strings.Cut(arg, "=")
		switch _, twice := edits[name]; {
		case !ok:
			return nil, command.Usagef("found %q, expected SETTING=VALUE", words.Clip(arg))
		case twice:
			return nil, command.Usagef("%s is given twice", name)
		}
		edits[name] = value
	}
	return edits, nil
}

func settingsText(s terminal.Style, c *admin.JobConfig, now time.Time) string {
	t := terminal.NewTable(s, "SETTING", "VALUE", "COMES FROM")
	zeros := make(map[string]string)
	for _, s := range operate.Editable() {
		if zero := s.Zero(c.Settings[s.Name]); zero != "" {
			zeros[s.Name] = ": " + zero
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Settings)) {
		t.Add(terminal.Coloured(name, terminal.Bold), terminal.Plain(words.Dash(c.Settings[name])+zeros[name]), originCell(c, c.Origins[name], now))
	}
	return t.String()
}

// originCell says where the value of a setting comes from.
func originCell(c *admin.JobConfig, o admin.Origin, now time.Time) terminal.Cell {
	switch o.From {
	case admin.FromDefault:
		return terminal.Coloured("default", terminal.Grey)
	case admin.FromFile:
		return terminal.Plain(cmp.Or(o.File, c.File, "the definition file"))
	case admin.FromRegistry:
		return terminal.Plain("the registry")
	case admin.FromEdit:
		text := fmt.Sprintf("edited by %s %s ago", o.Who, words.Ago(max(0, now.Sub(o.Time))))
		return terminal.Plain(strings.TrimSuffix(text+": "+words.FirstLine(o.Why), ": "))
	}
	return terminal.Plain(words.Dash(o.From)) // of a host of another version
}

// badSettings has the error about settings be one of the command line, on which they are.
func badSettings(err error) error {
	no := (*client.ServerError)(nil)
	if errors.As(err, new(*jobconfig.FieldError)) || (errors.As(err, &no) && no.Code == http.StatusUnprocessableEntity) {
		return command.Usage(err)
	}
	return err
}

// editText says what an edit changes, or would change.
func editText(job string, e *admin.Edited, preview bool) string {
	if e.Unchanged() {
		return "nothing to change: " + job + " is so already\n"
	}
	var b strings.Builder
	b.WriteString("changed " + job + "\n")
	if preview {
		b.Reset()
		b.WriteString("would change " + job + "\n")
	}
	for _, name := range slices.Sorted(maps.Keys(e.After.Settings)) {
		if before, after := e.Before.Settings[name], e.After.Settings[name]; before != after {
			fmt.Fprintf(&b, "  %s: %q → %q\n", name, before, after)
		}
	}
	return b.String()
}
