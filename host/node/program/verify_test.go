package program

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/cli/command"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history/database"
	"github.com/wasmjob/wasmjob/host/history/verify"
)

func TestVerify(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	head := `{"time":"2026-03-01T10:00:00Z","kind":"host.started","host":""}
{"time":"2026-03-01T10:00:00Z","kind":"job.added","host":"ID","job":"j"}
`
	run := func(id, instant, from, to, fence string) string {
		common := `"host":"` + id + `","job":"j","instant":"2026-03-01T` + instant + `Z","runId":"j/` + instant + `/0","item":0,"fence":` + fence + `}` + "\n"
		return `{"time":"2026-03-01T` + from + `Z","kind":"item.started",` + common +
			`{"time":"2026-03-01T` + to + `Z","kind":"item.ended","outcome":"OK",` + common +
			`{"time":"2026-03-01T` + to + `Z","kind":"item.completed","outcome":"OK",` + common
	}
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	a := file("a.jsonl", strings.ReplaceAll(head, "ID", "10.0.0.1@-@a")+run("10.0.0.1@-@a", "10:00:10", "10:00:10", "10:00:40", "5"))
	b := file("b.jsonl", strings.ReplaceAll(head, "ID", "10.0.0.2@-@b")+run("10.0.0.2@-@b", "10:00:20", "10:00:20", "10:00:30", "6")+`{"cut`)
	shared := file("shared.jsonl", strings.ReplaceAll(head+`{"time":"2026-03-01T10:00:01Z","kind":"job.assigned","host":"ID","job":"j","items":[0]}
{"time":"2026-03-01T10:00:10Z","kind":"fire.started","host":"ID","job":"j","instant":"2026-03-01T10:00:10Z","source":"schedule","items":[0],"total":2}
`, "ID", "10.0.0.1@-@a")+run("10.0.0.1@-@a", "10:00:10", "10:00:10", "10:00:40", "5")+
		`{"time":"2026-03-01T11:00:00Z","kind":"job.assigned","host":"10.0.0.1@-@a","job":"j","items":[0]}`+"\n")
	for name, tc := range map[string]struct {
		args []string
		code int
		want []string
	}{
		"kept":       {[]string{"job", "verify", a}, exitOK, []string{"0 violations"}},
		"violated":   {[]string{"job", "verify", a, b}, exitFailure, []string{"violated 1  job j item 0", a + ":3", b + ":4", "1 violation,", "no item has two live owners"}},
		"forgiven":   {[]string{"job", "verify", "--skew", "20s", a, b}, exitOK, []string{"0 violations"}},
		"missing":    {[]string{"job", "verify", shared}, exitOK, []string{"unproven 2  job j item 1", "a history is missing", "0 violations, 1 unproven"}},
		"java":       {[]string{"job", "verify", "--java", "i,j", shared}, exitOK, []string{"0 violations, 0 unproven"}},
		"unreadable": {[]string{"job", "verify", a, filepath.Join(dir, "none")}, exitUsage, nil},
		"no files":   {[]string{"job", "verify"}, exitUsage, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out, errs strings.Builder
			p := &program{Program: command.Program{Out: &out, Err: &errs}}
			if code := p.main(t.Context(), tc.args); code != tc.code {
				t.Errorf("exit code %d, want %d: %s", code, tc.code, errs.String())
			}
			for _, w := range tc.want {
				if !strings.Contains(out.String(), w) {
					t.Errorf("found\n%s\nwant %q in it", out.String(), w)
				}
			}
		})
	}
	for name, want := range map[string]string{
		"sqlite:/x/h.db": "/x/h.db: no history can be read there", "postgres://u:secret@127.0.0.1:1/jobs": "no history can be read there", "sqlit:x.db": "found the scheme",
		file("h.db", "SQLite format 3\x00\x10"): "found a history in a database, expected a file of JSON lines, as a host writes it with --history FILE.jsonl; sqlite:PATH names a database",
	} {
		var errs strings.Builder
		p := &program{Program: command.Program{Out: io.Discard, Err: &errs}}
		if code := p.main(t.Context(), []string{"job", "verify", a, name}); code != exitUsage || !strings.Contains(errs.String(), want) || strings.Contains(errs.String(), "secret") {
			t.Errorf("%s: exit code %d, %s", name, code, errs.String())
		}
	}
	for settle, warned := range map[string]bool{"5s": true, "59s": true, "1m": false} {
		var errs strings.Builder
		p := &program{Program: command.Program{Out: io.Discard, Err: &errs}}
		if code := p.main(t.Context(), []string{"job", "verify", "--settle", settle, a}); code != exitOK || strings.Contains(errs.String(), "shorter than a takeover takes") != warned {
			t.Errorf("--settle %s: exit code %d, %s", settle, code, errs.String())
		}
	}
	var out strings.Builder
	p := &program{Program: command.Program{Out: &out, Err: &out}}
	if code := p.main(t.Context(), []string{"job", "verify", "--json", a, b}); code != exitFailure {
		t.Errorf("exit code %d", code)
	}
	var r verify.Report
	if err := json.Unmarshal([]byte(out.String()), &r); err != nil || r.Violations != 1 || r.Findings[0].Invariant != verify.OneOwner {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestVerifyDatabase: a database is judged as files are, also one of several hosts of which one was killed.
func TestVerifyDatabase(t *testing.T) {
	t.Parallel()
	url := "sqlite:" + filepath.Join(t.TempDir(), "h.db")
	config, err := database.Parse(url, "")
	if err != nil {
		t.Fatal(err)
	}
	store, err := database.Open(t.Context(), database.Options{Config: config, Spool: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now().Add(-time.Hour).UTC().Truncate(time.Second)
	at := func(seconds int) time.Time { return begin.Add(time.Duration(seconds) * time.Second) }
	run := func(host string, fence int64, instant, from, to int) {
		e := event.Event{Host: host, Job: "j", Instant: at(instant), RunID: fmt.Sprintf("j/%d/0", instant), Item: new(0), Fence: fence, Source: abi.SourceSchedule}
		e.Time, e.Kind = at(from), event.ItemStarted
		store.AddEvent(e)
		for _, kind := range []event.Kind{event.ItemEnded, event.ItemCompleted} {
			e.Time, e.Kind, e.Outcome = at(to), kind, abi.OutcomeOK
			store.AddEvent(e)
		}
	}
	join := func(host string, seconds int) {
		store.AddEvent(event.Event{Time: at(seconds), Kind: event.HostStarted, Host: event.ProcessOf(host)})
		store.AddEvent(event.Event{Time: at(seconds), Kind: event.JobAdded, Host: host, Job: "j"})
	}
	const a, b = "10.0.0.1@-@7-a", "10.0.0.2@-@7-b"
	join(a, 0)
	join(b, 1)
	run(a, 5, 10, 10, 40)
	run(b, 6, 20, 20, 30) // beside it
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		args []string
		code int
		want []string
	}{
		"violated": {[]string{"job", "verify", url}, exitFailure, []string{"violated 1  job j item 0", url + ":", "2 host processes", "1 violation,", "no item has two live owners"}},
		"forgiven": {[]string{"job", "verify", "--skew", "20s", url, url}, exitOK, []string{"0 violations"}},
	} {
		var out, errs strings.Builder
		p := &program{Program: command.Program{Out: &out, Err: &errs}}
		if code := p.main(t.Context(), tc.args); code != tc.code {
			t.Errorf("%s: exit code %d, want %d: %s", name, code, tc.code, errs.String())
		}
		for _, w := range tc.want {
			if !strings.Contains(out.String(), w) {
				t.Errorf("%s: found\n%s\nwant %q in it", name, out.String(), w)
			}
		}
	}
}
