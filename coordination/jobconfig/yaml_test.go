package jobconfig

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// minimal is what ElasticJob's builder makes of a name, a count and a cron.
const minimalYAML = `cron: 0 0/10 * * * ?
description: ''
disabled: false
failover: false
jobName: ledgerClose
jobParameter: ''
maxTimeDiffSeconds: -1
misfire: true
monitorExecution: true
overwrite: false
reconcileIntervalMinutes: 10
shardingItemParameters: 0=EU,1=US
shardingTotalCount: 2
staticSharding: false
`

func minimalConfiguration() Configuration {
	return Configuration{
		JobName: "ledgerClose", Cron: "0 0/10 * * * ?", ShardingTotalCount: 2, ShardingItemParameters: "0=EU,1=US",
		Misfire: true, MonitorExecution: true, MaxTimeDiffSeconds: -1, ReconcileIntervalMinutes: 10,
	}
}

func TestConfigurationYAML(t *testing.T) {
	t.Parallel()
	if got := string(minimalConfiguration().YAML()); got != minimalYAML {
		t.Errorf("got:\n%s\nexpected:\n%s", got, minimalYAML)
	}
}

// The traced document was written by ElasticJob 3.0.4: every kind of value is
// in it, and it has to come out of reading and writing unchanged.
func TestConfigurationKeepsATracedDocument(t *testing.T) {
	t.Parallel()
	document, err := os.ReadFile("testdata/elasticjob-traced.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c, warnings, err := Parse(document)
	if err != nil || len(warnings) > 0 {
		t.Fatal(warnings, err)
	}
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	if got := string(c.YAML()); got != string(document) {
		t.Errorf("got:\n%s\nexpected:\n%s", got, document)
	}
	label := ""
	expected := minimalConfiguration()
	expected.JobErrorHandlerType = "LOG"
	expected.JobExecutorThreadPoolKey, expected.JobExecutorThreadPoolValue = "jobExecutorServiceHandlerType", "SINGLE_THREAD"
	expected.ExtraConfigurations = c.ExtraConfigurations
	expected.JobListenerTypes = []string{"audit", "yes"}
	expected.Label = &label
	expected.Props = map[string]string{"streaming.process": "true"}
	expected.TimeZone = "GMT+08:00"
	if !reflect.DeepEqual(c, expected) {
		t.Errorf("got %+v, expected %+v", c, expected)
	}
	if !strings.HasPrefix(c.ExtraConfigurations, "- !!org.apache.") || !strings.HasSuffix(c.ExtraConfigurations, "\n  type: RDB\n") {
		t.Errorf("the block is %q", c.ExtraConfigurations)
	}
}

// However the block stands in the document, it is kept.
func TestConfigurationKeepsOtherTracingBlocks(t *testing.T) {
	t.Parallel()
	const head = "jobName: j\nshardingTotalCount: 1\n"
	for name, document := range map[string]string{
		"last":      head + "jobExtraConfigurations:\n- !!a.B\n  c: 007\n  d: '1'\n",
		"no end":    head + "jobExtraConfigurations:\n- !!a.B\n  c: 007\n  d: '1'",
		"indented":  head + "jobExtraConfigurations:\n    - !!a.B\n      c: 007\n      d: '1'\ncron: x\n",
		"flow":      head + "jobExtraConfigurations: [!!a.B {c: 007, d: '1'}]\n",
		"json":      `{"jobName":"j","jobExtraConfigurations":[!!a.B {"c":007,"d":'1'}],"shardingTotalCount":1}`,
		"anchored":  head + "jobExtraConfigurations: &x\n- !!a.B\n  c: 007\n  d: '1'\n",
		"deeper":    " jobName: j\n shardingTotalCount: 1\n jobExtraConfigurations:\n - !!a.B\n   c: 007\n   d: '1'\n",
		"commented": head + "jobExtraConfigurations:  # for Java\n- !!a.B  # yes\n  c: 007\n  d: '1'\n\n# the schedule\ncron: x\n",
	} {
		c, _, err := Parse([]byte(document))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err := c.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		again, _, err := Parse(c.YAML())
		if err != nil || !reflect.DeepEqual(again, c) {
			t.Errorf("%s: got %+v (%v), expected %+v", name, again, err, c)
		}
		for _, part := range []string{"!!a.B", "c: 007", "d: '1'"} {
			if !strings.Contains(strings.ReplaceAll(c.ExtraConfigurations, `"`, ""), strings.ReplaceAll(part, `"`, "")) {
				t.Errorf("%s: %s is missing in %q", name, part, c.ExtraConfigurations)
			}
		}
	}
	_, _, err := Parse([]byte("jobName: &n j\njobExtraConfigurations:\n- *n\n"))
	if err == nil || !strings.Contains(err.Error(), "jobExtraConfigurations: line 3") {
		t.Errorf("an alias to the outside: %v", err)
	}
}

// testdata/elasticjob-texts.json holds what ElasticJob 3.0.4 with SnakeYAML
// 2.2 on a real JVM wrote for texts of all kinds: as values of fields, as
// elements of a list, as keys and values of props.
func TestConfigurationWritesTextsAsJavaDoes(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/elasticjob-texts.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []struct{ Text, YAML string }
	if err := json.Unmarshal(data, &vectors); err != nil {
		t.Fatal(err)
	}
	if len(vectors) < 150 {
		t.Fatalf("only %d vectors", len(vectors))
	}
	for _, v := range vectors {
		c := Configuration{
			JobName: "j", ShardingTotalCount: 2, MaxTimeDiffSeconds: -1, Description: v.Text, JobParameter: v.Text,
			Props: map[string]string{v.Text: v.Text}, JobListenerTypes: []string{v.Text},
		}
		if got := string(c.YAML()); got != v.YAML {
			t.Errorf("%q: got:\n%s\nexpected:\n%s", v.Text, got, v.YAML)
		}
		if strings.ContainsRune(v.Text, 0x85) {
			continue // Java reads a line feed in its place, too
		}
		back, warnings, err := Parse([]byte(v.YAML))
		if err != nil || len(warnings) > 0 || !reflect.DeepEqual(back, c) {
			t.Errorf("%q read back: got %+v, %v, %v", v.Text, back, warnings, err)
		}
	}
}

func TestConfigurationReplacesWhatIsNotUTF8(t *testing.T) {
	t.Parallel()
	c := minimalConfiguration()
	c.Description = "a\xff\xfeb"
	back, _, err := Parse(c.YAML())
	if err != nil || back.Description != "a\uFFFDb" {
		t.Errorf("got %q, %v", back.Description, err)
	}
}

func TestParseDefaults(t *testing.T) {
	t.Parallel()
	c, warnings, err := Parse([]byte("jobName: j\nshardingTotalCount: 3\n"))
	expected := Configuration{JobName: "j", ShardingTotalCount: 3, MaxTimeDiffSeconds: -1}
	if err != nil || warnings != nil || !reflect.DeepEqual(c, expected) {
		t.Errorf("got %+v, %v, %v", c, warnings, err)
	}
}

// The results are those of ElasticJob 3.0.4 reading the same documents.
func TestParseReadsAsJavaDoes(t *testing.T) {
	t.Parallel()
	read := func(t *testing.T, document string) (Configuration, []string) {
		t.Helper()
		c, warnings, err := Parse([]byte(document))
		if err != nil {
			t.Errorf("%q: %v", document, err)
		}
		return c, warnings
	}
	for value, expected := range map[string]bool{
		"yes": true, "'yes'": true, "TrUe": true, "on": true, "true": true, "no": false, "Off": false, "'false'": false,
	} {
		if c, _ := read(t, "misfire: "+value); c.Misfire != expected {
			t.Errorf("misfire: %s: got %v", value, c.Misfire)
		}
	}
	for value, expected := range map[string]int{
		"5": 5, "'5'": 5, "0x10": 16, "'0x10'": 16, "010": 8, "'-010'": -8, "0b11": 3, "1:30": 90, "1_000": 1000, "+5": 5, "-0": 0,
		"-2147483648": -1 << 31, "!!int 7": 7,
	} {
		if c, _ := read(t, "maxTimeDiffSeconds: "+value); c.MaxTimeDiffSeconds != expected {
			t.Errorf("maxTimeDiffSeconds: %s: got %v", value, c.MaxTimeDiffSeconds)
		}
	}
	for value, expected := range map[string]string{
		"null": "", "~": "", "": "", "'null'": "null", "123": "123", "0x10": "0x10", "yes": "yes", "1.50": "1.50",
		"2020-01-01": "2020-01-01", "!!binary AAE=": "\x00\x01", "!!str 3": "3", "a\tb": "a\tb", `"\u4f5c\x41\N"`: "作A\u0085",
		"|\n  a\n  b\n": "a\nb\n", "*x": "anchored",
	} {
		if c, _ := read(t, "jobParameter: &x anchored\ndescription: "+value); c.Description != expected {
			t.Errorf("description: %s: got %q", value, c.Description)
		}
	}
	for value, expected := range map[string]string{
		"1": "1", "1.50": "1.5", "yes": "true", "off": "false", "0x10": "16", "1e10": "1.0E10", "'x'": "x", "1_0": "10", "010": "8",
		".inf": "Infinity", "-.INF": "-Infinity", ".nan": "NaN", "1:30": "90", "12345678901234567890": "12345678901234567890",
		"0.0001": "1.0E-4", "100000000.0": "1.0E8", "123456.7": "123456.7", "-0.0": "-0.0", "1e400": "Infinity", "2e-3": "0.002",
		"0.001": "0.001", "9999999.0": "9999999.0", "1.1e7": "1.1E7", "1:30.5": "90.5", "190:20:30.15": "685230.15", "=": "=",
		"'1.50'": "1.50", "'yes'": "yes",
	} {
		if c, warnings := read(t, "props: {a: "+value+"}"); c.Props["a"] != expected || len(warnings) > 0 {
			t.Errorf("props: {a: %s}: got %q, %v", value, c.Props["a"], warnings)
		}
	}
	if c, _ := read(t, "jobListenerTypes: [a, 1, yes]"); !slices.Equal(c.JobListenerTypes, []string{"a", "1", "yes"}) {
		t.Errorf("got %q", c.JobListenerTypes)
	}
}

func TestParseJSON(t *testing.T) {
	t.Parallel()
	c, warnings, err := Parse([]byte(`{
	"jobName": "j", "shardingTotalCount": 2, "misfire": true, "cron": null,
	"description": "\ud83d\ude00 \\ud83d \\\ud83d\ude00 a\/b", "props": {"a": 1, "b": "x"}, "jobListenerTypes": ["l"]}`))
	expected := Configuration{
		JobName: "j", ShardingTotalCount: 2, Misfire: true, MaxTimeDiffSeconds: -1, Description: `😀 \ud83d \😀 a/b`,
		Props: map[string]string{"a": "1", "b": "x"}, JobListenerTypes: []string{"l"},
	}
	if err != nil || warnings != nil || !reflect.DeepEqual(c, expected) {
		t.Errorf("got %+v, %v, %v", c, warnings, err)
	}
}

func TestParseWarns(t *testing.T) {
	t.Parallel()
	for document, expected := range map[string]string{
		"jobName: j\nnope: 1":       `nope: line 2: unknown key, ignored; a Java host stops working with this document`,
		"jobName: a\njobName: j":    `jobName: line 2: found twice; the later one counts`,
		"props: {a: 1, a: 2}":       `props.a: line 1: found twice; the later one counts`,
		"props: {1: x}":             `props.1: line 1: not a text unless it is quoted; a Java host stops working with this document`,
		"props: {a: 2020-01-01}":    `props.a: line 1: found the time 2020-01-01, kept as it is written; a Java host takes it for a date of its own zone`,
		"props:":                    `props: line 1: found null, read as empty; a Java host stops working with this document`,
		"jobListenerTypes: ~":       `jobListenerTypes: line 1: found null, read as empty; a Java host stops working with this document`,
		"jobExtraConfigurations: ~": `jobExtraConfigurations: line 1: found null, read as empty; a Java host stops working with this document`,
		"jobExecutorServiceHandlerType: A\njobExecutorThreadPoolSizeProviderType: B": `jobExecutorThreadPoolSizeProviderType and jobExecutorServiceHandlerType: found both; no Java host can read this document; jobExecutorThreadPoolSizeProviderType is kept`,
	} {
		_, warnings, err := Parse([]byte(document))
		if err != nil || !slices.Equal(warnings, []string{expected}) {
			t.Errorf("%q: got %q, %v", document, warnings, err)
		}
	}
	for _, document := range []string{
		"jobExecutorServiceHandlerType: A\njobExecutorThreadPoolSizeProviderType: B",
		"jobExecutorThreadPoolSizeProviderType: B\njobExecutorServiceHandlerType: A",
	} {
		c, _, _ := Parse([]byte(document))
		if c.JobExecutorThreadPoolKey != "jobExecutorThreadPoolSizeProviderType" || c.JobExecutorThreadPoolValue != "B" {
			t.Errorf("%q: got %s %s", document, c.JobExecutorThreadPoolKey, c.JobExecutorThreadPoolValue)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for document, expected := range map[string]string{
		"":                                   `not a configuration: found nothing, expected a mapping of keys to values`,
		"# only a comment":                   `not a configuration: found nothing, expected a mapping of keys to values`,
		"null":                               `not a configuration: line 1: found nothing, expected a mapping of keys to values`,
		"ENABLED":                            `not a configuration: line 1: found "ENABLED", expected a mapping of keys to values`,
		"[a]":                                `not a configuration: line 1: found a list, expected a mapping of keys to values`,
		"jobName: j\n---\njobName: k":        `not a configuration: line 2: found a second document, expected one`,
		"jobName: j\n description: a: b":     `not a YAML document: line 2: mapping values are not allowed in this context`,
		"a: *b":                              `not a YAML document: unknown anchor 'b' referenced`,
		"\xff\xff":                           `not a YAML document: invalid leading UTF-8 octet`,
		"misfire: maybe":                     `misfire: line 1: found "maybe", expected true or false`,
		"misfire: 1":                         `misfire: line 1: found "1", expected true or false`,
		"misfire:":                           `misfire: line 1: found nothing, expected true or false`,
		"misfire: [true]":                    `misfire: line 1: found a list, expected true or false`,
		"misfire: !!str true":                `misfire: line 1: found "true", expected true or false`,
		"shardingTotalCount: three":          `shardingTotalCount: line 1: found "three", expected a whole number of 32 bits`,
		"shardingTotalCount: 3000000000":     `shardingTotalCount: line 1: found "3000000000", expected a whole number of 32 bits`,
		"shardingTotalCount: 5.0":            `shardingTotalCount: line 1: found "5.0", expected a whole number of 32 bits`,
		"shardingTotalCount: ' 5'":           `shardingTotalCount: line 1: found " 5", expected a whole number of 32 bits`,
		"shardingTotalCount: 08":             `shardingTotalCount: line 1: found "08", expected a whole number of 32 bits`,
		"shardingTotalCount: {}":             `shardingTotalCount: line 1: found a mapping, expected a whole number of 32 bits`,
		"shardingTotalCount: null":           `shardingTotalCount: line 1: found nothing, expected a whole number of 32 bits`,
		"cron: {a: b}":                       `cron: line 1: found a mapping, expected a text`,
		"cron: !!binary '%'":                 `cron: line 1: found "%", expected a text`,
		"jobListenerTypes: a":                `jobListenerTypes: line 1: found "a", expected a list of texts`,
		"jobListenerTypes: [a, [b]]":         `jobListenerTypes[1]: line 1: found a list, expected a text`,
		"jobListenerTypes: [null]":           `jobListenerTypes[0]: line 1: found nothing, expected a text`,
		"jobExtraConfigurations: a":          `jobExtraConfigurations: line 1: found "a", expected a list`,
		"props: [a]":                         `props: line 1: found a list, expected a mapping of texts to texts`,
		"props: {a: null}":                   `props.a: line 1: found nothing, expected a text or a number`,
		"props: {a: {b: c}}":                 `props.a: line 1: found a mapping, expected a text or a number`,
		"props: {? [a] : b}":                 `props: line 1: found a list, expected a key that is a text`,
		"props: {<<: {a: b}}":                `props: line 1: found "<<", expected the keys themselves, not a merge of mappings`,
		"<<: {cron: x}":                      `<<: line 1: found "<<", expected the keys themselves, not a merge of mappings`,
		"? [a]\n: b":                         `line 1: found a list, expected a key that is a text`,
		"misfire: x\nprops: []\nfailover: 1": "misfire: line 1: found \"x\", expected true or false\nprops: line 2: found a list, expected a mapping of texts to texts\nfailover: line 3: found \"1\", expected true or false",
		"cron: &a [*a]":                      `cron: line 1: found a list, expected a text`,
		strings.Repeat("a", MaxSize+1):       `not a configuration: found 1048577 bytes, expected at most 1048576`,
	} {
		c, _, err := Parse([]byte(document))
		if err == nil || err.Error() != expected {
			t.Errorf("%.60q:\ngot      %v\nexpected %s", document, err, expected)
		}
		if !reflect.DeepEqual(c, Configuration{}) {
			t.Errorf("%.60q: got %+v with an error", document, c)
		}
	}
}

// A billion laughs, and depth without end.
func TestParseBombs(t *testing.T) {
	t.Parallel()
	var laughs strings.Builder
	laughs.WriteString("a0: &a0 [x,x,x,x,x,x,x,x,x]\n")
	for i := range 30 {
		fmt.Fprintf(&laughs, "a%d: &a%d [%s]\n", i+1, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i), 9), ", "))
	}
	laughs.WriteString("jobExtraConfigurations: *a30\nprops: {a: *a30}\njobListenerTypes: *a30\n")
	for name, document := range map[string]string{
		"laughs":   laughs.String(),
		"repeated": "cron: &x " + strings.Repeat("x", MaxSize/2) + "\njobListenerTypes: [" + strings.Repeat("*x, ", 100_000) + "*x]\n",
		"flow":     "cron: " + strings.Repeat("[", MaxSize/2),
		"maps":     "cron: " + strings.Repeat("{a: ", MaxSize/8),
		"block":    "cron:\n" + strings.Repeat("- ", MaxSize/4),
	} {
		if _, _, err := Parse([]byte(document)); err == nil {
			t.Errorf("%s was read", name)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(minimalYAML))
	if traced, err := os.ReadFile("testdata/elasticjob-traced.yaml"); err == nil {
		f.Add(traced)
	}
	f.Add([]byte(`{"jobName":"😀","shardingTotalCount":1,"props":{"a":1.5},"description":"\ud83d\ude00"}`))
	f.Add([]byte("a: &a [*a]\njobExtraConfigurations: *a\nprops: {? a : *a}\n"))
	f.Add([]byte("description: |2-\n    a\n   b\nlabel: >+\n  x\n\njobParameter: \"a\\\n  b\\L\"\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, _, err := Parse(data)
		if err != nil || c.Validate() != nil {
			return
		}
		again, warnings, err := Parse(c.YAML())
		if c.Props == nil && again.Props == nil {
			c.Props, again.Props = map[string]string{}, map[string]string{}
		}
		if c.JobExecutorThreadPoolValue == "" {
			c.JobExecutorThreadPoolKey, again.JobExecutorThreadPoolKey = "", ""
		}
		if err != nil || len(warnings) > 0 || !maps.Equal(again.Props, c.Props) || !reflect.DeepEqual(again, c) {
			t.Errorf("%q\nread as  %+v\nwritten  %q\nread as  %+v, %v, %v", data, c, c.YAML(), again, warnings, err)
		}
	})
}
