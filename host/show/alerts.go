package show

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/alert"
	"github.com/wasmjob/wasmjob/host/console"
	"github.com/wasmjob/wasmjob/host/service"
	"github.com/wasmjob/wasmjob/host/words"
)

// Alerts lists alerts, those first that go on, and silences; alerts of one cause are one line. without are the hosts that judge nothing,
// problems what keeps hosts from judging or sending as they should.
func Alerts(s console.Style, list *service.Alerts, without, problems []string, now time.Time) string {
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
		t := console.NewTable(s, "SINCE", "RULE", "JOB OR HOST", "STATE", "SENT TO", "WHAT")
		t.Spare = []string{"SENT TO"}
		causes := service.Causes(all)
		for _, c := range causes {
			a := c.First()
			t.Add(console.Plain(stamp(a.Since, now)), console.Plain(string(a.Rule)), console.Coloured(words.Dash(cmp.Or(c.Job(), tree.ServerOf(a.Host))), console.Bold), stateOf(&c.Alerts[0]),
				console.Plain(words.Dash(sentTo(c.Alerts))), console.Plain(words.OneLine(c.Text())))
		}
		text = t.String()
		if len(causes) < len(all) {
			text += fmt.Sprintf("%d alerts in all; --output json has each\n", len(all))
		}
	}
	t := console.NewTable(s, "SILENCE", "JOBS", "RULES", "UNTIL", "BY", "WHY")
	for _, one := range list.Silences {
		if !now.Before(one.Until) {
			continue
		}
		rules := "all"
		if len(one.Rules) > 0 {
			rules = joined(one.Rules)
		}
		t.Add(console.Plain(one.ID), console.Coloured(one.Jobs, console.Bold), console.Plain(rules), console.Plain(stamp(one.Until, now)), console.Plain(one.By),
			console.Plain(words.Dash(words.FirstLine(one.Why))))
	}
	if !t.Empty() {
		text += "\n" + t.String()
	}
	if len(without) > 0 {
		text += "\n" + s.Paint(console.Yellow, "not judged, because these hosts were started without --alerts: "+joined(without)) + "\n"
	}
	if len(problems) > 0 {
		text += "\n" + s.Paint(console.Yellow, strings.Join(problems, "\n")) + "\n"
	}
	if list.Problem != "" {
		text += "\n" + s.Paint(console.Yellow, "this is as it was read at "+stamp(list.Read, now)+": "+list.Problem) + "\n"
	}
	return text
}

// stateOf says whether an alert goes on, and whether that is sent.
func stateOf(a *service.Alert) console.Cell {
	switch {
	case !a.Firing():
		return console.Coloured("over", console.Green)
	case a.Silenced != nil:
		return console.Coloured("silenced", console.Grey)
	}
	return console.Coloured("firing", console.Red)
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
