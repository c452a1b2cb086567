package definition

import (
	"testing"
)

// TestArguments: a file declares arguments, and what a run gets that is given none is checked with it.
func TestArguments(t *testing.T) {
	t.Parallel()
	jobs, err := Parse("jobs/settle.yaml", []byte(`cron: "0 0 1 * * ?"
shardingTotalCount: 1
jobParameter: '{"day": "2026-12-24"}'
arguments:
  - name: day
    type: date
    description: which day to settle
  - {name: limit, type: integer, default: 100, min: 1, max: 1000}
  - {name: how, type: enum, values: [fast, all], default: all}
  - {name: note, type: string, default: ""}
`))
	if err != nil {
		t.Fatal(err)
	}
	c := jobs[0].Configuration
	const stored = `[{"name":"day","type":"date","description":"which day to settle"},{"name":"limit","type":"integer","default":"100","min":"1","max":"1000"},` +
		`{"name":"how","type":"enum","default":"all","values":["fast","all"]},{"name":"note","type":"string","default":""}]`
	if got := c.Props["wasm.arguments"]; got != stored {
		t.Errorf("stored as %s, want %s", got, stored)
	}
	g, err := c.Guest()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := g.Parameter(c, nil); err != nil || got != `{"day":"2026-12-24","limit":100,"how":"all","note":""}` {
		t.Errorf("a scheduled run gets %s %v", got, err)
	}
}
