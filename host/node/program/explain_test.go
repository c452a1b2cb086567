package program

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/host/cli/command"
	"github.com/wasmjob/wasmjob/host/explain"
)

func TestExplain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const day = `{"time":"2026-03-01T`
	a := file("a.jsonl", day+`02:00:00Z","kind":"host.started","host":"10.0.0.1@-@7"}
`+day+`02:00:01Z","kind":"job.added","host":"10.0.0.1@-@7-aa","job":"report"}
`+day+`02:00:01Z","kind":"job.configured","host":"10.0.0.1@-@7-aa","job":"report","settings":{"cron":"0 0 3 * * ?","timeZone":"UTC","items":1,"misfire":true,"failover":true,"catchUpNs":300000000000}}
`+day+`02:00:02Z","kind":"job.assigned","host":"10.0.0.1@-@7-aa","job":"report","items":[0]}
`+day+`02:30:00Z","kind":"item.started","host":"10.0.0.1@-@7-aa","job":"other","instant":"2026-03-01T02:30:00Z","item":0}
`+day+`02:59:48Z","kind":"session","host":"10.0.0.1@-@7-aa","reason":"suspect"}
`)
	const run = `"host":"10.0.0.2@-@9-bb","job":"report","instant":"2026-03-01T03:00:00Z","source":"catch-up","runId":"r","item":0,"attempt":1`
	b := file("b.jsonl", day+`02:00:05Z","kind":"job.added","host":"10.0.0.2@-@9-bb","job":"report"}
not an event
`+day+`03:00:18Z","kind":"host.gone","host":"10.0.0.2@-@9-bb","other":"10.0.0.1@-@7-aa"}
`+day+`03:00:19Z","kind":"job.assigned","host":"10.0.0.2@-@9-bb","job":"report","items":[0]}
`+day+`03:00:19Z","kind":"fire.started","host":"10.0.0.2@-@9-bb","job":"report","instant":"2026-03-01T03:00:00Z","source":"catch-up","items":[0],"total":1}
`+day+`03:00:41Z","kind":"item.started",`+run+`,"waited":{"slotNs":22000000000}}
`+day+`03:00:43Z","kind":"item.ended","outcome":"OK","durationNs":2000000000,`+run+`}
`+day+`03:00:43Z","kind":"item.completed","outcome":"OK",`+run+`}
`)
	left := file("left.jsonl", day+`02:00:01Z","kind":"job.added","host":"10.0.0.1@-@7-aa","job":"report"}
`+day+`02:00:01Z","kind":"job.configured","host":"10.0.0.1@-@7-aa","job":"report","settings":{"cron":"0 0 3 * * ?","timeZone":"UTC","items":4,"misfire":true,"failover":true,"catchUpNs":300000000000}}
`+day+`02:00:02Z","kind":"job.assigned","host":"10.0.0.1@-@7-aa","job":"report","items":[0,1]}
`+day+`02:50:00Z","kind":"job.removed","host":"10.0.0.1@-@7-aa","job":"report","reason":"the host is stopping"}
`)
	const ofOthers = `report: unknown (2026-03-01 03:00:00 UTC)

What became of items 0-3 is not known: they were due at 03:00:00, none of the hosts whose histories there are had the job then, and the histories of other hosts are missing.
  Host 10.0.0.1 had the job until 02:50:00: the host is stopping.
`
	empty := file("empty.jsonl", "")
	const story = `report: late (2026-03-01 03:00:00 UTC)

Item 0 was due at 03:00:00 and began at 03:00:41 on host 10.0.0.2 as a catch-up, 41s late.
  Host 10.0.0.1, which had it, got no answer from the registry: its session was in doubt from 02:59:48 on, and nothing began there.
  The session of host 10.0.0.1 had ended: host 10.0.0.2 saw that at 03:00:18.
  Host 10.0.0.2 got it at 03:00:19.
  On host 10.0.0.2 it waited 22s for a free slot.
  It succeeded at 03:00:43, after 2s.
`
	at := []string{"--at", "2026-03-01T03:00:00Z", "--history", a, "--history", b}
	for name, tc := range map[string]struct {
		args      []string
		code      int
		out, errs string
	}{
		"both hosts":        {append([]string{"explain", "report"}, at...), exitOK, story, ""},
		"the other name":    {append([]string{"why", "report"}, at...), exitOK, story, ""},
		"before":            {[]string{"why", "report", "--before", "2026-03-01T04:00:00Z", "--history", b, "--history", a}, exitOK, story, ""},
		"one host alone":    {[]string{"explain", "report", "--at", "2026-03-01T03:00:00Z", "--history", a}, exitOK, "What became of item 0 is not known: it was due at 03:00:00, host 10.0.0.1 had it since 02:00:02, and its history says nothing of that instant.", ""},
		"one that left":     {[]string{"explain", "report", "--at", "2026-03-01T03:00:00Z", "--history", left}, exitOK, ofOthers, ""},
		"never due":         {[]string{"explain", "report", "--at", "2026-03-01T03:30:00Z", "--history", a}, exitOK, "never due", ""},
		"another job":       {[]string{"explain", "reports", "--history", a}, exitFailure, "", `the files have no job "reports"; did you mean "report"?`},
		"no files, no host": {[]string{"explain", "report", "--admin", "127.0.0.1:1"}, exitFailure, "", "no host is running here"},
		"files and a host":  {[]string{"explain", "report", "--history", a, "--admin", "127.0.0.1:1"}, exitUsage, "", "--admin asks a host, --history reads files"},
		"a database":        {[]string{"explain", "report", "--history", "postgres://u:secret@db/jobs"}, exitUsage, "", "postgres:…: found a history in a database, expected a file of JSON lines, as a host writes it with --history FILE.jsonl; without --history, 'wasmjob explain report' asks a host"},
		"a file of SQLite":  {[]string{"explain", "report", "--history", file("h.db", "SQLite format 3\x00\x10")}, exitUsage, "", "h.db: found a history in a database"},
		"a file of no use":  {[]string{"explain", "report", "--history", empty}, exitUsage, "", "no event in it"},
		"a missing file":    {[]string{"explain", "report", "--history", filepath.Join(dir, "none")}, exitUsage, "", "none"},
		"no time":           {[]string{"explain", "report", "--at", "noonish", "--history", a}, exitUsage, "", `--at: "noonish" is not a time`},
		"two times":         {[]string{"explain", "report", "--at", "03:00", "--before", "04:00", "--history", a}, exitUsage, "", "--at and --before"},
		"no item":           {[]string{"explain", "report", "--item", "-2", "--history", a}, exitUsage, "", "-2 is not an item"},
		"no job":            {[]string{"explain", "--history", a}, exitUsage, "", "JOB is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out, errs strings.Builder
			p := &program{Program: command.Program{Out: &out, Err: &errs}}
			if code := p.main(t.Context(), tc.args); code != tc.code || !strings.Contains(out.String(), tc.out) || !strings.Contains(errs.String(), tc.errs) {
				t.Errorf("exit code %d\n%s\n%s\nwant %d\n%s\n%s", code, out.String(), errs.String(), tc.code, tc.out, tc.errs)
			}
		})
	}

	var out, errs strings.Builder
	p := &program{Program: command.Program{Out: &out, Err: &errs}}
	if code := p.main(t.Context(), append([]string{"explain", "report", "--json", "--item", "0"}, at...)); code != exitOK {
		t.Fatal(errs.String())
	}
	var answer explain.Answer
	if err := json.Unmarshal([]byte(out.String()), &answer); err != nil {
		t.Fatal(err)
	}
	if answer.Verdict != explain.Late || len(answer.Sentences) != 6 || len(answer.Sentences[0].Events) != 2 || answer.Sentences[0].Kind != explain.KindBegan {
		t.Errorf("%+v", answer)
	}
}
