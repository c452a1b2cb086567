package show

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/alert"
	"github.com/wasmjob/wasmjob/host/cli/terminal"
	"github.com/wasmjob/wasmjob/host/control/service"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// Alerts lists alerts, those first that go on, and silences; alerts of one cause are one line. without are the hosts that judge nothing,
// problems what keeps hosts from judging or sending as they should.
func Alerts(s terminal.Style, list *service.Alerts, without, problems []string, now time.Time) string {
	text := "there are no alerts\n"
	if len(list.Alerts) > 0 {
		all := slices.Clone(list.Alerts)
		slices.SortStableFunc(all, func(a, b service.Alert) int {
			switch {
			case a.Firing() && !b.Firing():
				return -1
			case b.Firing() && !a.Firing():
				return 1
			}
			return b.Since.Compare(a.Since)
		})
		t := terminal.NewTable(s, "SINCE", "RULE", "JOB OR HOST", "STATE", "SENT TO", "WHAT")
		t.Spare = []string{"SENT TO"}
		causes := service.Causes(all)
		for _, c := range causes {
			a := c.First()
			t.Add(terminal.Plain(stamp(a.Since, now)), terminal.Plain(string(a.Rule)), terminal.Coloured(words.Dash(cmp.Or(c.Job(), tree.ServerOf(a.Host))), terminal.Bold), stateOf(&c.Alerts[0]),
				terminal.Plain(words.Dash(sentTo(c.Alerts))), terminal.Plain(words.OneLine(c.Text())))
		}
		text = t.String()
		if len(causes) < len(all) {
			text += fmt.Sprintf("%d alerts in all; --output json has each\n", len(all))
		}
	}
	t := terminal.NewTable(s, "SILENCE", "JOBS", "RULES", "UNTIL", "BY", "WHY")
	for _, one := range list.Silences {
		if !now.Before(one.Until) {
			continue
		}
		rules := "all"
		if len(one.Rules) > 0 {
			rules = joined(one.Rules)
		}
		t.Add(terminal.Plain(one.ID), terminal.Coloured(SilencedJobs(&one), terminal.Bold), terminal.Plain(rules), terminal.Plain(stamp(one.Until, now)), terminal.Plain(one.By),
			terminal.Plain(words.Dash(words.FirstLine(one.Why))))
	}
	if !t.Empty() {
		text += "\n" + t.String()
	}
	if len(without) > 0 {
		text += "\n" + s.Paint(terminal.Yellow, "not judged, because these hosts were started without --alerts: "+joined(without)) + "\n"
	}
	if len(problems) > 0 {
		text += "\n" + s.Paint(terminal.Yellow, strings.Join(problems, "\n")) + "\n"
	}
	if list.Problem != "" {
		text += "\n" + s.Paint(terminal.Yellow, "this is as it was read at "+stamp(list.Read, now)+": "+list.Problem) + "\n"
	}
	return text
}

// stateOf says whether an alert goes on, and whether that is sent.
func stateOf(a *service.Alert) terminal.Cell {
	switch {
	case !a.Firing():
		return terminal.Coloured("over", terminal.Green)
	case a.Silenced != nil:
		return terminal.Coloured("silenced", terminal.Grey)
	}
	return terminal.Coloured("firing", terminal.Red)
}

// sentTo are the targets that took a message about each of some alerts.
func sentTo(alerts []service.Alert) string {
	var list []alert.Target
	for to := range alerts[0].Sent {
		if !slices.ContainsFunc(alerts, func(a service.Alert) bool { _, took := a.Sent[to]; return !took }) {
			list = append(list, to)
		}
	}
	slices.Sort(list)
	return joined(list)
}

func joined[T ~string](list []T) string {
	texts := make([]string, len(list))
	for i, s := range list {
		texts[i] = string(s)
	}
	return strings.Join(texts, ", ")
}

// SilencedJobs says which jobs a silence is about.
func SilencedJobs(s *alert.Silence) string {
	if s.Labels.Empty() {
		return s.Jobs
	}
	return s.Jobs + " with " + s.Labels.String()
}
