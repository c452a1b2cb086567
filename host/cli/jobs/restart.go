package jobs

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wasmjob/wasmjob/host/cli/command"
	"github.com/wasmjob/wasmjob/host/control/service"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

func mayRestartCommand(p *command.Program) *cobra.Command {
	var how command.Shown
	cmd := &cobra.Command{
		Use:   "may-restart [HOST] [flags]",
		Short: "Say whether a host may restart now, and what that would stop",
		Long: `Say whether a host may restart now: what runs there and would be stopped if it does
not end while the host drains; which jobs no other host can run, and why not (none has
the job or its module, grants or settings refuse it, it is paused there); and whether the
others have slots for what it runs. HOST is a name or an id as 'wasmjob host list' shows
it, or a server's address; without it, the host that answers is meant.

The exit code is 0 for yes, 3 for no, and 7 if it is not known because a host does not
answer.`,
		Example: "  wasmjob host may-restart 192.0.2.7 && ssh 192.0.2.7 systemctl restart wasmjob",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return command.Usagef("unexpected argument %q", words.Clip(args[1]))
			}
			return nil
		},
	}
	how.AddOutput(cmd, "the answer")
	t := p.AddHost(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return p.With(cmd, t, func(ctx context.Context, r *command.Reached) error {
			path := "/v1/hosts/restart"
			if len(args) > 0 {
				path += "?" + url.Values{"host": args}.Encode()
			}
			var answer service.Restart
			if err := r.Client.Get(ctx, path, &answer); err != nil {
				return err
			}
			if err := p.Print(&how, answer, restartText(&answer, time.Now())); err != nil {
				return err
			}
			switch answer.Answer {
			case service.RestartYes:
				return nil
			case service.RestartNo:
				return command.ExitNo
			}
			return command.ExitUnknown
		})
	}
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	return cmd
}

// restartText is the answer for people: the word, and what it rests on.
func restartText(a *service.Restart, now time.Time) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: host %s\n", a.Answer, a.Host)
	for n, r := range a.Runs {
		if n == mostShown {
			fmt.Fprintf(&b, "  … and %d more\n", len(a.Runs)-n)
			break
		}
		fmt.Fprintf(&b, "  runs      %s, item %d, for %s\n", r.Job, r.Item, words.Duration(now.Sub(r.Since).Round(time.Second)))
	}
	for n, j := range a.Only {
		if n == mostShown {
			fmt.Fprintf(&b, "  … and %d more\n", len(a.Only)-n)
			break
		}
		why := "there is no other host"
		if len(j.Why) > 0 {
			why = words.Some(j.Why, "; ")
		}
		fmt.Fprintf(&b, "  only here %s (%s)\n", j.Job, why)
	}
	fmt.Fprintf(&b, "  capacity  %d of %d slots on other hosts are free; %s run or wait here\n", a.Free, a.Slots, words.Count(a.Needed, "item"))
	for _, u := range a.Unknown {
		fmt.Fprintf(&b, "  unknown   %s\n", u)
	}
	return b.String()
}

// mostShown bounds the runs, and the jobs, of an answer for people.
const mostShown = 20
