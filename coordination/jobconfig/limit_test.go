package jobconfig

import (
	"strings"
	"testing"
)

// TestConcurrency: what is refused of a limit, and why.
func TestConcurrency(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ key, most, problem string }{
		{"db", "2", ""},
		{"db-{shardingParameter}-{jobParameter}", "1000", ""},
		{"db", "", "props.wasm.concurrency.max: is missing beside concurrency.key, expected a number from 1 to 1000"},
		{"", "2", "props.wasm.concurrency.key: is missing beside concurrency.max, expected the name of the limit"},
		{"db", "0", "props.wasm.concurrency.max: is missing"},
		{"db", "1001", "found \"1001\", expected a whole number from 0 to 1000"},
		{"db-{item}", "2", "found {item}, expected {shardingParameter} or {jobParameter}"},
		{"db-{shardingParameter", "2", "expected a name between { and }"},
		{"db\tx", "2", "expected a text without control characters"},
		{strings.Repeat("x", 201), "2", "found 201 bytes, expected at most 200"},
	} {
		c := Configuration{Props: map[string]string{}}
		if tt.key != "" {
			c.Props["wasm.concurrency.key"] = tt.key
		}
		if tt.most != "" {
			c.Props["wasm.concurrency.max"] = tt.most
		}
		g, err := c.Guest()
		if (err == nil) != (tt.problem == "") || (err != nil && !strings.Contains(err.Error(), tt.problem)) {
			t.Errorf("%q, max %q: %v, expected %q", tt.key, tt.most, err, tt.problem)
		}
		if err != nil && g.Concurrency.Key != "" && g.Concurrency.Max == 0 {
			t.Errorf("%q, max %q: half a limit is left: %+v", tt.key, tt.most, g.Concurrency)
		}
	}
	c := Configuration{Misfire: true, Props: map[string]string{"wasm.concurrency.key": "db", "wasm.concurrency.max": "2", "wasm.priority": "2"}}
	if got := strings.Join(c.NotJavas(), " "); got != "concurrency.key concurrency.max priority" {
		t.Errorf("Java hosts do not follow %q", got)
	}
}

// TestRate: what is refused of a rate, and why.
func TestRate(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ key, per, most, problem string }{
		{"api", "1m", "5", ""},
		{"{jobParameter}", "24h", "1000", ""},
		{"api", "1m", "", "props.wasm.rate.max: is missing beside rate.key, expected a number from 1 to 1000"},
		{"api", "", "5", "props.wasm.rate.per: is missing beside rate.key, expected a duration from 1s to 24h0m0s"},
		{"", "1m", "5", "props.wasm.rate.key: is missing beside rate.per and rate.max, expected the name of the rate"},
		{"api", "10ms", "5", "props.wasm.rate.per: found 10ms, expected a duration from 1s to 24h0m0s"},
		{"api", "25h", "5", "wasm.rate.per: found \"25h\""},
		{"api", "1m", "1001", "found \"1001\", expected a whole number from 0 to 1000"},
		{"api-{item}", "1m", "5", "found {item}, expected {shardingParameter} or {jobParameter}"},
	} {
		c := Configuration{Props: map[string]string{}}
		for prop, value := range map[string]string{"wasm.rate.key": tt.key, "wasm.rate.per": tt.per, "wasm.rate.max": tt.most} {
			if value != "" {
				c.Props[prop] = value
			}
		}
		g, err := c.Guest()
		if (err == nil) != (tt.problem == "") || (err != nil && !strings.Contains(err.Error(), tt.problem)) {
			t.Errorf("%q, per %q, max %q: %v, expected %q", tt.key, tt.per, tt.most, err, tt.problem)
		}
		if err != nil && tt.problem[0] == 'p' && g.Rate != (Rate{}) {
			t.Errorf("%q, per %q, max %q: a part of a rate is left: %+v", tt.key, tt.per, tt.most, g.Rate)
		}
	}
}

// TestLimitKey: what a run has stands in for the names.
func TestLimitKey(t *testing.T) {
	t.Parallel()
	for template, want := range map[string]string{
		"db": "db", "db-{shardingParameter}": "db-eu", "{jobParameter}/{shardingParameter}": "{shardingParameter}/eu",
	} {
		if got := LimitKey(template, "eu", "{shardingParameter}"); got != want {
			t.Errorf("%s is %s, expected %s", template, got, want)
		}
	}
	if got := LimitKey("{jobParameter}", "", ""); got != "-" {
		t.Errorf("without a value the key is %q", got)
	}
}
