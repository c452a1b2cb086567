package jobs

import (
	"net/http"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/host/control/admin"
)

// TestLimits: the command says who runs and who waits under each key.
func TestLimits(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)
	item := 3
	l := &admin.Limits{
		Permits: []admin.Permits{{Key: "db", Max: 1, Running: []admin.Under{{Job: "import", Host: "h1", Item: &item, Since: now.Add(-12 * time.Second)}},
			Waiting: []admin.Under{{Job: "export", Host: "h2", Since: now.Add(-4 * time.Second)}}, More: 2}},
		Rates: []admin.Rate{{Key: "api", Max: 5, Per: "1m0s", Begun: 5, PausedUntil: now.Add(time.Minute), PausedBy: "import",
			Waiting: []admin.Turn{{Job: "export", Host: "h2", At: now.Add(30 * time.Second)}}}},
	}
	const want = `concurrency db: 1 of 1 run, 1 waits
  runs   import, item 3 on h1, for 12s
  waits  export on h2, for 4s
  2 more are not shown
rate api: 5 of 5 begun in 1m0s, 1 waits
  paused until 2026-03-01T10:01:00Z by a guest of import
  waits  export on h2, may begin from 2026-03-01T10:00:30Z on
`
	if got := limitsText(l, now); got != want {
		t.Errorf("%s", got)
	}
	host := http.NewServeMux()
	host.HandleFunc("GET /v1/limits", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"permits":[],"rates":[]}`)) })
	if shown, _, err := operated(t, host, "", "limits"); err != nil || shown != "nothing runs or waits under a limit over the cluster\n" {
		t.Errorf("%v\n%s", err, shown)
	}
}
