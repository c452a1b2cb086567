package e2e_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/host/event"
)

// TestEightQuestions: each command that docs/questions.md answers a question with ends well,
// and answers in the form that is printed there; the table before them has their commands and lines.
func TestEightQuestions(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/questions.md")
	if err != nil {
		t.Fatal(err)
	}
	section := string(page)
	answers := regexp.MustCompile("(?s)```\n\\$ wasmjob ([^\n]*)\n(.*?)```").FindAllStringSubmatch(section, -1)
	questions := regexp.MustCompile(`(?m)^## (.*)$`).FindAllStringSubmatch(section, -1)
	rows := regexp.MustCompile("(?m)^\\| \\[(.*)\\]\\(#\\S+\\) \\| `wasmjob (.*)` \\| `(.*)` \\|$").FindAllStringSubmatch(section, -1)
	if len(answers) != 8 || len(questions) != 8 || len(rows) != 8 {
		t.Fatalf("the page answers %d of %d questions, and has %d in its table", len(answers), len(questions), len(rows))
	}
	for n, row := range rows {
		if row[1] != questions[n][1] || row[2] != answers[n][1] || !slices.Contains(strings.Split(answers[n][2], "\n"), row[3]) {
			t.Errorf("row %d of the table is none of the section below: %q", n+1, row[1:])
		}
	}

	p := newPlace(t)
	p.guestJob("cities", everySecond, "shardingTotalCount: 3")
	p.guestJob("codestats", "cron: 10 * * * * ?", "shardingTotalCount: 4")
	p.guestJob("slow", "shardingTotalCount: 2", `jobParameter: "hold:slow"`)
	p.guestJob("crash", "shardingTotalCount: 1", `jobParameter: "fail:as it should"`)
	h := p.start("--mount", "slow="+p.path("gate")+":/gate")
	ran := h.of("cities", 0, kind(event.ItemCompleted), item(2))
	for _, job := range []string{"slow", "crash"} {
		h.of(job, 0, owned())
		p.must("job", "run", job)
	}
	h.of("crash", 0, kind(event.FireEnded))
	h.of("slow", 0, kind(event.ItemStarted))
	p.must("job", "edit", "cities", "description=the sun", "--reason", "to be asked who it was")
	for _, a := range answers {
		command := regexp.MustCompile(`--at \S+`).ReplaceAllString(a[1], "--at "+ran.Instant.Format("2006-01-02T15:04:05Z07:00"))
		command = regexp.MustCompile(`^(job logs cities) \S+`).ReplaceAllString(command, "$1 "+ran.RunID)
		text := p.must(strings.Fields(command)...)
		if strings.HasPrefix(command, "explain") && !strings.Contains(text, "succeeded") {
			t.Errorf("wasmjob %s: what ran is not explained: %s", command, text)
		}
		want, _, _ := strings.Cut(a[2], "\n")
		got, _, _ := strings.Cut(text, "\n")
		if w, g := strings.Fields(want), strings.Fields(got); len(g) == 0 || (w[0] != g[0] && !strings.HasPrefix(w[0], "2026-")) {
			t.Errorf("wasmjob %s: the page shows %q, the command says %q", command, want, text)
		} else if w[0] == strings.ToUpper(w[0]) && w[0][0] > '9' && strings.Join(w, " ") != strings.Join(g, " ") {
			t.Errorf("wasmjob %s: the page has the columns %v, the command %v", command, w, g)
		}
	}
	if text := p.must("job", "history", "--running"); !strings.Contains(text, "so far") || strings.Contains(text, "crash") {
		t.Errorf("what runs has no duration:\n%s", text)
	}
	p.open("slow")
	h.stop()
}
