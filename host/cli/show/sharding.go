package show

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/admin/inspect"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/cli/terminal"
	"github.com/wasmjob/wasmjob/host/control/admin"
	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/control/report"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

func stateColour(state string) string {
	switch state {
	case string(inspect.ShardRunning), tree.DetailReady, string(inspect.JobOK):
		return terminal.Green
	case string(inspect.ShardFailover), string(inspect.ShardHeld), string(inspect.JobCrashed), "GONE":
		return terminal.Red
	case string(inspect.ShardPending):
		return terminal.Grey
	}
	return terminal.Yellow
}

// Shards is what shards shows: the items, and who there is to run them.
func Shards(s terminal.Style, shards *admin.Shards, now time.Time) string {
	var b strings.Builder
	b.WriteString(shardsTable(s, shards, now) + "\n")
	if shards.Leader == "" {
		b.WriteString("no leader\n")
	}
	if len(shards.Instances) == 0 {
		b.WriteString("no instances\n")
		return b.String()
	}
	t := terminal.NewTable(s, "INSTANCE", "STATE", "MODULE")
	for _, i := range shards.Instances {
		t.Add(terminal.Coloured(i.ID, terminal.Bold), instanceState(i), terminal.Plain(words.Dash(short(i.Digest))))
	}
	b.WriteString(t.String())
	b.WriteString(disabledServers(s, shards))
	return b.String()
}

// triggersText lists the triggers that have not begun, and what each waits for; empty without some.
func triggersText(s terminal.Style, w *admin.Triggers, now time.Time) string {
	if w == nil {
		return ""
	}
	t := terminal.NewTable(s, "TRIGGER", "ASKS FOR", "WAITS FOR")
	before := "a host to make a round of it"
	if f := w.First; f != nil {
		var waits []string
		if len(f.Hosts) > 0 {
			waits = append(waits, "what runs on "+strings.Join(f.Hosts, ", "))
		}
		if f.Items != "" {
			waits = append(waits, "the new owner of items "+f.Items)
		}
		t.Add(terminal.Coloured(strconv.FormatInt(f.Trigger, 10), terminal.Bold), terminal.Plain(askedText(f.Asked)), terminal.Plain(strings.Join(waits, " and ")+", made "+words.Since(f.Since, now)))
		before = "trigger " + strconv.FormatInt(f.Trigger, 10)
	}
	for _, q := range w.Queue {
		t.Add(terminal.Plain(strconv.FormatInt(q.Queued, 10)), terminal.Plain(askedText(q.Asked)), terminal.Plain(before))
		before = "trigger " + strconv.FormatInt(q.Queued, 10)
	}
	if left := w.Length - len(w.Queue); left > 0 {
		t.Add(terminal.Plain("…"), terminal.Plain(words.Count(left, "trigger")+" more"), terminal.Plain(""))
	}
	return "\n" + words.Count(w.Length, "trigger") + " queued\n" + t.String()
}

// askedText says what a trigger asks for.
func askedText(a admin.Asked) string {
	text := "all items"
	if a.Items != "" {
		text = "items " + a.Items
	}
	if a.Param != nil {
		text += ", parameter " + strconv.Quote(words.ClipTo(words.FirstLine(*a.Param), 80))
	}
	switch {
	case a.Backfill:
		text += ", " + a.At.Format(time.RFC3339) + " of a backfill"
	case !a.At.IsZero():
		text += ", at " + a.At.Format(time.RFC3339)
	}
	return text
}

// instanceState is what an instance does, whether its server is disabled, and whether it leads.
func instanceState(i admin.Instance) terminal.Cell {
	state := terminal.Coloured(i.State, stateColour(i.State))
	if i.Disabled {
		state.Text, state.Colour = state.Text+", paused", terminal.Yellow
	}
	if i.Leader {
		state.Text += ", leads"
	}
	return state
}

// disabledServers says which servers are disabled for the job, and how it runs on them again.
func disabledServers(s terminal.Style, shards *admin.Shards) string {
	if len(shards.DisabledServers) == 0 {
		return ""
	}
	text := fmt.Sprintf("%s %s for the job: %s lets it run on all servers\n", serversText(shards.DisabledServers), s.Paint(terminal.Yellow, "paused"),
		words.Command("job resume", shards.Job))
	var said words.Few[string]
	for _, by := range shards.Said {
		of := ""
		if len(by.Servers) < len(shards.DisabledServers) {
			of = serversText(by.Servers) + " paused"
		}
		said.Add(saidText(of, &by.Said))
	}
	return "\n" + s.Wrapped(text) + wrappedLines(s, said)
}

// wrappedLines are lines of which there may be more than are kept.
func wrappedLines(s terminal.Style, lines words.Few[string]) string {
	var b strings.Builder
	for _, line := range words.Strings(lines.Kept(), lines.More()) {
		b.WriteString(s.Wrapped(line + "\n"))
	}
	return b.String()
}

// saidText is who has disabled something, why, since when and until when; of is what, if that is to be said.
func saidText(of string, said *engine.Said) string {
	text := strings.TrimSpace(of + " by " + cmp.Or(said.By, "an unknown user"))
	if !said.Since.IsZero() {
		text += " since " + said.Since.UTC().Format(time.RFC3339)
	}
	if !said.Until.IsZero() {
		text += " until " + said.Until.UTC().Format(time.RFC3339)
	}
	if said.Why != "" {
		text += ": " + words.FirstLine(said.Why)
	}
	return text
}

// itemsSaid are the lines that say who has disabled items, with each word once.
func itemsSaid(s terminal.Style, shards *admin.Shards) string {
	var all []engine.Said
	items := make(map[engine.Said]tree.Items)
	for _, i := range shards.Items {
		if !i.Disabled || i.Said == nil {
			continue
		}
		if items[*i.Said] == nil {
			all = append(all, *i.Said)
		}
		items[*i.Said] = append(items[*i.Said], i.Item)
	}
	var lines words.Few[string]
	for _, said := range all {
		of := fmt.Sprintf("items %s are paused", items[said])
		if len(items[said]) == 1 {
			of = fmt.Sprintf("item %d is paused", items[said][0])
		}
		lines.Add(saidText(of, &said))
	}
	return wrappedLines(s, lines)
}

// mostServers is how many servers a line names; of more it says how many there are.
const mostServers = 10

// serversText is "server A is" or "servers A, B are".
func serversText(ips []string) string {
	switch {
	case len(ips) == 1:
		return "server " + ips[0] + " is"
	case len(ips) > mostServers:
		return strconv.Itoa(len(ips)) + " servers are"
	}
	return "servers " + strings.Join(ips, ", ") + " are"
}

// disabledItems says which items are disabled, and how they run again; stay is what those of one and
// of several do.
func disabledItems(shards *admin.Shards, stay [2]string) string {
	var items tree.Items
	for _, i := range shards.Items {
		if i.Disabled {
			items = append(items, i.Item)
		}
	}
	switch len(items) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("item %d %s paused: %s", items[0], stay[0], words.Command("job resume", shards.Job, "--item", strconv.Itoa(items[0])))
	}
	return fmt.Sprintf("items %s %s paused: %s", items, stay[1], words.Command("job resume", shards.Job, "--item", "N"))
}

// Enabled is what job resume says of a whole job: before is the job as it was. An item that was disabled
// for itself stays so.
func Enabled(before *admin.Shards) string {
	text := "resumed " + before.Job
	if n := len(before.DisabledServers); n > mostServers {
		text += fmt.Sprintf(" on %d servers", n)
	} else if n > 0 {
		text += " on " + strings.Join(before.DisabledServers, ", ")
	}
	if items := disabledItems(before, [2]string{"stays", "stay"}); items != "" {
		text += "; " + items
	}
	return text
}

// Already says that a job, or one of its servers or items, was disabled or enabled already: before is
// the job as it was, item is -1 for none. It is empty if something was to be changed.
func Already(before *admin.Shards, enable bool, server string, item int) string {
	what, disabled, enabled := before.Job, false, len(before.DisabledServers) == 0
	switch {
	case item >= 0:
		i := slices.IndexFunc(before.Items, func(i admin.Shard) bool { return i.Item == item })
		what, disabled = fmt.Sprintf("item %d of %s", item, before.Job), i >= 0 && before.Items[i].Disabled
		enabled = i >= 0 && !disabled
	case server != "":
		what, disabled = "server "+server+" for "+before.Job, slices.Contains(before.DisabledServers, server)
		enabled = !disabled
	default:
		alive := slices.DeleteFunc(slices.Clone(before.Instances), func(i admin.Instance) bool { return i.Gone })
		disabled = len(alive) > 0 && !slices.ContainsFunc(alive, func(i admin.Instance) bool { return !i.Disabled })
	}
	text := ""
	if enable && enabled {
		text = what + " is not paused"
		if items := disabledItems(before, [2]string{"stays", "stay"}); items != "" && item < 0 && server == "" {
			text += "; " + items
		}
	} else if !enable && disabled {
		text = what + " is paused already"
	}
	return text
}

// Since is the end of a sentence that a job is paused: since when, by whom and why, if that is known.
func Since(p *cluster.Paused, now time.Time) string {
	if p == nil {
		return ""
	}
	text := ", since " + stamp(p.At, now) + " by " + p.By
	if !p.Until.IsZero() {
		text += ", until " + p.Until.UTC().Format(time.RFC3339)
	}
	if p.Why != "" {
		text += ": " + p.Why
	}
	return text
}

func shardsTable(s terminal.Style, shards *admin.Shards, now time.Time) string {
	if len(shards.Items) == 0 {
		return "no items yet: no leader has sharded the job\n"
	}
	t := terminal.NewTable(s, "ITEM", "PARAMETER", "OWNER", "STATE", "FAILOVER", "BEGUN", "ENDED", "OUTCOME")
	t.Spare = []string{"PARAMETER", "ENDED"}
	for _, i := range shards.Items {
		state := terminal.Coloured(words.State(i.State), stateColour(i.State))
		if i.RunningOn != "" && i.RunningOn != i.Owner {
			state.Text += " on " + i.RunningOn
		}
		if i.RunningOn != "" && i.Disabled {
			state.Text += ", RUNNING"
		}
		if i.Misfired {
			state.Text += ", misfired"
		}
		if !i.NotBefore.IsZero() {
			state.Text += ", waits until " + i.NotBefore.UTC().Format(time.RFC3339)
		}
		if i.Unreadable != "" {
			state.Text += ", cannot be read"
		}
		if i.Moves {
			state.Text += ", moves when it ends"
		}
		failover := terminal.Coloured("-", terminal.Grey)
		if i.Failover {
			failover = terminal.Coloured("yes", terminal.Red)
		}
		ended, outcome := words.Since(i.Ended, now), terminal.Coloured(words.Dash(i.Outcome), terminal.Grey)
		if i.Outcome != "" {
			outcome.Colour = outcomeColour(abi.Outcome(i.Outcome))
		}
		t.Add(terminal.Coloured(strconv.Itoa(i.Item), terminal.Bold), terminal.Plain(words.Dash(i.Parameter)), terminal.Plain(words.Dash(i.Owner)), state, failover,
			terminal.Plain(words.Since(i.Begun, now)), terminal.Plain(ended), outcome)
	}
	text := t.String() + reasonsText(s, shards) + heldText(s, shards, now)
	if shards.Sharding {
		text += s.Paint(terminal.Yellow, shardingText(shards)) + "\n"
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
		return "all servers are paused; resharding waits until one is resumed"
	}
	return "resharding is under way"
}

// askedToWait says until when the job waits, and for what, if its guests had it wait beyond its next fire; empty if they did not.
func askedToWait(j *cluster.Job) string {
	for _, w := range j.Waits {
		if !j.Next.IsZero() && w.Until.After(j.Next) {
			return "it waits until " + w.Until.UTC().Format(time.RFC3339) + ", as its guests asked, for " + w.Reason
		}
	}
	return ""
}

// Instances is what status shows of one job. j is what the hosts say of it, nil if the registry
// alone is asked; that does not know when the job fires next.
func Instances(s terminal.Style, shards *admin.Shards, j *cluster.Job, now time.Time) string {
	var b strings.Builder
	show := func(what, text string) { b.WriteString(s.Fact(what, text)) }
	show("job", shards.Job)
	health, why, last := healthOfShards(shards), "", lastOf(shards.LastOutcome, shards.LastReason, shards.LastEnded)
	if j != nil {
		health, why, last = j.Health, cmp.Or(j.Reason, askedToWait(j)), j.Last
	}
	b.WriteString(s.FactCell("health", terminal.Coloured(strings.TrimSuffix(string(health)+": "+words.FirstLine(why), ": "), healthColour(health))))
	show("cron", cronText(shards.Cron, shards.TimeZone, shards.Terms))
	if j != nil {
		show("next", nextText(j, now))
	}
	b.WriteString(s.FactCell("last", lastText(last, now)))
	show("items", strconv.Itoa(shards.ShardingTotalCount))
	if len(shards.Labels) > 0 {
		show("labels", shards.Labels.String())
	}
	if shards.Sharding {
		show("sharding", shardingText(shards))
	}
	show("leader", words.Dash(shards.Leader))
	b.WriteString("\n")
	if len(shards.Instances) == 0 {
		b.WriteString("no instances: no host runs this job\n")
		return b.String()
	}
	t := terminal.NewTable(s, "INSTANCE", "STATE", "OWNS", "RUNNING", "QUEUED", "MODULE", "BEGUN", "COMPLETED")
	t.Spare, t.Optional = []string{"COMPLETED", "BEGUN", "QUEUED"}, []string{"QUEUED"}
	for _, i := range shards.Instances {
		digest := terminal.Plain(words.Dash(short(i.Digest)))
		if len(shards.Digests) > 1 && i.Digest != "" {
			digest.Colour = terminal.Yellow
		}
		t.Add(terminal.Coloured(i.ID, terminal.Bold), instanceState(i), terminal.Plain(words.Dash(i.Items)), terminal.Plain(words.Dash(i.Running)), terminal.Plain(i.Queued), digest,
			terminal.Plain(words.Since(i.Begun, now)), terminal.Plain(words.Since(i.Completed, now)))
	}
	b.WriteString(t.String())
	b.WriteString(movesText(s, shards, now))
	b.WriteString(reasonsText(s, shards))
	b.WriteString(heldText(s, shards, now))
	b.WriteString(triggersText(s, shards.Triggers, now))
	b.WriteString(disabledServers(s, shards))
	if items := disabledItems(shards, [2]string{"is", "are"}); items != "" {
		b.WriteString("\n" + s.Wrapped(items+"\n") + itemsSaid(s, shards))
	}
	if len(shards.Digests) > 1 {
		fmt.Fprintf(&b, "\n%s %d different modules run for this job:\n", s.Paint(terminal.Yellow, "warning:"), len(shards.Digests))
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

// healthOfShards is how well a job is, as the registry has it.
func healthOfShards(shards *admin.Shards) cluster.Health {
	alive, disabled, held := 0, 0, 0
	for _, i := range shards.Instances {
		if !i.Gone {
			alive++
			if i.Disabled {
				disabled++
			}
		}
	}
	for _, i := range shards.Items {
		if !i.Held.IsZero() {
			held++
		}
	}
	return registryHealth(alive == 0, alive == disabled, held, shards.LastOutcome)
}

// registryHealth is how well a job is that no host is asked about. Whether it is late only hosts know.
func registryHealth(crashed, disabled bool, held int, last string) cluster.Health {
	switch {
	case crashed:
		return cluster.HealthError
	case held > 0, abi.Outcome(last).Failed():
		return cluster.HealthFailing
	case disabled:
		return cluster.HealthPaused
	}
	return cluster.HealthOK
}

// lastOf is the newest fire as the registry knows it, nil if none has ended.
func lastOf(outcome, reason string, ended time.Time) *cluster.Last {
	if outcome == "" {
		return nil
	}
	return &cluster.Last{Outcome: abi.Outcome(outcome), Message: reason, Ended: ended}
}

// movesText describes items that stay where they run and are to move: the
// division waits for each of them, and nothing else does.
func movesText(s terminal.Style, shards *admin.Shards, now time.Time) string {
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
		fmt.Fprintf(&b, "%s item %d stays on %s%s; the job was resharded %s, while the item ran, and it moves when it ends\n",
			s.Paint(terminal.Yellow, "waits:"), i.Item, where, ran, words.Since(i.MovesSince, now))
	}
	if b.Len() == 0 {
		return ""
	}
	return "\n" + s.Wrapped(b.String())
}

// reasonsText is why the last runs of items ended as they did, where the registry
// knows.
func reasonsText(s terminal.Style, shards *admin.Shards) string {
	var b strings.Builder
	for _, i := range shards.Items {
		if i.Unreadable != "" {
			fmt.Fprintf(&b, "item %d: %s: %s\n", i.Item, s.Paint(terminal.Red, "cannot be read"), i.Unreadable)
		}
		if i.Reason != "" {
			fmt.Fprintf(&b, "item %d: %s: %s\n", i.Item, s.Paint(outcomeColour(abi.Outcome(i.Outcome)), i.Outcome), i.Reason)
		}
	}
	if b.Len() == 0 {
		return ""
	}
	return "\n" + s.Wrapped(b.String())
}

// heldText describes items that are held back.
func heldText(s terminal.Style, shards *admin.Shards, now time.Time) string {
	var b strings.Builder
	for _, i := range shards.Items {
		if i.Held.IsZero() {
			continue
		}
		fmt.Fprintf(&b, "%s item %d is held back since %s: %s died in its runs (%s); %s lets it run again\n",
			s.Paint(terminal.Red, "held:"), i.Item, words.Since(i.Held, now), words.Count(i.Deaths, "host")+" in a row", strings.Join(i.Died, ", "), words.Command("job release", shards.Job, "--item", strconv.Itoa(i.Item)))
	}
	if b.Len() == 0 {
		return ""
	}
	return "\n" + s.Wrapped(b.String())
}

// short is enough of a digest for people.
func short(digest string) string { return digest[:min(len(digest), 12)] }

// Namespace lists the jobs of a namespace, none is what it says without any, with the columns of ClusterJobs as far as the registry knows them.
func Namespace(s terminal.Style, list []admin.Brief, none string, now time.Time) string {
	if len(list) == 0 {
		return none + "\n"
	}
	t := terminal.NewTable(s, "NAME", "HEALTH", "STATE", "CRON", "ITEMS", "HOSTS", labelsHead, "LAST FIRE")
	t.Spare, t.Optional = []string{labelsHead, "HOSTS", "STATE"}, []string{labelsHead}
	for _, b := range list {
		health := registryHealth(b.Error != "" || b.Status == string(inspect.JobCrashed), b.Status == string(inspect.JobDisabled), b.Held, b.LastOutcome)
		hosts := strconv.Itoa(b.Instances)
		if b.Java > 0 {
			hosts += fmt.Sprintf(" (%d Java)", b.Java)
		}
		cron, items, last := cronText(b.Cron, b.TimeZone, b.Terms), strconv.Itoa(b.ShardingTotalCount), lastText(lastOf(b.LastOutcome, b.LastReason, b.LastEnded), now)
		if b.Held > 0 {
			items += fmt.Sprintf(", %d held", b.Held)
		}
		if b.Error != "" {
			cron, items, last = "-", "-", terminal.Coloured("cannot be read: "+words.FirstLine(b.Error), terminal.Red)
		}
		t.Add(terminal.Coloured(b.Name, terminal.Bold), terminal.Coloured(string(health), healthColour(health)), terminal.Coloured(words.State(b.Status), stateColour(b.Status)), terminal.Plain(cron),
			terminal.Plain(items), terminal.Plain(hosts), terminal.Plain(b.Labels.String()), last)
	}
	return t.String()
}

// sessionText describes a host's session.
func sessionText(v *report.Session, now time.Time) string {
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
