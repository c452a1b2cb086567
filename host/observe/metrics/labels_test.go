package metrics

import (
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/internal/labels"
)

func TestParseLabels(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"": "", "team": "team", " team , example.com/tier": "team,example.com/tier"} {
		got, err := ParseLabels(text)
		if err != nil || got.String() != want {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	many := make([]string, labels.Max+1)
	for n := range many {
		many[n] = "l" + strings.Repeat("x", n)
	}
	for _, text := range []string{"a b", "team,team", "a.b,a-b", "team,", strings.Join(many, ",")} {
		if got, err := ParseLabels(text); err == nil || len(err.Error()) > 400 {
			t.Errorf("%q: %q, %v, expected a short error", text, got, err)
		}
	}
}

// TestLabels: a job with series of its own has one with the labels that are wanted, whatever others it has.
func TestLabels(t *testing.T) {
	t.Parallel()
	jobs := []*engine.JobStatus{{Name: "a", Labels: labels.Set{"team": "billing", "secret": "x"}}, {Name: "b"}, {Name: "c"}}
	wanted, err := ParseLabels("team,example.com/tier")
	if err != nil {
		t.Fatal(err)
	}
	m := New(Options{Status: func() engine.Status { return engine.Status{Jobs: jobs} }, Jobs: 2, Labels: wanted})
	for _, j := range jobs {
		m.Observe(event.Event{Kind: event.JobAdded, Job: j.Name})
	}
	found := 0
	for line, value := range scrape(t, m) {
		if !strings.HasPrefix(line, "wasmjob_job_labels{") {
			continue
		}
		found++
		if line != `wasmjob_job_labels{job_name="a",label_example_com_tier="",label_team="billing"}` && line != `wasmjob_job_labels{job_name="b",label_example_com_tier="",label_team=""}` {
			t.Errorf("found %s %s", line, value)
		}
	}
	if found != 2 {
		t.Errorf("found %d series, expected one for each job with series of its own", found)
	}
	m = New(Options{Status: func() engine.Status { return engine.Status{Jobs: jobs} }})
	for line := range scrape(t, m) {
		if strings.HasPrefix(line, "wasmjob_job_labels") {
			t.Errorf("found %s, expected none: no labels are wanted", line)
		}
	}
}
