package jobs

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wasmjob/wasmjob/host/cli/command"
	"github.com/wasmjob/wasmjob/host/control/admin"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

func limitsCommand(p *command.Program) *cobra.Command {
	var how command.Shown
	cmd := &cobra.Command{
		Use:        "limits [flags]",
		SuggestFor: []string{"concurrency", "rates", "permits"},
		Short:      "Show who runs and who waits under 'concurrency' and 'rate'",
		Long: `Show the keys of 'concurrency' and 'rate' under which something runs, waits, or has begun
lately: which items have a permit and since when, who waits for one, and from when the
next may begin under a rate.`,
		Example: "  wasmjob job limits",
		Args:    cobra.NoArgs,
	}
	how.AddOutput(cmd, "the limits")
	t := p.AddHost(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return p.With(cmd, t, func(ctx context.Context, r *command.Reached) error {
			var answer admin.Limits
			if err := r.Client.Get(ctx, "/v1/limits", &answer); err != nil {
				return err
			}
			return p.Print(&how, answer, limitsText(&answer, time.Now()))
		})
	}
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	return cmd
}

// limitsText is the answer for people.
func limitsText(l *admin.Limits, now time.Time) string {
	if len(l.Permits)+len(l.Rates) == 0 {
		return "nothing runs or waits under a limit over the cluster\n"
	}
	var b strings.Builder
	ago := func(t time.Time) string { return words.Duration(max(now.Sub(t), 0).Round(time.Second)) }
	some := func(n int, line func(k int)) {
		for k := range min(n, mostShown) {
			line(k)
		}
		if n > mostShown {
			fmt.Fprintf(&b, "  … and %d more\n", n-mostShown)
		}
	}
	for _, p := range l.Permits {
		fmt.Fprintf(&b, "concurrency %s: %d of %d run, %s\n", p.Key, len(p.Running), p.Max, waitText(len(p.Waiting)))
		some(len(p.Running), func(k int) {
			u := p.Running[k]
			item := "an item"
			if u.Item != nil {
				item = fmt.Sprintf("item %d", *u.Item)
			}
			fmt.Fprintf(&b, "  runs   %s, %s on %s, for %s\n", u.Job, item, u.Host, ago(u.Since))
		})
		some(len(p.Waiting), func(k int) {
			u := p.Waiting[k]
			fmt.Fprintf(&b, "  waits  %s on %s, for %s\n", u.Job, u.Host, ago(u.Since))
		})
		if p.More > 0 {
			fmt.Fprintf(&b, "  %d more are not shown\n", p.More)
		}
	}
	for _, r := range l.Rates {
		fmt.Fprintf(&b, "rate %s: %d of %d begun in %s, %s\n", r.Key, r.Begun, r.Max, r.Per, waitText(len(r.Waiting)))
		if !r.PausedUntil.IsZero() {
			fmt.Fprintf(&b, "  paused until %s by a guest of %s\n", r.PausedUntil.Format(time.RFC3339), r.PausedBy)
		}
		some(len(r.Waiting), func(k int) {
			t := r.Waiting[k]
			fmt.Fprintf(&b, "  waits  %s on %s, may begin from %s on\n", t.Job, t.Host, t.At.Format(time.RFC3339))
		})
	}
	if l.More > 0 {
		fmt.Fprintf(&b, "%s are not shown\n", words.Count(l.More, "more key"))
	}
	return b.String()
}

// waitText says how many wait.
func waitText(n int) string {
	switch n {
	case 0:
		return "none waits"
	case 1:
		return "1 waits"
	}
	return fmt.Sprintf("%d wait", n)
}
