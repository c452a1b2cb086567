package show

import (
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/host/console"
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
