package show

import (
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/host/console"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/host/service"
)

// TestUpcoming: what fires too often to be listed is named, and is not nothing.
func TestUpcoming(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 10, 0, 0, 0, time.Local)
	list := []service.Upcoming{{Time: now.Add(time.Hour), Job: "report"}}
	often := []service.Upcoming{{Time: now.Add(time.Second), Job: "pulse"}}
	const line = "pulse fires too often to be listed, first at 10:00:01\n"
	if got := Upcoming(console.Style{}, nil, nil, now); got != "nothing fires\n" {
		t.Errorf("nothing: %q", got)
	}
	if got := Upcoming(console.Style{}, nil, often, now); got != line {
		t.Errorf("only what is often: %q", got)
	}
	if got := Upcoming(console.Style{}, list, often, now); !strings.Contains(got, "report") || !strings.HasSuffix(got, "\n"+line) {
		t.Errorf("both: %q", got)
	}
}

// TestChanges: what a change was about is named: the item, the server, the instance.
func TestChanges(t *testing.T) {
	t.Parallel()
	now, item := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), 1
	at := now.Add(-time.Minute)
	text := Changes(console.Style{}, []history.Change{
		{Time: at, Who: "ann", What: "disable", Job: "hello3", Item: &item},
		{Time: at, Who: "ann", What: "disable", Job: "hello3", Host: "10.0.0.7"},
		{Time: at, Who: "ann", What: "shutdown", Host: "10.0.0.7@-@8"},
		{Time: at, Who: "ann", What: "disable", Job: "hello3"},
	}, now)
	for i, want := range []string{"hello3/1", "hello3 on 10.0.0.7", "on 10.0.0.7@-@8", "hello3"} {
		_, after, _ := strings.Cut(strings.Split(text, "\n")[i+1], []string{"disable", "disable", "shutdown", "disable"}[i])
		if got := strings.TrimSpace(strings.TrimRight(after, " -")); got != want {
			t.Errorf("line %d says %q of the job, want %q:\n%s", i+1, got, want, text)
		}
	}
}
