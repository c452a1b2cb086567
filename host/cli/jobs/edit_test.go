package jobs

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/host/cli/command"
	"github.com/wasmjob/wasmjob/host/cli/terminal"
	"github.com/wasmjob/wasmjob/host/control/admin"
)

// TestEdit: what is so already is said to be, and values that are refused are mistakes on the command line.
func TestEdit(t *testing.T) {
	t.Parallel()
	host := http.NewServeMux()
	host.HandleFunc("PATCH /v1/jobs/cities/config", func(w http.ResponseWriter, r *http.Request) {
		var asked struct{ Settings map[string]string }
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
			t.Error(err)
		}
		if _, bad := asked.Settings["foo"]; bad {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusUnprocessableEntity)
			fmt.Fprint(w, `{"status":422,"detail":"no","errors":[{"location":"body.settings.cron","message":"found 61"},{"location":"body.settings.foo","message":"is no setting"}]}`)
			return
		}
		settings := `{"job":"cities","settings":{"shardingTotalCount":"2","timeZone":"UTC","cron":%q}}`
		fmt.Fprintf(w, `{"before":`+settings+`,"after":`+settings+`}`, "0 0 1 * * ?", asked.Settings["cron"])
	})
	runs := `{"records":[{"job":"cities","begun":"2027-01-01T01:00:00Z","ended":"2027-01-01T01:03:00Z","outcome":"OK"}]}`
	host.HandleFunc("GET /v1/runs", func(w http.ResponseWriter, _ *http.Request) {
		if runs == "" {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprint(w, `{"status":503,"detail":"the history does not answer"}`)
			return
		}
		fmt.Fprint(w, runs)
	})
	for _, c := range []struct{ cron, flag, want string }{
		{"0 0 1 * * ?", "", "nothing to change: cities is so already\n"}, {"0 0 1 * * ?", "--preview", "nothing to change: cities is so already\n"},
		{"0 0 2 * * ?", "", "changed cities\n  cron: \"0 0 1 * * ?\" → \"0 0 2 * * ?\"\n"}, {"0 0 2 * * ?", "--preview", "would change cities\n  cron: \"0 0 1 * * ?\" → \"0 0 2 * * ?\"\n" +
			"fires in the next 7 days: 7 before, 7 after (7 added, 7 gone)\noverlaps: 0 before, 0 after; instants without a run: 0 before, 0 after\na run takes 3m, by the history\n"},
	} {
		args := []string{"edit", "cities", "cron=" + c.cron}
		if c.flag != "" {
			args = append(args, c.flag)
		}
		if shown, _, err := operated(t, host, "", args...); err != nil || shown != c.want {
			t.Errorf("%+v: %v\n%s", c, err, shown)
		}
	}
	runs = `{"records":[],"silent":["10.0.0.2: no answer"]}`
	for text, want := range map[string]string{runs: "10.0.0.2: no answer\n", "": "the history does not answer"} {
		runs = text
		const assumed = "a run takes 5s, as is assumed: what answers of the history has no run\ndoes not answer, what it knows is missing: "
		if shown, _, err := operated(t, host, "", "edit", "cities", "cron=0 0 2 * * ?", "--preview"); err != nil || !strings.Contains(shown, assumed) || !strings.Contains(shown, want) {
			t.Errorf("the history answers %q: %v\n%s", text, err, shown)
		}
	}
	if _, _, err := operated(t, host, "", "edit", "cities", "cron=61", "foo=x"); !errors.As(err, new(command.UsageError)) || !strings.Contains(err.Error(), "settings.cron: found 61; settings.foo: is no setting") {
		t.Error(err)
	}
}

// TestSettingsText: a 0 that stands for a default says which, and each setting where it comes from.
func TestSettingsText(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	c := &admin.JobConfig{
		File:     "cities.yaml",
		Settings: map[string]string{"memoryLimit": "0", "maxConcurrency": "0", "fetchDataCount": "0", "reconcileIntervalMinutes": "0", "retry.attempts": "3", "cron": "", "timeout": "5m0s"},
		Origins: map[string]admin.Origin{
			"memoryLimit": {From: admin.FromDefault}, "maxConcurrency": {From: admin.FromDefault}, "fetchDataCount": {From: admin.FromFile}, "reconcileIntervalMinutes": {From: admin.FromRegistry},
			"cron":    {From: admin.FromEdit, Who: "ann", Time: now.Add(-3 * time.Minute), Why: "the backup runs until 3\nas before"},
			"timeout": {From: admin.FromEdit, Who: "the registry", Time: now.Add(-48 * time.Hour)},
		},
	}
	want := `SETTING                   VALUE               COMES FROM
cron                      -                   edited by ann 3m ago: the backup runs until 3
fetchDataCount            0: 100              cities.yaml
maxConcurrency            0: 2 per processor  default
memoryLimit               0: 128MiB           default
reconcileIntervalMinutes  0                   the registry
retry.attempts            3                   -
timeout                   5m0s                edited by the registry 2d ago
`
	if got := settingsText(terminal.Style{}, c, now); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
