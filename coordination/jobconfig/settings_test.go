package jobconfig

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the tables of docs/definitions.md and docs/job.schema.json anew")

// TestSettingsAreDocumented: the tables of docs/definitions.md are the table of settings.
func TestSettingsAreDocumented(t *testing.T) {
	const file = "../../docs/definitions.md"
	had, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := had
	for _, table := range []struct {
		head string
		has  func(Setting) bool
		row  func(Setting) string
	}{
		{"| Field | Type | Default | Meaning |\n| --- | --- | --- | --- |\n", func(s Setting) bool { return s.Key != "" },
			func(s Setting) string {
				return fmt.Sprintf("| `%s` | %s | %s | %s |\n", s.Name, s.written(), s.Default, s.Help)
			}},
		{"| Field | Type | Default | Meaning | Property |\n| --- | --- | --- | --- | --- |\n", func(s Setting) bool { return s.Key == "" },
			func(s Setting) string {
				prop := " "
				if s.Prop != "" {
					prop = " `" + s.Prop + "` "
				}
				return fmt.Sprintf("| `%s` | %s | %s | %s |%s|\n", s.Name, s.written(), s.Default, s.Help, prop)
			}},
	} {
		before, after, found := bytes.Cut(want, []byte(table.head))
		_, rest, ended := bytes.Cut(after, []byte("\n\n"))
		if !found || !ended {
			t.Fatalf("%s has no table %q", file, table.head)
		}
		var rows strings.Builder
		for _, s := range Settings() {
			if table.has(s) {
				rows.WriteString(table.row(s))
			}
		}
		want = []byte(string(before) + table.head + rows.String() + "\n" + string(rest))
	}
	compare(t, file, had, want)
}

// written is the type as the documents have it.
func (s Setting) written() string {
	if s.Type == Word {
		return string(Text)
	}
	return string(s.Type)
}

// TestSchemaIsPublished: docs/job.schema.json is what wasmjob job schema prints.
func TestSchemaIsPublished(t *testing.T) {
	const file = "../../docs/job.schema.json"
	had, err := os.ReadFile(file)
	if err != nil && !*update {
		t.Fatal(err)
	}
	compare(t, file, had, Schema())
}

func compare(t *testing.T, file string, had, want []byte) {
	t.Helper()
	if bytes.Equal(had, want) {
		return
	}
	if !*update {
		t.Fatalf("%s is not what the table of settings makes: go test ./coordination/jobconfig -update", file)
	}
	if err := os.WriteFile(file, want, 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestSettingsHaveOnePlace: no two settings share a name, a key or a property.
func TestSettingsHaveOnePlace(t *testing.T) {
	t.Parallel()
	seen := make(map[string]string)
	for _, s := range Settings() {
		for _, place := range []string{"name " + s.Name, "key " + s.Key, "property " + s.Prop} {
			if strings.HasSuffix(place, " ") {
				continue
			}
			if other, twice := seen[place]; twice {
				t.Errorf("%s is that of %s and of %s", place, other, s.Name)
			}
			seen[place] = s.Name
		}
		if s.Prop != "" && !strings.HasPrefix(s.Prop, PropPrefix) && s.Prop != PropStreamingProcess && s.Only != TypeHTTP { // which has ElasticJob's
			t.Errorf("%s: property %s does not begin with %s", s.Name, s.Prop, PropPrefix)
		}
		if s.Help == "" || s.Default == "" {
			t.Errorf("%s is not described", s.Name)
		}
	}
}
