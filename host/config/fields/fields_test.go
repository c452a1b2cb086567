package fields

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/wasmjob/wasmjob/internal/schema"
)

// read reads a file with one field of each kind.
func read(text string) (found string, err error) {
	f := &File{Name: "/etc/x.yaml"}
	root := f.Root([]byte(text), "expected fields", "a mapping of fields")
	m := f.Fields(root, "", schema.Object{{Name: "text"}, {Name: "list"}, {Name: "path"}, {Name: "time"}, {Name: "map"}})
	if t, ok := f.Text(m["text"], "text"); ok {
		found += "text=" + t + ";"
	}
	f.Texts(m["list"], "list", func(_ *yaml.Node, t string) { found += "list=" + t + ";" })
	if p := f.Path(m["path"], "path"); p != "" {
		found += "path=" + p + ";"
	}
	if t := f.Time(m["time"], "time"); !t.IsZero() {
		found += "time=" + t.UTC().Format(time.RFC3339) + ";"
	}
	f.Pairs(m["map"], "map", func(k, v *yaml.Node) { found += k.Value + "=" + v.Value + ";" })
	return found, f.Problems.Sorted()
}

func TestFields(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"text: a": "text=a;", "text: 1": "text=1;", "list: a": "list=a;", "list: [a, b]": "list=a;list=b;", "path: a/../b": "path=/etc/b;", "path: /a//b": "path=/a/b;",
		"time: 2026-11-23": "time=2026-11-23T00:00:00Z;", "time: '2026-11-23T17:00:00+01:00'": "time=2026-11-23T16:00:00Z;", "map: {a: b}": "a=b;", "{}": "",
	} {
		if got, err := read(text); err != nil || got != want {
			t.Errorf("%s: %q, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"":                     "/etc/x.yaml: the file is empty, expected fields",
		"[]":                   "/etc/x.yaml:1:1: found a list, expected a mapping of fields",
		"txt: a":               `unknown field "txt"; did you mean "text"?`,
		"other: a":             `unknown field "other", expected one of text, list, path, time, map`,
		"text: [a]":            "text: found a list, expected a text",
		"text:":                `"text" has no value`,
		"text: ~":              `"text" has no value`,
		"text: a\ntext: b":     `/etc/x.yaml:2:1: "text" is given twice, first in line 1`,
		"text: !!binary aGk":   "found the tag !!binary",
		"text: &a x\npath: *a": "path: found an alias",
		"map: {<<: {a: b}}":    "cannot be merged",
		"[a]: b":               "found a list as the name of a field",
		"list: []":             "list: found an empty list",
		"list: {a: b}":         "list: found a mapping, expected a list",
		"list: [[a]]":          "list: found a list, expected a text",
		"path: ''":             `path: found "", expected a path`,
		"time: never":          `time: found "never", expected an instant`,
		"time: [a]":            "time: found a list",
		"map: a":               `map: found "a", expected a mapping`,
		"a: b\n---\nc: d":      "found 2 YAML documents",
		"a: 'b":                "not YAML",
		"list:\n  - a\n  b: c": "not YAML",
	} {
		if _, err := read(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	var all Problems
	_, err := read("time: x\nother: y\nlist: []")
	if !errors.As(err, &all) || len(all) != 3 || all[0].Line != 1 || all[1].Line != 2 || all[2].Line != 3 || strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("all problems, by place: %v", err)
	}
}

func TestReadFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	name := filepath.Join(dir, "f")
	if err := os.WriteFile(name, []byte("12345"), 0o600); err != nil {
		t.Fatal(err)
	}
	if data, info, err := ReadFile(name, 5); err != nil || string(data) != "12345" || info.Size() != 5 {
		t.Errorf("%q, %v", data, err)
	}
	for at, want := range map[string]string{name: "has more than 4 bytes", dir: "is a directory, expected a file", filepath.Join(dir, "x"): "cannot be read: it does not exist", filepath.Join(name, "x"): "cannot be read: not a directory", "/dev/null": "is no regular file"} {
		if _, _, err := ReadFile(at, 4); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", at, err, want)
		}
	}
	if _, _, err := ReadFile(filepath.Join(dir, "x"), 4); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add("text: a\nlist: [b]\npath: c\ntime: 2026-11-23\nmap: {d: e}")
	f.Add("a: &a [*a]")
	f.Add("? [x]\n: !!str y")
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := read(text); err != nil {
			var p Problems
			if !errors.As(err, &p) || len(p) == 0 {
				t.Fatal(err)
			}
			for _, one := range p {
				if one.Message == "" || one.File == "" || one.Line < 0 {
					t.Errorf("%+v", one)
				}
			}
		}
	})
}
