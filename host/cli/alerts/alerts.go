package alerts

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/wasmjob/wasmjob/host/alert"
	"github.com/wasmjob/wasmjob/host/alert/store"
	"github.com/wasmjob/wasmjob/host/cli/command"
	"github.com/wasmjob/wasmjob/host/cli/show"
	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/control/service"
	"github.com/wasmjob/wasmjob/internal/labels"
	"github.com/wasmjob/wasmjob/internal/text/times"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// boardOf is where alerts and silences stand in the registry itself.
func boardOf(o *command.Opened) *store.Board { return store.Of(o.Center, o.Namespace) }

// alerts are those that stand in the registry.
func alerts(ctx context.Context, r *command.Reached) (list service.Alerts, err error) {
	if r.Client != nil {
		err = r.Client.Get(ctx, "/v1/alerts", &list)
		return list, err
	}
	content, err := boardOf(r.Registry).Read(ctx)
	return service.Alerts{Alerts: service.AlertsOf(content.Alerts, content.Silences, nil, time.Now()), Silences: content.Silences}, err
}

func listCommand(p *command.Program) *cobra.Command {
	var how command.Shown
	cmd := &cobra.Command{
		Use: "list [flags]", Short: "Show alerts, who got messages about them, and silences", Args: command.Exactly(),
		Example: "  wasmjob alert list\n  wasmjob alert list --zk zk1:2181 --namespace prod --json",
	}
	how.Add(cmd, "them")
	p.OnTarget(cmd, func(ctx context.Context, r *command.Reached, _ []string) error {
		return p.Show(ctx, &how, func() (any, string, error) {
			list, err := alerts(ctx, r)
			if err != nil {
				return nil, "", err
			}
			var hosts []cluster.Host
			if r.Client != nil && len(list.Judges) > 0 {
				err = r.Client.Get(ctx, "/v1/hosts", &hosts)
			}
			return list, show.Alerts(p.Tables(), &list, list.Without(hosts), service.AlertProblems(hosts), time.Now()), err
		})
	})
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	return cmd
}

func silenceCommand(p *command.Program) *cobra.Command {
	var span, reason string
	var rules, conditions []string
	cmd := &cobra.Command{
		Use:   "silence JOB --for DURATION [flags]",
		Short: "Keep messages about a job's alerts from being sent for a while",
		Long: `Keep messages about alerts from being sent until the silence ends: of a job, of jobs
whose names match a pattern, or of all jobs and hosts with '*'. Alerts that still go on
when it ends are sent then. A name that no job has is refused. 'wasmjob alert unsilence'
ends it before its time.`,
		Example: "  wasmjob alert silence report --for 2h --reason 'the source is down until 5'\n  wasmjob alert silence 'etl-*' --for 7d --rule startWithin --reason 'moves to another zone'\n  wasmjob alert silence '*' --label team=billing --for 1h",
		Args:    command.Exactly("the job's name, or a pattern,"),
	}
	cmd.Flags().StringVar(&span, "for", "", "how long, a `DURATION` from 1m to 90d: 2h, 7d")
	cmd.Flags().StringVar(&reason, "reason", "", "`TEXT` that says why, for those who look at the silences")
	cmd.Flags().StringSliceVar(&rules, "rule", nil, "only this `RULE`, such as startWithin; may be repeated")
	cmd.Flags().StringArrayVar(&conditions, "label", nil, "only of jobs with these labels: `CONDITIONS` such as "+labels.Example)
	t := p.AddTarget(cmd)
	t.Writes = true
	return p.On(t, cmd, func(ctx context.Context, r *command.Reached, args []string) error {
		d, err := times.Duration(span)
		switch {
		case span == "":
			return command.Usagef("--for is missing, expected a duration such as 2h or 7d")
		case err != nil:
			return command.Usagef("--for: found %q, expected a duration such as 2h or 7d", words.Clip(span))
		}
		now := time.Now()
		s := alert.Silence{Jobs: args[0], From: now, Until: now.Add(d), By: command.WhoAsks(), Why: reason}
		if s.Labels, err = labels.ParseSelector(conditions...); err != nil {
			return command.Usagef("--label: %v", err)
		}
		for _, rule := range rules {
			s.Rules = append(s.Rules, alert.Rule(rule))
		}
		switch field, problem := s.Check(); {
		case problem == "":
		case field == "for":
			return command.Usagef("--for: %s", problem)
		case field == "why":
			return command.Usagef("--reason: %s", problem)
		default:
			return command.Usagef("%s", problem)
		}
		note := ""
		names, err := r.Names(ctx)
		ofAny := alert.Silence{Jobs: s.Jobs, Until: s.Until} // whatever the rules are
		covered := func(job string) bool { return ofAny.Covers(&alert.Alert{Job: job}, now) }
		if err == nil && s.Jobs != "*" && !slices.ContainsFunc(names, covered) {
			if !strings.ContainsAny(s.Jobs, `*?[\`) {
				return fmt.Errorf("there is no job %q%s (a pattern such as %s is taken whether a job has such a name or not)", words.Clip(s.Jobs), words.Suggest(s.Jobs, names), words.Argument(words.Clip(s.Jobs)+"*"))
			}
			note = "; no job has such a name now"
		}
		if r.Client == nil {
			s, err = boardOf(r.Registry).Silence(ctx, s)
		} else {
			wanted := map[string]any{"jobs": s.Jobs, "for": span, "why": reason}
			if !s.Labels.Empty() {
				wanted["labels"] = s.Labels.String()
			}
			if len(rules) > 0 {
				wanted["rules"] = rules
			}
			err = r.Client.Send(ctx, http.MethodPost, "/v1/silences", wanted, &s)
		}
		return p.Done(err, "silenced alerts of "+show.SilencedJobs(&s)+" until "+s.Until.Local().Format(time.RFC3339)+", silence "+s.ID+note)
	})
}

func unsilenceCommand(p *command.Program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "unsilence ID [flags]", Short: "End a silence before its time", Args: command.Exactly("the silence's id"),
		Example: "  wasmjob alert unsilence 5f0c2b7a91d3e4f6",
	}
	p.OnChange(cmd, func(ctx context.Context, r *command.Reached, args []string) (err error) {
		switch {
		case !alert.IsID(args[0]):
			return command.Usagef("%q is not the id of a silence; 'wasmjob alert list' shows it", words.Clip(args[0]))
		case r.Client == nil:
			err = boardOf(r.Registry).Unsilence(ctx, args[0])
		default:
			err = r.Client.Send(ctx, http.MethodDelete, "/v1/silences/"+url.PathEscape(args[0]), struct{}{}, nil)
		}
		return p.Done(err, "ended the silence "+args[0])
	})
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	return cmd
}
