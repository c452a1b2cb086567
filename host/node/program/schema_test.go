package program

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/internal/schema"
	checks "github.com/wasmjob/wasmjob/test/schemas"
)

// TestSchemasArePublished: docs/KIND.schema.json is what 'wasmjob job schema KIND' prints.
func TestSchemasArePublished(t *testing.T) {
	t.Parallel()
	for kind, document := range schemas() {
		file := "../../../docs/" + kind + ".schema.json"
		if *update {
			if err := os.WriteFile(file, document, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if had, err := os.ReadFile(file); err != nil || !bytes.Equal(had, document) {
			t.Errorf("%s is not what the tables of its reader make (%v): go test ./host/node/program -run Schemas -update", file, err)
		}
		runCLI(t, nil, "job", "schema", kind).expect(t, exitOK, `"$id": "`+schema.URL(kind)+`"`)
	}
	runCLI(t, nil, "job", "schema", "grant").expect(t, exitUsage, `did you mean "grants"?`)
}

// TestSchemaOfSettings: an editor must not mark what a host takes.
func TestSchemaOfSettings(t *testing.T) {
	t.Parallel()
	editor := checks.New(t, schemaOfSettings())
	values := []string{"", "5", "0", "-1", "true", "False", "yes", "T", "1", "90s", "1h30m", "2d", "off", "auto", "on", "info", "json", "64MiB", "1GiB", "50%", "0.1", "all", "signer", "P", "[a]", "{a: b}"}
	for _, key := range fileFields(settings(defaults{})).Names() {
		for _, v := range values {
			text := key + ": " + v + "\n"
			_, _, err := load(t, text, nil, []string{"--plugins", "P"})
			if err != nil && !regexp.MustCompile(`FILE:1: (unknown key|`+key+`)`).MatchString(err.Error()) && key != "plugins" {
				continue // the value is well, and something else is not
			}
			editor.Check(t, text, err)
		}
	}
	for _, text := range []string{
		"mounts:\n  job:\n  - {host: P, guest: /x}\n", "mounts: {job: {host: P}}\n", "mounts: {job: [{host: P, guets: /x}]}\n",
		"ceilings:\n- {jobs: a-*, timeout: 1h, maxConcurrency: 5, maxShare: 50%, logLines: off}\n", "ceilings: [{timeout: 1h}]\n", "ceilings: [{jobs: a, tmeout: 1h}]\n", "plugin: x\n",
	} {
		_, _, err := load(t, text, nil, []string{"--plugins", "P"})
		editor.Check(t, text, err)
	}
	if editor.Accepted < 100 || editor.Refused < 100 {
		t.Errorf("%d accepted by both, %d refused by both: the samples show little", editor.Accepted, editor.Refused)
	}
}

// TestFilesHaveTheirSchema: each YAML file of the tree that a host reads begins with the line by which editors
// find its schema, and is taken by it.
func TestFilesHaveTheirSchema(t *testing.T) {
	t.Parallel()
	const root = "../../../"
	all := schemas()
	for pattern, kindOf := range map[string]func(string) string{
		"plugins/examples/*.yaml":       kindOfPlugin,
		"host/node/program/demo/*":      kindOfPlugin,
		"plugins/grants.yaml":           func(string) string { return "grants" },
		"deploy/prometheus/alerts.yaml": func(string) string { return "alerts" },
		"deploy/systemd/wasmjob.yaml":   func(string) string { return "host" },
	} {
		files, err := filepath.Glob(root + pattern)
		if err != nil || len(files) == 0 {
			t.Errorf("%s: no files, %v", pattern, err)
		}
		for _, file := range files {
			if !strings.HasSuffix(file, ".yaml") {
				continue
			}
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			kind := kindOf(file)
			if line := schema.Line(kind); !strings.HasPrefix(string(data), line+"\n") {
				t.Errorf("%s: expected the first line %q", file, line)
			}
			editor := checks.New(t, all[kind])
			for part := range strings.SplitSeq(string(data), "\n---\n") {
				editor.Check(t, part, nil)
			}
		}
	}
}

// kindOfPlugin is the kind of a file in a plugins directory.
func kindOfPlugin(name string) string {
	if strings.HasSuffix(name, ".calendar.yaml") {
		return "calendar"
	}
	if filepath.Base(name) == "defaults.yaml" {
		return "defaults"
	}
	return "job"
}
