package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/host/admin"
	"github.com/wasmjob/wasmjob/words"
)

func (p *program) shardsCommand() *cobra.Command {
	var asJSON, watch bool
	var t *target
	cmd := &cobra.Command{
		Use:   "shards JOB [flags]",
		Short: "Show which instance has which item of a job",
		Long: `Show the items of a job on all hosts, as the registry has them: the instance that
owns each, what it is doing, and its newest run. The host that runs here is asked,
or with --zk the registry itself.`,
		Example: `  wasmjob shards cities
  wasmjob shards cities --watch
  wasmjob shards cities --zk zk1:2181,zk2:2181 --namespace prod --json`,
		Args: exactly("the job's name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.with(cmd, t, func(ctx context.Context, r *reached) error {
				show := func() error {
					s, err := r.Shards(ctx, args[0])
					switch {
					case err != nil:
						return r.similar(ctx, args[0], err)
					case asJSON:
						return p.printJSON(s)
					}
					text := shardsText(p.tables(), s, time.Now())
					if watch && p.outTTY {
						text = "\x1b[H\x1b[2J" + text
					}
					_, err = p.out.Write([]byte(text))
					return err
				}
				if !watch {
					return show()
				}
				return p.repeat(ctx, show)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "show them as JSON")
	cmd.Flags().BoolVar(&watch, "watch", false, "show them again each second, until Ctrl-C")
	t = p.addTarget(cmd)
	cmd.ValidArgsFunction = p.jobNames(t)
	return cmd
}

func stateColour(state string) string {
	switch state {
	case string(coordination.ShardRunning), coordination.DetailReady, string(coordination.JobOK):
		return green
	case string(coordination.ShardFailover), string(coordination.ShardHeld), string(coordination.JobCrashed), "GONE":
		return red
	case string(coordination.ShardPending):
		return grey
	}
	return yellow
}

// shardsText is what shards shows: the items, and who there is to run them.
func shardsText(s style, shards *admin.Shards, now time.Time) string {
	var b strings.Builder
	b.WriteString(shardsTable(s, shards, now) + "\n")
	if shards.Leader == "" {
		b.WriteString("no leader\n")
	}
	if len(shards.Instances) == 0 {
		b.WriteString("no instances\n")
		return b.String()
	}
	t := table{style: s}
	t.add(plain("INSTANCE", "STATE", "MODULE")...)
	for _, i := range shards.Instances {
		state := cell{i.State, stateColour(i.State)}
		if i.Leader {
			state.text += ", leads"
		}
		t.add(cell{i.ID, bold}, state, cell{words.Dash(short(i.Digest)), ""})
	}
	b.WriteString(t.String())
	return b.String()
}

func shardsTable(s style, shards *admin.Shards, now time.Time) string {
	if len(shards.Items) == 0 {
		return "no items yet: no instance has divided them\n"
	}
	t := table{style: s, spare: []string{"PARAMETER", "ENDED"}}
	t.add(plain("ITEM", "PARAMETER", "OWNER", "STATE", "FAILOVER", "BEGUN", "ENDED", "OUTCOME")...)
	for _, i := range shards.Items {
		state := cell{i.State, stateColour(i.State)}
		if i.RunningOn != "" && i.RunningOn != i.Owner {
			state.text += " on " + i.RunningOn
		}
		if i.RunningOn != "" && i.Disabled {
			state.text += ", RUNNING"
		}
		if i.Misfired {
			state.text += ", misfired"
		}
		if i.Moves {
			state.text += ", moves when it ends"
		}
		failover := cell{"-", grey}
		if i.Failover {
			failover = cell{"yes", red}
		}
		ended, outcome := words.Since(i.Ended, now), cell{words.Dash(i.Outcome), grey}
		if i.Outcome != "" {
			outcome.colour = outcomeColour(abi.Outcome(i.Outcome))
		}
		t.add(cell{strconv.Itoa(i.Item), bold}, cell{words.Dash(i.Parameter), ""}, cell{words.Dash(i.Owner), ""}, state, failover,
			cell{words.Since(i.Begun, now), ""}, cell{ended, ""}, outcome)
	}
	text := t.String() + reasonsText(s, shards) + heldText(s, shards, now)
	if shards.Sharding {
		text += s.paint(yellow, shardingText(shards)) + "\n"
	}
	return text
}

// shardingText says what becomes of a division that is asked for: only an
// instance on an enabled server makes it.
func shardingText(shards *admin.Shards) string {
	present, enabled := 0, 0
	for _, i := range shards.Instances {
		if i.Gone {
			continue
		}
		present++
		if !i.Disabled {
			enabled++
		}
	}
	if present > 0 && enabled == 0 {
		return "all servers are disabled; the items are divided when one is enabled"
	}
	return "the items are being divided anew"
}

// instancesText is what status shows of one job.
func instancesText(s style, shards *admin.Shards, now time.Time) string {
	var b strings.Builder
	show := func(what, text string) {
		fmt.Fprintf(&b, "%s  %s\n", s.paint(grey, pad(what, 9)), words.Printable(text))
	}
	show("job", shards.Job)
	cron := shards.Cron
	switch {
	case cron == "":
		cron = "(by trigger)"
	case shards.TimeZone != "":
		cron += " " + shards.TimeZone
	}
	show("cron", cron)
	show("items", strconv.Itoa(shards.ShardingTotalCount))
	if shards.Sharding {
		show("sharding", shardingText(shards))
	}
	show("leader", words.Dash(shards.Leader))
	b.WriteString("\n")
	if len(shards.Instances) == 0 {
		b.WriteString("no instances: nobody runs this job\n")
		return b.String()
	}
	t := table{style: s, spare: []string{"COMPLETED", "BEGUN"}}
	t.add(plain("INSTANCE", "STATE", "ITEMS", "RUNNING", "MODULE", "BEGUN", "COMPLETED")...)
	for _, i := range shards.Instances {
		state := cell{i.State, stateColour(i.State)}
		if i.Disabled {
			state.text, state.colour = state.text+", disabled", yellow
		}
		if i.Leader {
			state.text += ", leads"
		}
		digest := cell{words.Dash(short(i.Digest)), ""}
		if len(shards.Digests) > 1 && i.Digest != "" {
			digest.colour = yellow
		}
		t.add(cell{i.ID, bold}, state, cell{words.Dash(i.Items), ""}, cell{words.Dash(i.Running), ""}, digest,
			cell{words.Since(i.Begun, now), ""}, cell{words.Since(i.Completed, now), ""})
	}
	b.WriteString(t.String())
	b.WriteString(movesText(s, shards, now))
	b.WriteString(reasonsText(s, shards))
	b.WriteString(heldText(s, shards, now))
	if len(shards.Digests) > 1 {
		fmt.Fprintf(&b, "\n%s %d different modules run for this job:\n", s.paint(yellow, "warning:"), len(shards.Digests))
		for _, d := range shards.Digests {
			var ids []string
			for _, i := range shards.Instances {
				if i.Digest == d {
					ids = append(ids, i.ID)
				}
			}
			fmt.Fprintf(&b, "  %s  on %s\n", short(d), strings.Join(ids, ", "))
		}
	}
	return b.String()
}

// movesText describes items that stay where they run and are to move: the
// division waits for each of them, and nothing else does.
func movesText(s style, shards *admin.Shards, now time.Time) string {
	var b strings.Builder
	for _, i := range shards.Items {
		if !i.Moves {
			continue
		}
		where, ran := "its host", ""
		if i.RunningOn != "" {
			where = i.RunningOn
		}
		if !i.Begun.IsZero() && i.Fence != 0 {
			ran = ", which has run it for " + words.Ago(max(0, now.Sub(i.Begun)))
		}
		fmt.Fprintf(&b, "%s item %d stays on %s%s; the items were divided %s, while it ran, and it moves when it ends\n",
			s.paint(yellow, "waits:"), i.Item, words.Printable(where), ran, words.Since(i.MovesSince, now))
	}
	if b.Len() == 0 {
		return ""
	}
	return "\n" + s.wrapped(b.String())
}

// reasonsText is why the last runs of items ended as they did, where the registry
// knows.
func reasonsText(s style, shards *admin.Shards) string {
	var b strings.Builder
	for _, i := range shards.Items {
		if i.Reason != "" {
			fmt.Fprintf(&b, "item %d: %s: %s\n", i.Item, s.paint(outcomeColour(abi.Outcome(i.Outcome)), i.Outcome), words.Printable(i.Reason))
		}
	}
	if b.Len() == 0 {
		return ""
	}
	return "\n" + s.wrapped(b.String())
}

// heldText describes items that are held back.
func heldText(s style, shards *admin.Shards, now time.Time) string {
	var b strings.Builder
	for _, i := range shards.Items {
		if i.Held.IsZero() {
			continue
		}
		fmt.Fprintf(&b, "%s item %d is held back since %s: %s died in its runs (%s); wasmjob release %s --item %d lets it run again\n",
			s.paint(red, "held:"), i.Item, words.Since(i.Held, now), words.Count(i.Deaths, "host")+" in a row", words.Printable(strings.Join(i.Died, ", ")), words.Printable(shards.Job), i.Item)
	}
	if b.Len() == 0 {
		return ""
	}
	return "\n" + s.wrapped(b.String())
}

// short is enough of a digest for people.
func short(digest string) string { return digest[:min(len(digest), 12)] }

// briefTable lists the jobs of a namespace.
func briefTable(s style, list []admin.Brief) string {
	if len(list) == 0 {
		return "no jobs in this namespace\n"
	}
	t := table{style: s, spare: []string{"LEADER"}}
	t.add(plain("NAME", "STATUS", "CRON", "ITEMS", "HOSTS", "LAST FIRE", "LEADER", "DESCRIPTION")...)
	for _, b := range list {
		if b.Error != "" {
			t.add(cell{b.Name, bold}, cell{b.Status, red}, cell{"-", ""}, cell{"-", ""}, cell{strconv.Itoa(b.Instances), ""}, cell{"-", ""}, cell{words.Dash(b.Leader), ""},
				cell{"cannot be read: " + words.FirstLine(b.Error), red})
			continue
		}
		cron := b.Cron
		switch {
		case cron == "":
			cron = "(by trigger)"
		case b.TimeZone != "":
			cron += " " + b.TimeZone
		}
		hosts := strconv.Itoa(b.Instances)
		if b.Java > 0 {
			hosts += fmt.Sprintf(" (%d Java)", b.Java)
		}
		items := strconv.Itoa(b.ShardingTotalCount)
		if b.Held > 0 {
			items += fmt.Sprintf(" (%d held)", b.Held)
		}
		last := cell{text: "-"}
		if b.LastOutcome != "" {
			last = cell{b.LastOutcome + ", " + words.Ago(max(0, time.Since(b.LastEnded))) + " ago", outcomeColour(abi.Outcome(b.LastOutcome))}
		}
		t.add(cell{b.Name, bold}, cell{b.Status, stateColour(b.Status)}, cell{cron, ""}, cell{items, ""},
			cell{hosts, ""}, last, cell{words.Dash(b.Leader), ""}, cell{words.FirstLine(b.Description), ""})
	}
	text := t.String()
	for _, b := range list {
		if b.LastReason != "" {
			text += fmt.Sprintf("%s: %s: %s\n", words.Printable(b.Name), s.paint(outcomeColour(abi.Outcome(b.LastOutcome)), words.Printable(b.LastOutcome)), words.Printable(b.LastReason))
		}
	}
	return text
}

// sessionText describes a host's session.
func sessionText(v *admin.Session, now time.Time) string {
	server := "connected to " + v.Server
	if v.Server == "" {
		server = "not connected"
	}
	text := fmt.Sprintf("%s, %s, id %s, ends %s after the last sign of life", v.Trust, server, v.ID, words.Duration(v.Timeout))
	if !v.Answered.IsZero() {
		text += ", last answer " + words.Since(v.Answered, now)
	}
	if v.Reconnects > 0 {
		text += ", reconnected " + words.Times(v.Reconnects)
	}
	return text
}
