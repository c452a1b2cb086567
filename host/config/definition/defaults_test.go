package definition

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/test/schemas"
)

func sharedOf(t *testing.T, file, text string) *Shared {
	t.Helper()
	s, err := ParseShared(file, []byte(text))
	schemas.New(t, SharedSchema()).Check(t, text, err)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestShared: a job has what it leaves out from its folder's defaults, and then from those above.
func TestShared(t *testing.T) {
	t.Parallel()
	top := sharedOf(t, "defaults.yaml", "timeZone: Europe/Berlin\ntimeout: 2m\nshardingTotalCount: 3\nretry: {attempts: 7, backoff: 2s}\nprops: {team: all, tier: gold}\n")
	near := sharedOf(t, "pay/defaults.yaml", "timeout: 3m\nfailover: true\nprops: {team: pay}\n")
	list, err := ParseWithin("pay/a.yaml", []byte("cron: 0 0 3 * * ?\nretry: {backoff: 5s}\nprops: {mine: x}\n"), nil, near, top)
	if err != nil {
		t.Fatal(err)
	}
	c := list[0].Configuration
	g, err := c.Guest()
	if err != nil {
		t.Fatal(err)
	}
	if c.TimeZone != "Europe/Berlin" || g.Timeout != 3*time.Minute || c.ShardingTotalCount != 3 || g.Retry.Attempts != 7 || g.Retry.Backoff != 5*time.Second || !c.Failover {
		t.Errorf("the job is %+v, %+v", c, g)
	}
	if c.Props["mine"] != "x" || c.Props["team"] != "pay" || c.Props["tier"] != "gold" {
		t.Errorf("its properties are %v", c.Props)
	}
	from := maps.Clone(list[0].Inherited)
	for field, file := range map[string]string{"timeZone": "defaults.yaml", "timeout": "pay/defaults.yaml", "shardingTotalCount": "defaults.yaml", "retry.attempts": "defaults.yaml", "failover": "pay/defaults.yaml", "retry.backoff": "", "cron": ""} {
		if from[field] != file {
			t.Errorf("%s is from %q, expected %q", field, from[field], file)
		}
	}
	// Two jobs of a file inherit as one.
	list, err = ParseWithin("pay/b.yaml", []byte("jobName: x\n---\njobName: y\ntimeout: 1m\n"), nil, near, top)
	if err != nil || len(list) != 2 {
		t.Fatal(list, err)
	}
	x, _ := list[0].Configuration.Guest()
	y, _ := list[1].Configuration.Guest()
	if x.Timeout != 3*time.Minute || y.Timeout != time.Minute || list[0].Configuration.ShardingTotalCount != 3 {
		t.Error("the jobs of a file do not have the defaults:", x.Timeout, y.Timeout)
	}
}

// TestSharedGivesWay: a default that a job contradicts, or has no use for, is not the job's.
func TestSharedGivesWay(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		defaults, job string
		check         func(jobconfig.Configuration, jobconfig.Guest) bool
	}{
		{"cron: 0 0 3 * * ?\n", "at: 2027-01-01T00:00:00Z\nshardingTotalCount: 1\n", func(c jobconfig.Configuration, g jobconfig.Guest) bool { return c.Cron == "" && g.When.At != "" }},
		{"cron: 0 0 3 * * ?\n", "schedules: [{cron: '0 0 4 * * ?'}]\nshardingTotalCount: 1\n", func(c jobconfig.Configuration, _ jobconfig.Guest) bool { return c.Cron == "" }},
		{"overlap: skip\n", "misfire: true\nshardingTotalCount: 1\n", func(c jobconfig.Configuration, g jobconfig.Guest) bool { return c.Misfire && g.Overlap == "" }},
		{"misfire: false\n", "overlap: queue_all\nshardingTotalCount: 1\n", func(c jobconfig.Configuration, _ jobconfig.Guest) bool { return c.Misfire }},
		{"failover: true\n", "monitorExecution: false\nshardingTotalCount: 1\n", func(c jobconfig.Configuration, _ jobconfig.Guest) bool { return !c.Failover }},
		{"shardingTotalCount: 2\nshardingItemParameters: 0=A,1=B\n", "shardingTotalCount: 1\n", func(c jobconfig.Configuration, _ jobconfig.Guest) bool { return c.ShardingItemParameters == "" }},
		{"jitter: 5m\ndst: both\n", "shardingTotalCount: 1\n", func(_ jobconfig.Configuration, g jobconfig.Guest) bool { return g.When.Jitter == 0 }},
		{"jitter: 5m\n", "cron: 0 0 3 * * ?\nshardingTotalCount: 1\n", func(_ jobconfig.Configuration, g jobconfig.Guest) bool { return g.When.Jitter == 5*time.Minute }},
		{"streamingProcess: true\n", "type: SIMPLE\nshardingTotalCount: 1\n", func(_ jobconfig.Configuration, g jobconfig.Guest) bool { return !g.StreamingProcess }},
		{"http: {method: POST, expect: 200-204}\n", "shardingTotalCount: 1\n", func(_ jobconfig.Configuration, g jobconfig.Guest) bool { return g.HTTP.Method == "" }},
		{"http: {method: POST}\n", "type: HTTP\nhttp: {url: 'https://a.example/'}\nshardingTotalCount: 1\n", func(_ jobconfig.Configuration, g jobconfig.Guest) bool {
			return g.HTTP.Method == "POST" && g.HTTP.URL == "https://a.example/"
		}},
	} {
		list, err := ParseWithin("a.yaml", []byte(c.job), nil, sharedOf(t, "defaults.yaml", c.defaults))
		if err != nil {
			t.Errorf("%q under %q: %v", c.job, c.defaults, err)
			continue
		}
		if g, err := list[0].Configuration.Guest(); err != nil || !c.check(list[0].Configuration, g) {
			t.Errorf("%q under %q is %+v, %+v, %v", c.job, c.defaults, list[0].Configuration, g, err)
		}
	}
}

// TestSharedErrors: what is wrong with a file of defaults is said of it, and of a job what only shows there, with
// the file and the line that it is from.
func TestSharedErrors(t *testing.T) {
	t.Parallel()
	editor := schemas.New(t, SharedSchema())
	for text, want := range map[string]string{
		"jobName: a\n":                             "defaults.yaml:1:10: jobName: is each job's own: it has no default",
		"module: a.wasm\n":                         "module: is each job's own",
		"timeout: soon\n":                          "defaults.yaml:1:10: timeout: found",
		"timeOut: 1m\n":                            "did you mean timeout?",
		"shardingTotalCount: 0\n":                  "shardingTotalCount",
		"cron: 0 0 25 * * ?\n":                     "25 is out of range",
		"timeout: 1m\n---\ntimeout: 2m\n":          "defaults.yaml:3:1: found another document, expected the defaults in one",
		"failover: true\nmonitorExecution: no\n":   "failover needs it",
		"- a\n":                                    "expected the fields of a job",
		"cron: 0 0 3 * * ?\ntimeZone: Mars/Olym\n": "Mars/Olym",
	} {
		_, err := ParseShared("defaults.yaml", []byte(text))
		editor.Check(t, text, err)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, expected %s", text, err, want)
		}
	}
	if editor.Refused < 5 {
		t.Errorf("the schema refuses %d of these files: it shows little", editor.Refused)
	}
	_, err := ParseWithin("a.yaml", []byte("shardingTotalCount: 1\nretry: {backoff: 5m}\n"), nil, sharedOf(t, "pay/defaults.yaml", "timeout: 1m\nretry:\n  maxBackoff: 1m\n"))
	if err == nil || !strings.Contains(err.Error(), "a.yaml:1:1: retry.maxBackoff: ") || !strings.Contains(err.Error(), "(it is from pay/defaults.yaml, line 3)") {
		t.Error(err)
	}
}

// TestLabelsOfDefaults: a job has the labels of all its folders that it does not name itself, also if it names none.
func TestLabelsOfDefaults(t *testing.T) {
	t.Parallel()
	top := sharedOf(t, "defaults.yaml", "shardingTotalCount: 1\nlabels: {team: all, tier: gold}\nprops: {a: top, b: top}\n")
	near := sharedOf(t, "pay/defaults.yaml", "labels: {team: pay, region: eu}\nprops: {a: near}\n")
	for definition, want := range map[string]string{
		"labels: {tier: test, mine: 1}\n": "mine=1,region=eu,team=pay,tier=test",
		"labels: {}\n":                    "region=eu,team=pay,tier=gold",
		"":                                "region=eu,team=pay,tier=gold",
	} {
		list, err := ParseWithin("pay/a.yaml", []byte("jobName: a\n"+definition), nil, near, top)
		if err != nil {
			t.Fatal(err)
		}
		c := list[0].Configuration
		if got := c.Props["wasm.labels"]; got != want || c.Labels().String() != want {
			t.Errorf("%q: the labels are %q, expected %q", definition, got, want)
		}
		if c.Props["a"] != "near" || c.Props["b"] != "top" {
			t.Errorf("%q: the properties are %v, expected those of both folders", definition, c.Props)
		}
	}
	var many []string
	for n := range 16 {
		many = append(many, fmt.Sprintf("l%d: x", n))
	}
	if _, err := ParseWithin("pay/a.yaml", []byte("jobName: a\nlabels: {"+strings.Join(many, ", ")+"}\n"), nil, near); err == nil || !strings.Contains(err.Error(), "labels: found 18 labels, with those of the folder's defaults, expected at most 16") {
		t.Errorf("found %v, expected too many labels", err)
	}
}

// TestLabels: each label that no job can have is refused at its line.
func TestLabels(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"labels: [a]":                "found a list, expected a mapping of names to values, such as {team: billing}",
		"labels: team=billing":       `found "team=billing", expected a mapping of names to values`,
		"labels: {team: [a]}":        "found a list for label team, expected a text",
		"labels: {team: }":           "found nothing for label team, expected a text",
		"labels: {-team: a}":         `found the label name "-team"`,
		"labels: {team: a b}":        `found the value "a b" of label team`,
		"labels: {team: a, team: b}": "team",
		"props: {wasm.labels: a=b}":  "is written by this host, expected the field labels",
	} {
		_, err := Parse("a.yaml", []byte("shardingTotalCount: 1\n"+given+"\n"))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "a.yaml:2:") {
			t.Errorf("%s: found %v, expected %q in line 2", given, err, want)
		}
	}
	list, err := Parse("a.yaml", []byte("shardingTotalCount: 1\nlabels: {critical: true, year: 2026, example.com/team: \"\"}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got := list[0].Configuration.Labels().String(); got != "critical=true,example.com/team=,year=2026" {
		t.Errorf("found %q, expected the values as they are written", got)
	}
}

// TestSharedSize: what the jobs of a file have from defaults is bounded, and costs little where it is too much.
func TestSharedSize(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("x", 9000)
	var props, jobs, ours strings.Builder
	for n := range 50 {
		fmt.Fprintf(&props, "  p%d: %s\n", n, text)
	}
	shared := sharedOf(t, "z/defaults.yaml", "shardingTotalCount: 1\nprops:\n"+props.String())
	few := MaxInherited/(50*9010) - 1
	for n := range 5000 {
		if n == few {
			list, err := ParseWithin("z/few.yaml", []byte(jobs.String()), nil, shared)
			if err != nil || list[0].InheritedSize < 50*9000 {
				t.Fatalf("%d jobs with %d bytes each: %v", few, list[0].InheritedSize, err)
			}
		}
		fmt.Fprintf(&jobs, "---\njobName: j%d\ncron: 0 0 3 * * ?\n", n)
		fmt.Fprintf(&ours, "---\njobName: j%d\ncron: 0 0 3 * * ?\nprops: {mine: x}\n", n)
	}
	for _, all := range []string{jobs.String(), ours.String()} {
		_, err := ParseWithin("z/many.yaml", []byte(all), nil, shared)
		if err == nil || !strings.Contains(err.Error(), "more than 16777216 bytes from files of defaults") || strings.Count(err.Error(), "\n") > 1 {
			t.Errorf("5,000 jobs with %d bytes each: %.400v", 50*9000, err)
		}
	}
}
