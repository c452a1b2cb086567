package alert

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// many are alerts as a large trouble makes them: all items of a job fail, a host refuses all files, and another job and
// another host have one alert each.
func many(now time.Time) []Alert {
	var list []Alert
	for n := range 240 {
		a := Alert{Rule: Failures, Job: "report", Item: new(239 - n), Host: fmt.Sprintf("10.0.0.%d@-@7-x", n%3), Since: now.Add(time.Duration(n) * time.Second), Text: fmt.Sprintf("item %d of report failed", 239-n)}
		list = append(list, a.named())
	}
	list = append(list, Alert{Rule: Failures, Job: "other", Item: new(0), Since: now, Text: "item 0 of other failed"}.named())
	for n := range 6 {
		list = append(list, Alert{Rule: Refused, Subject: fmt.Sprintf("10.0.0.1 f%d.yaml", n), Host: "10.0.0.1@-@7-x", OfHost: true, Since: now, Text: fmt.Sprintf("f%d.yaml is refused", n)}.named())
	}
	for n := range 2 { // jobs that the host cannot run
		list = append(list, Alert{Rule: Refused, Job: fmt.Sprintf("j%d", n), Subject: "10.0.0.1", Host: "10.0.0.1@-@7-x", OfHost: true, Since: now.Add(time.Minute), Text: "it cannot run"}.named())
	}
	return append(list, Alert{Rule: Refused, Subject: "10.0.0.2 f0.yaml", Host: "10.0.0.2@-@7-x", OfHost: true, Since: now, Text: "f0.yaml is refused"}.named(),
		Alert{Rule: Lost, Job: "report", Item: new(3), Since: now, Text: "the run of item 3 of report is lost"}.named(),
		Alert{Rule: HostGone, Subject: "10.0.0.3", Host: "10.0.0.3@-@7-x", Since: now, Text: "host 10.0.0.3 is gone"}.named())
}

// TestCauses: what one cause brings about is one line with a count, in lists and in messages.
func TestCauses(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	list := many(now)
	var texts []string
	counts := 0
	for _, c := range Causes(list, itself, nil) {
		texts = append(texts, fmt.Sprintf("%d %s", c.Count(), c.Text()))
		counts += c.Count()
	}
	want := `240 240 alerts about 240 items of report (0-239); the first: item 239 of report failed
1 item 0 of other failed
8 8 alerts about 10.0.0.1; the first: f0.yaml is refused
1 f0.yaml is refused
1 the run of item 3 of report is lost
1 host 10.0.0.3 is gone`
	if got := strings.Join(texts, "\n"); got != want || counts != len(list) {
		t.Errorf("%d of %d alerts:\n%s", counts, len(list), got)
	}

	m := Message{Group: "job report", Firing: list, New: 241}
	text := m.Text(1 << 20)
	if n := strings.Count(text, "\n- "); n != 6 || !strings.Contains(text, "\n- 240 alerts about 240 items of report (0-239); the first: item 239 of report failed [failures, 2026-03-01T12:00:00Z]\n") ||
		!strings.Contains(text, "\n- still: 8 alerts about 10.0.0.1; the first: f0.yaml is refused [refused") {
		t.Errorf("a message has %d lines:\n%s", n, text)
	}
	for i := range list {
		list[i].Resolved, list[i].Why = now.Add(time.Hour+time.Duration(i)*time.Second), "it has succeeded"
	}
	m = Message{Group: "job report", Over: list[:240]}
	if got := m.Text(1 << 20); got != `OK: report (240 alerts over)
- over: 240 alerts about 240 items of report (0-239); the first: item 239 of report failed [failures, 2026-03-01T12:00:00Z to 2026-03-01T13:03:59Z: it has succeeded]` {
		t.Errorf("%s", got)
	}
}

// TestCauseKey: a key divides what would be one cause.
func TestCauseKey(t *testing.T) {
	t.Parallel()
	list := many(time.Now())[:4]
	causes := Causes(list, itself, func(a *Alert) string { return fmt.Sprint(*a.Item%2 == 0) })
	if len(causes) != 2 || causes[0].Count() != 2 || causes[0].Items().String() != "237,239" {
		t.Errorf("%+v", causes)
	}
}
