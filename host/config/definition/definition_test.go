package definition

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
)

var update = flag.Bool("update", false, "write what the parser says into testdata/mistakes.txt")

// TestMistakes goes through testdata/mistakes.txt: files that people write, and
// what they are told.
func TestMistakes(t *testing.T) {
	t.Parallel()
	const file = "testdata/mistakes.txt"
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	count := 0
	for section := range strings.SplitSeq(strings.TrimPrefix(string(data), "=== "), "\n=== ") {
		title, body, _ := strings.Cut(section+"\n", "\n")
		input, expected, _ := strings.Cut("\n"+body, "\n--- says\n")
		input, expected = strings.TrimPrefix(input, "\n"), strings.TrimSpace(expected)
		input = strings.TrimRight(input, "\n")
		if input != "" {
			input += "\n"
		}
		got := ""
		definitions, err := Parse("jobs/report.yaml", []byte(input))
		if err == nil {
			t.Errorf("%s: no problem was found", title)
		} else {
			got = err.Error()
		}
		var e *Error
		if definitions != nil || !errors.As(err, &e) || len(e.Problems) == 0 {
			t.Errorf("%s: got %v, %v", title, definitions, err)
		}
		if got != expected && !*update {
			t.Errorf("%s: got\n%s\nexpected\n%s", title, got, expected)
		}
		fmt.Fprintf(&out, "=== %s\n%s--- says\n%s\n", title, input, got)
		count++
	}
	if count < 40 {
		t.Errorf("only %d mistakes were read", count)
	}
	if *update {
		if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	got, err := Parse("jobs/report.yaml", []byte("shardingTotalCount: 3\n"))
	expected := []Definition{{
		Configuration: jobconfig.Configuration{
			JobName: "report", ShardingTotalCount: 3, MonitorExecution: true, Misfire: true, MaxTimeDiffSeconds: -1,
			ReconcileIntervalMinutes: 10, Props: map[string]string{"wasm.timeout": "10m0s"},
		},
		Module: "report.wasm", Line: 1,
	}}
	if err != nil || !reflect.DeepEqual(got, expected) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestEverything(t *testing.T) {
	t.Parallel()
	got, err := Parse("all.yml", []byte(`# every field
jobName: cities
cron: "*/5 * * * *"
timeZone: Asia/Shanghai
shardingTotalCount: "3"
shardingItemParameters: {2: Guangzhou, 0: Beijing, 1: 010}
jobParameter: 42
jobShardingStrategyType: OdevitySortByNameJobShardingStrategy
failover: yes
misfire: off
monitorExecution: true
maxTimeDiffSeconds: 60
reconcileIntervalMinutes: 0
jobErrorHandlerType: throw
description: |
  Two
  lines.
disabled: true
overwrite: true
label: ""
staticSharding: true
props: {a: 1.50, b: yes, script.command.line: "x y"}
module: other.wasm
type: dataflow
streamingProcess: true
timeout: 0
maxConcurrency: 2
isolation: item
memoryLimit: 64MiB
retry:
  attempts: 5
  backoff: 1m
  on: TIMEOUT, RETRY
fetchDataCount: 100
catchUpWindow: 1h
jobClass: com.example.Cities
---
jobName: tool
shardingTotalCount: 1
type: SCRIPT
args: [-v, "a b", 1]
retry: {on: [FAIL, RETRY]}
needs: [kv, "http GET https://api.example.com/v1/"]
`))
	if err != nil {
		t.Fatal(err)
	}
	label := ""
	expected := []Definition{
		{
			Configuration: jobconfig.Configuration{
				JobName: "cities", Cron: "*/5 * * * *", TimeZone: "Asia/Shanghai", ShardingTotalCount: 3,
				ShardingItemParameters: "0=Beijing,1=010,2=Guangzhou", JobParameter: "42", JobShardingStrategyType: "ODEVITY",
				Failover: true, MonitorExecution: true, MaxTimeDiffSeconds: 60, JobErrorHandlerType: "THROW", Description: "Two\nlines.\n",
				Disabled: true, Overwrite: true, Label: &label, StaticSharding: true,
				Props: map[string]string{
					"a": "1.50", "b": "yes", "script.command.line": "x y", "streaming.process": "true", "wasm.type": "DATAFLOW",
					"wasm.maxConcurrency": "2", "wasm.isolation": "item", "wasm.memoryLimit": "67108864", "wasm.retry.attempts": "5",
					"wasm.retry.backoff": "1m0s", "wasm.retry.on": "RETRY,TIMEOUT", "wasm.fetchDataCount": "100", "wasm.catchUpWindow": "1h0m0s",
				},
			},
			Module: "other.wasm", JobClass: "com.example.Cities", Line: 2,
		},
		{
			Configuration: jobconfig.Configuration{
				JobName: "tool", ShardingTotalCount: 1, MonitorExecution: true, Misfire: true, MaxTimeDiffSeconds: -1, ReconcileIntervalMinutes: 10,
				Props: map[string]string{"wasm.timeout": "10m0s", "wasm.type": "SCRIPT", "wasm.args": `["-v","a b","1"]`, "wasm.retry.on": "RETRY,FAIL", "wasm.needs": `["kv","http GET https://api.example.com/v1/"]`},
			},
			Module: "all.wasm", Line: 38,
		},
	}
	for i := range expected {
		if !reflect.DeepEqual(got[i], expected[i]) {
			t.Errorf("got      %+v\nexpected %+v", got[i], expected[i])
		}
	}
	if g, err := got[0].Configuration.Guest(); err != nil || g.Timeout != 0 || g.Retry.MaxBackoff != time.Minute {
		t.Errorf("got %+v, %v", g, err)
	}
}

// The forms in which a file can come.
func TestForms(t *testing.T) {
	t.Parallel()
	for name, data := range map[string]string{
		"byte order mark": "\ufeffcron: 0 0 3 * * ?\nshardingTotalCount: 2\n",
		"windows":         "cron: 0 0 3 * * ?\r\nshardingTotalCount: 2\r\n",
		"no end":          "cron: 0 0 3 * * ?\nshardingTotalCount: 2",
		"json":            "{\"cron\": \"0 0 3 * * ?\",\n\t\"shardingTotalCount\": 2}",
		"separators":      "---\n# a job\ncron: 0 0 3 * * ?\nshardingTotalCount: 2\n---\n# no other\n",
		"alias":           "cron: &c 0 0 3 * * ?\nshardingTotalCount: 2\ndescription: *c\n",
		"directive":       "%YAML 1.1\n---\ncron: 0 0 3 * * ?\nshardingTotalCount: 2\n",
	} {
		got, err := Parse("a.yaml", []byte(data))
		if err != nil || len(got) != 1 || got[0].Configuration.Cron != "0 0 3 * * ?" || got[0].Configuration.ShardingTotalCount != 2 || got[0].Configuration.JobName != "a" {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
	}
}

func TestBombs(t *testing.T) {
	t.Parallel()
	var laughs strings.Builder
	laughs.WriteString("description: &a0 [x,x,x,x,x,x,x,x,x]\n")
	for i := range 30 {
		fmt.Fprintf(&laughs, "b%d: &a%d [%s]\n", i, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i), 9), ", "))
	}
	laughs.WriteString("props: {a: *a30}\nargs: *a30\nshardingItemParameters: *a30\n")
	big := strings.Repeat("x", MaxSize/2)
	for name, data := range map[string]string{
		"laughs":   laughs.String(),
		"repeated": "shardingTotalCount: 1\njobParameter: &a " + big + "\nargs: [" + strings.Repeat("*a, ", 20_000) + "*a]\n",
		"props":    "shardingTotalCount: 1\njobParameter: &a " + big + "\nprops: {b: *a, c: *a, d: *a}\n",
		"itself":   "shardingTotalCount: 1\nargs: &a [*a]\nprops: &p {q: *p}\nretry: &r {on: *r}\n",
		"nested":   "description: " + strings.Repeat("[", MaxSize/2),
		"blocks":   "description:\n" + strings.Repeat("- ", MaxSize/4),
		"too big":  "#" + strings.Repeat("x", MaxSize),
	} {
		start := time.Now()
		got, err := Parse("a.yaml", []byte(data))
		if err == nil {
			t.Errorf("%s: got %+v", name, got)
		}
		if len(err.Error()) > 20_000 {
			t.Errorf("%s: the error has %d bytes", name, len(err.Error()))
		}
		t.Logf("%s: %s: %.300s", name, time.Since(start), err)
	}
}

// Whatever a definition says, Java can read from the registry what is written
// there for it, and so can a host.
func FuzzParse(f *testing.F) {
	f.Add([]byte("shardingTotalCount: 3\ncron: 0/5 * * * * ?\nshardingItemParameters: {0: A, 1: B}\n"))
	f.Add([]byte("jobName: a\nshardingTotalCount: 1\n---\njobName: b\nshardingTotalCount: 2\nretry: {attempts: 2, on: [FAIL]}\nargs: [a]\n"))
	f.Add([]byte("shardingTotalCount: 1\nprops: {streaming.process: yes, a: &x b, c: *x}\ntimeout: 0\nmemoryLimit: 1GiB\n"))
	f.Add([]byte("corn: 1\ncron: */5\n\tx: : y\n"))
	if data, err := os.ReadFile("testdata/mistakes.txt"); err == nil {
		for section := range strings.SplitSeq(string(data), "\n=== ") {
			_, body, _ := strings.Cut(section, "\n")
			input, _, _ := strings.Cut(body, "--- says\n")
			f.Add([]byte(input))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		definitions, err := Parse("a.yaml", data)
		if err != nil {
			var e *Error
			if definitions != nil || !errors.As(err, &e) || len(e.Problems) == 0 {
				t.Fatalf("got %v, %v", definitions, err)
			}
			lines := 1 // at most: YAML has five ways to end one
			for _, end := range []string{"\n", "\r", "\u0085", "\u2028", "\u2029"} {
				lines += strings.Count(string(data), end)
			}
			for _, p := range e.Problems {
				if p.Message == "" || p.Line < 0 || p.Line > lines || (p.Line == 0) != (p.Column == 0) {
					t.Errorf("%q: %+v", data, p)
				}
			}
			return
		}
		names := map[string]bool{}
		for _, d := range definitions {
			if names[d.Configuration.JobName] || d.Module == "" || d.Line < 1 {
				t.Errorf("%q: %+v", data, d)
			}
			names[d.Configuration.JobName] = true
			if err := d.Configuration.Validate(); err != nil {
				t.Errorf("%q: %v", data, err)
			}
			back, warnings, err := jobconfig.Parse(d.Configuration.YAML())
			if err != nil || len(warnings) > 0 || !reflect.DeepEqual(back, d.Configuration) {
				t.Errorf("%q: %+v\nwritten %q\nread %+v, %v, %v", data, d.Configuration, d.Configuration.YAML(), back, warnings, err)
			}
		}
	})
}

// The examples that come with the host define jobs.
func TestExamples(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../../plugins/examples/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Error("there are no examples")
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		definitions, err := Parse(file, data)
		if err != nil {
			t.Error(err)
		}
		for _, d := range definitions {
			t.Logf("%s: job %s, %d items, module %s", file, d.Configuration.JobName, d.Configuration.ShardingTotalCount, d.Module)
		}
	}
}

// TestDocumentedExamples: the examples of docs/definitions.md are jobs.
func TestDocumentedExamples(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../../docs/definitions.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(data), "```yaml\n")
	if len(blocks) < 5 {
		t.Errorf("only %d examples", len(blocks)-1)
	}
	for _, block := range blocks[1:] {
		example, _, _ := strings.Cut(block, "```")
		_, err := Parse("report.yaml", []byte(example))
		if first, _, _ := strings.Cut(example, "\n"); strings.HasSuffix(first, DefaultsFile) {
			_, err = ParseShared(DefaultsFile, []byte(example))
		}
		if err != nil {
			t.Errorf("%s%v", example, err)
		}
	}
}

// A file that is no definition, reached by whatever mistake, is not read out in
// messages.
func TestMessagesKeepSecrets(t *testing.T) {
	t.Parallel()
	for name, data := range map[string]string{
		"a word":          "hunter2\n",
		"a line":          "password hunter2",
		"key and value":   "password: hunter2\n",
		"shell":           "export PASSWORD='hunter2'\nexport USER=x\n",
		"shadow":          "root:$6$hunter2:19000:0:99999:7:::\ndaemon:*:hunter2:0:99999:7:::\n",
		"colon in value":  "url: https://x:hunter2 : y\n",
		"own character":   "token: @hunter2\n",
		"alias":           "token: *hunter2\n",
		"percent":         "- %hunter2\n",
		"open quote":      "token: \"hunter2\nuser: x\n",
		"open list":       "token: [hunter2\nuser: x\n",
		"list":            "- hunter2\n- hunter2b\n",
		"key file":        "-----BEGIN OPENSSH PRIVATE KEY-----\nhunter2\n-----END OPENSSH PRIVATE KEY-----\n",
		"json":            "{\"private_key\": \"hunter2\", \"user\": 1}",
		"ini":             "[default]\naws_secret_access_key = hunter2\n",
		"tag":             "!hunter2\n",
		"tag of a value":  "token: !hunter2 x\n",
		"documents":       "--- hunter2\n--- hunter2\n",
		"control":         "hunter2\x01",
		"not UTF-8":       "hunter2\xff",
		"tab":             "\ttoken: hunter2\n",
		"nested":          "token:\n  deep: hunter2\n   deeper: hunter2\n",
		"beyond the mend": "a: hunter2: x\nb: @hunter2\n\tc: hunter2\n",
	} {
		_, err := Parse("x.yaml", []byte(data))
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: got %v", name, err)
		}
	}
	_, err := Parse("x.yaml", []byte("shardingTotalCount: 1\ntimeout: "+strings.Repeat("x", 200)+"\njobShardingStrategyType: "+strings.Repeat("y", 200)+"\n"))
	if err == nil || strings.Contains(err.Error(), strings.Repeat("x", 41)) || strings.Contains(err.Error(), strings.Repeat("y", 41)) {
		t.Errorf("a long value: got %v", err)
	}
}
