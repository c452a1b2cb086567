package definition

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
)

// TestSchemaTakesWhatHostsTake: an editor must not mark what a host accepts; and what
// the schema refuses, a host refuses.
func TestSchemaTakesWhatHostsTake(t *testing.T) {
	t.Parallel()
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(jobconfig.Schema()))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource(jobconfig.SchemaURL, document); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile(jobconfig.SchemaURL)
	if err != nil {
		t.Fatal(err)
	}

	values := []string{
		"x", `""`, "5", "-1", "0", "1.5", "1e3", "010", "true", "False", "yes", "OFF", "5m", "1h30m", "-1s", `"0"`, "+5s", "5 m", "1d", "1d12h", "1.5d", "d", "1d2d", "1h1d", "1d0", "1000000000h", ".5s",
		"64MiB", "64 mib", "1.5GiB", "64", "65536", "8TiB", "dataflow", "SIMPLE", "Process", "fire", "RETRY", "retry, FAIL", "NEVER",
		"[a, b]", "[1, true]", "[RETRY, TRAP]", "[[a]]", "{0: a, 1: b}", "{a: b}", "{a: [b]}", "ROUND_ROBIN", "throw", "a.wasm",
		"io.elasticjob.lite.api.strategy.impl.AverageAllocationJobShardingStrategy",
	}
	accepted, refused := 0, 0
	check := func(name, text string) {
		t.Helper()
		var content any
		if err := yaml.Unmarshal([]byte(text), &content); err != nil {
			t.Fatal(err)
		}
		_, hosts := Parse("x.yaml", []byte(text))
		editors := schema.Validate(asJSON(content))
		switch {
		case hosts == nil && editors != nil:
			t.Errorf("%s: a host takes it, the schema does not: %v\n%s", name, editors, text)
		case hosts == nil:
			accepted++
		case editors != nil:
			refused++
		}
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
			check(s.Name, text)
		}
	}
	check("unknown", "shardingTotalCount: 1\ncorn: x\n")
	check("nothing required", "cron: x\n")
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
			check(file, part)
		}
	}
	if accepted < 200 || refused < 500 {
		t.Errorf("%d accepted by both, %d refused by both: the samples show little", accepted, refused)
	}
}

// asJSON gives mappings keys that are texts, as JSON has them.
func asJSON(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			v[k] = asJSON(e)
		}
	case map[any]any:
		m := make(map[string]any)
		for k, e := range v {
			m[fmt.Sprint(k)] = asJSON(e)
		}
		return m
	case []any:
		for i, e := range v {
			v[i] = asJSON(e)
		}
	}
	return v
}
