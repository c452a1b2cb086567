package definition

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/test/schemas"
)

// TestSchemaTakesWhatHostsTake: an editor must not mark what a host accepts; and what
// the schema refuses, a host refuses.
func TestSchemaTakesWhatHostsTake(t *testing.T) {
	t.Parallel()
	schema := schemas.New(t, jobconfig.Schema())
	values := []string{
		"x", `""`, "5", "-1", "0", "1.5", "1e3", "010", "true", "False", "yes", "OFF", "5m", "1h30m", "-1s", `"0"`, "+5s", "5 m", "1d", "1d12h", "1.5d", "d", "1d2d", "1h1d", "1d0", "1000000000h", ".5s",
		"64MiB", "64 mib", "1.5GiB", "64", "65536", "8TiB", "dataflow", "SIMPLE", "Process", "fire", "RETRY", "retry, FAIL", "NEVER",
		"[a, b]", "[1, true]", "[RETRY, TRAP]", "[[a]]", "{0: a, 1: b}", "{a: b}", "{a: [b]}", "ROUND_ROBIN", "throw", "a.wasm",
		"io.elasticjob.lite.api.strategy.impl.AverageAllocationJobShardingStrategy",
	}
	check := func(text string) {
		t.Helper()
		_, err := Parse("x.yaml", []byte(text))
		schema.Check(t, text, err)
	}
	for _, s := range jobconfig.Settings() {
		total := "shardingTotalCount: 2\n"
		if s.Required {
			total = ""
		}
		for _, v := range values {
			text := total + s.Name + ": " + v + "\n"
			if group, field, nested := strings.Cut(s.Name, "."); nested {
				text = total + group + ":\n  " + field + ": " + v + "\n"
			}
			check(text)
		}
	}
	check("shardingTotalCount: 1\ncorn: x\n")
	check("cron: x\n")
	files, err := filepath.Glob("../../../plugins/examples/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for part := range strings.SplitSeq(string(data), "\n---\n") {
			check(part)
		}
	}
	if schema.Accepted < 200 || schema.Refused < 500 {
		t.Errorf("%d accepted by both, %d refused by both: the samples show little", schema.Accepted, schema.Refused)
	}
}
