package program

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/host/control/forecast"
)

// TestPlanMistakes: mistakes of the command line are named before anything is played.
func TestPlanMistakes(t *testing.T) {
	t.Parallel()
	dir, empty := t.TempDir(), t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return filepath.Dir(file)
	}
	good := write("good/a.yaml", "cron: '0 * * * * ?'\nshardingTotalCount: 1\n")
	bad := write("bad/a.yaml", "cron: '61 * * * * ?'\nshardingTotalCount: 1\n")
	twice := write("twice/a.yaml", "jobName: b\ncron: '0 * * * * ?'\nshardingTotalCount: 1\n")
	write("twice/b.yaml", "cron: '0 * * * * ?'\nshardingTotalCount: 1\n")
	circle := write("circle/a.yaml", "after: [{job: b}]\nshardingTotalCount: 1\n")
	write("circle/b.yaml", "after: [{job: a}]\nshardingTotalCount: 1\n")
	none := filepath.Join(write("empty.jsonl", ""), "empty.jsonl")
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{nil, exitUsage, "name a directory of definitions"},
		{[]string{good, good, good}, exitUsage, "unexpected argument"},
		{[]string{good, "--last", "7d"}, exitUsage, "--last needs a history: name one with --history"},
		{[]string{good, "--last", "7d", "--next", "7d"}, exitUsage, "--last and --next do not go together"},
		{[]string{good, "--next", "7d", "--from", "2027-01-01"}, exitUsage, "--next and --from do not go together"},
		{[]string{good, "--next", "7d", "--to", "2027-01-01"}, exitUsage, "--next and --to do not go together"},
		{[]string{good, good, "--running"}, exitUsage, "both say what was before"},
		{[]string{good, "--from", "2027-01-02", "--to", "2027-01-01"}, exitUsage, "expected an end after the begin"},
		{[]string{good, "--next", "400d"}, exitUsage, "expected at most 8784h"},
		{[]string{good, "--next", "0s"}, exitUsage, "expected an end after the begin"},
		{[]string{good, "--hosts", "0"}, exitUsage, "--hosts: found 0"},
		{[]string{good, "--hosts", "5000"}, exitUsage, "found 5000 hosts"},
		{[]string{good, "--slots", "-1"}, exitUsage, "found -1 slots"},
		{[]string{good, "--output", "html"}, exitUsage, "expected table, json, yaml or markdown"},
		{[]string{good, "--history", filepath.Join(dir, "none.jsonl")}, exitUsage, "none.jsonl"},
		{[]string{good, "--history", none}, exitUsage, "found no run that has ended"},
		{[]string{good, "--alerts", filepath.Join(dir, "none.yaml")}, exitUsage, "--alerts"},
		{[]string{empty}, exitUsage, "found no definition there"},
		{[]string{filepath.Join(dir, "nowhere")}, exitUsage, "found no definition there"},
		{[]string{bad}, exitUsage, filepath.Join("bad", "a.yaml") + ":1:"},
		{[]string{twice}, exitFailure, `job "b" is defined in`},
		{[]string{circle}, exitFailure, "the jobs would come after each other: a -> b -> a"},
	} {
		runCLI(t, nil, append([]string{"plan"}, tt.args...)...).expect(t, tt.code, tt.want)
	}
}

// TestPlanHistory: the past is played with the runs of the history, and what is worse than before has exit code 3.
func TestPlanHistory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	files := map[string]string{
		"old/a.yaml": "cron: '0 0 * * * ?'\ntimeZone: UTC\nshardingTotalCount: 1\noverlap: skip\ntimeout: 2h\n",
		"new/a.yaml": "cron: '0 0/30 * * * ?'\ntimeZone: UTC\nshardingTotalCount: 1\noverlap: skip\ntimeout: 2h\n",
	}
	var lines []string
	event := func(kind, at, instant, more string) {
		lines = append(lines, `{"kind":"`+kind+`","time":"`+at+`","job":"a","host":"h","item":0,"source":"schedule","instant":"`+instant+`","runId":"a/`+instant+`/0"`+more+`}`)
	}
	for _, hour := range []string{"01", "02", "03"} {
		instant := "2027-01-01T" + hour + ":00:00Z"
		event("item.started", "2027-01-01T"+hour+":00:01Z", instant, "")
		event("item.completed", "2027-01-01T"+hour+":40:01Z", instant, `,"outcome":"OK"`)
	}
	files["h.jsonl"] = strings.Join(lines, "\n") + "\n"
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	old, changed := filepath.Join(dir, "old"), filepath.Join(dir, "new")
	args := []string{"--from", "2027-01-01T00:30:00Z", "--to", "2027-01-01T04:00:00Z", "--history", filepath.Join(dir, "h.jsonl")}
	r := runCLI(t, nil, append([]string{"plan", old, changed, "--json"}, args...)...)
	r.expect(t, 3, `"worse": true`)
	var got forecast.Report
	if err := json.Unmarshal([]byte(r.out), &got); err != nil {
		t.Fatal(err)
	}
	// At 00:30 a run takes the typical 40 minutes, so that 01:00 is skipped. Then each second one is.
	if got.KnownRuns != 3 || got.Before.Skipped["overlap"] != 0 || got.After.Skipped["overlap"] != 3 || got.After.Runs != 4 || len(got.Jobs) != 1 || got.Jobs[0].FiresAdded != 4 {
		t.Errorf("got %s", r.out)
	}
	runCLI(t, nil, append([]string{"plan", old, old}, args...)...).expect(t, exitOK, "nothing is skipped or overlaps that was not before")
	runCLI(t, nil, append([]string{"plan", old, changed, "-o", "markdown"}, args...)...).expect(t, 3, "| overlaps | 0 | 3 |", "**Plan** of")
	runCLI(t, nil, append([]string{"plan", changed}, args...)...).expect(t, exitOK, "overlaps")
}

// TestPlanRunning: files are compared with the jobs that a host has, by the durations of its history.
func TestPlanRunning(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte("cron: '0 0/30 * * * ?'\ntimeZone: UTC\nshardingTotalCount: 2\noverlap: skip\ntimeout: 2h\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	begun, runs := time.Now().Add(-2*time.Hour).UTC(), true
	host := http.NewServeMux()
	host.HandleFunc("GET /v1/registry/jobs", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `[{"name":"a"}]`) })
	host.HandleFunc("GET /v1/jobs/a/config", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"job":"a","settings":{"cron":"0 0 * * * ?","timeZone":"UTC","shardingTotalCount":"2","overlap":"skip","misfire":"false","timeout":"2h"}}`)
	})
	host.HandleFunc("GET /v1/runs", func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !runs:
			fmt.Fprint(w, `{"records":[],"silent":["10.0.0.2: no answer"]}`)
		case r.FormValue("after") == "":
			fmt.Fprint(w, `{"records":[],"next":"page2","silent":["10.0.0.2: no answer"]}`)
		default:
			fmt.Fprintf(w, `{"records":[{"job":"a","begun":%q,"ended":%q,"outcome":"OK"}]}`, begun.Format(time.RFC3339), begun.Add(40*time.Minute).Format(time.RFC3339))
		}
	})
	server := httptest.NewServer(host)
	t.Cleanup(server.Close)
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte("token-of-the-host-1234"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := []string{"WASMJOB_ADMIN=" + strings.TrimPrefix(server.URL, "http://"), "WASMJOB_ADMIN_TOKEN_FILE=" + token}
	r := runCLI(t, env, "plan", dir, "--running", "--next", "24h", "--json")
	r.expect(t, 3)
	var got forecast.Report
	if err := json.Unmarshal([]byte(r.out), &got); err != nil {
		t.Fatal(err)
	}
	if got.KnownRuns != 1 || got.Before == nil || got.Before.Overlaps != 0 || got.After.Skipped["overlap"] != 48 || len(got.Jobs) != 1 || got.Jobs[0].Change != forecast.Changed {
		t.Errorf("got %s", r.out)
	}
	if !slices.Equal(got.Silent, []string{"10.0.0.2: no answer"}) {
		t.Errorf("silent are %q", got.Silent)
	}
	const silent = "does not answer, what it knows is missing: 10.0.0.2: no answer"
	runCLI(t, env, "plan", dir, "--running", "--last", "24h").expect(t, 3, "durations are those of 1 run", silent)
	runCLI(t, env, "plan", dir, "--running", "--last", "24h", "--output", "markdown").expect(t, 3, silent[1:])
	runs = false
	runCLI(t, env, "plan", dir, "--running", "--last", "24h").expect(t, exitFailure, "the history of the hosts has no run since", "10.0.0.2: no answer")
}

// TestPlanIsDocumented: docs/schedules.md has the plan of the examples against a changed copy of them.
func TestPlanIsDocumented(t *testing.T) {
	t.Parallel()
	const page, examples = "../../../docs/schedules.md", "../../../plugins/examples"
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(data), "\n## Before a change\n")
	if !found {
		t.Fatal("docs/schedules.md has no section Before a change")
	}
	block := func(kind string) string {
		_, after, found := strings.Cut(section, "```"+kind+"\n")
		if !found {
			t.Fatalf("the section has no block of %s", kind)
		}
		text, _, _ := strings.Cut(after, "```\n")
		return text
	}
	dir := filepath.Join(t.TempDir(), "changed")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	list, err := filepath.Glob(examples + "/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	change := block("yaml")
	for _, file := range list {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Base(file) == "report.yaml" {
			kept := change
			for line := range strings.Lines(string(text)) {
				key, _, _ := strings.Cut(line, ":")
				if key != "misfire" && !strings.Contains("\n"+change, "\n"+key+":") {
					kept += line
				}
			}
			text = []byte(kept)
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(file)), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	shown := block("console")
	line, want, _ := strings.Cut(shown, "\n")
	var args []string
	for _, word := range strings.Fields(strings.TrimPrefix(line, "$ wasmjob ")) {
		switch word {
		case "plugins/examples":
			word = examples
		case "changed":
			word = dir
		}
		args = append(args, word)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...) // in a process of its own, for the zone
	cmd.Env = append(os.Environ(), "TZ=UTC")
	out, err := cmd.Output()
	if *update && string(out) != want {
		if err := os.WriteFile(page, []byte(strings.Replace(string(data), shown, line+"\n"+string(out), 1)), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != 3 || string(out) != want {
		t.Errorf("%v, got\n%s\nwant\n%s\ngo test ./host/node/program -run PlanIsDocumented -update", err, out, want)
	}
}

// TestPlanOfManyJobs: a plan of many jobs over a long time ends with the job that is too much.
func TestPlanOfManyJobs(t *testing.T) {
	t.Parallel()
	day := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	o := forecast.Options{From: day, To: day.Add(24 * time.Hour), MostStarts: 10}
	if _, err := forecast.Compare(t.Context(), nil, nil, false, o); err != nil {
		t.Errorf("no jobs at all: %v", err)
	}
}
