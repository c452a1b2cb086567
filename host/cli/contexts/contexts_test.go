package contexts

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/wasmjob/wasmjob/host/config/fields"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParse(t *testing.T) {
	t.Parallel()
	s, err := Parse("/home/ann/c.yaml", []byte(`current: prod
contexts:
  prod: {admin: "10.0.0.7:9770", tokenFile: prod.token, ca: system}
  staging: {admin: /run/wasmjob.sock, ca: ca.pem}
  old: {registry: "zookeeper://zk1:2181", namespace: jobs}
`))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]Context{
		"prod":    {Admin: "10.0.0.7:9770", TokenFile: "/home/ann/prod.token", CA: SystemCA},
		"staging": {Admin: "/run/wasmjob.sock", CA: "/home/ann/ca.pem"},
		"old":     {Registry: "zookeeper://zk1:2181", Namespace: "jobs"},
	}
	for name, c := range want {
		if got, err := s.Get(name); got != c || err != nil {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if s.Current != "prod" || len(s.Contexts) != 3 {
		t.Errorf("%+v", s)
	}
	if _, err := s.Get("prd"); err == nil || !strings.Contains(err.Error(), `did you mean "prod"?`) {
		t.Error(err)
	}
}

// TestParse_problems: what is wrong is named with file, line and field.
func TestParse_problems(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"current: prod":                                 `c.yaml:1:10: current: found "prod", expected the name of a context`,
		"contexts: {prod: {admin: a, token: b}}":        `c.yaml:1:29: contexts.prod: unknown field "token"`,
		"contexts: {prod: {}}":                          "contexts.prod.admin: is missing",
		"contexts: {prod: }":                            `"prod" has no value`,
		"contexts:\n  prod:\n    admin: [a]":            "c.yaml:3:12: contexts.prod.admin: found a list, expected a text",
		"contexts: {prod: {admin: a, registry: b}}":     "contexts.prod.registry: found beside admin",
		"contexts: {prod: {registry: b, tokenFile: c}}": "contexts.prod.tokenFile: found beside registry",
		"contexts: {prod: {registry: b, ca: c}}":        "contexts.prod.ca: found beside registry",
		"contexts: {prod: {admin: b, namespace: c}}":    "contexts.prod.namespace: found beside admin",
		"contexts: {'a b': {admin: b}}":                 `found "a b" as the name of a context`,
		"contexts: [a]":                                 "contexts: found a list",
		"context: {a: {admin: b}}":                      `did you mean "contexts"?`,
		"contexts: {a: {admin: b}, a: {admin: c}}":      `"a" is given twice`,
		"[a]":   "found a list, expected a mapping with contexts",
		"a: 'b": "not YAML",
		"current: staging\ncontexts: {prod: {admin: a}, stagign: {admin: b}}": `did you mean "stagign"?`,
	} {
		_, err := Parse("c.yaml", []byte(text))
		var problems fields.Problems
		if !errors.As(err, &problems) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func TestPath(t *testing.T) {
	t.Parallel()
	for want, env := range map[string]map[string]string{
		"x.yaml":                        {Variable: "x.yaml", "HOME": "/home/ann"},
		"/config/wasmjob/contexts.yaml": {"XDG_CONFIG_HOME": "/config", "HOME": "/home/ann"},
		"/home/ann/.config/wasmjob/contexts.yaml": {"XDG_CONFIG_HOME": "relative", "HOME": "/home/ann"},
		"": {"HOME": "relative"},
	} {
		if got := Path(func(name string) string { return env[name] }); got != want {
			t.Errorf("%v: %q, want %q", env, got, want)
		}
	}
}

// TestEdit: what is written is read as the same, by its owner alone; what cannot be is not
// written, and harms nothing.
func TestEdit(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a", "b", "contexts.yaml")
	if s, err := Read(path); err != nil || len(s.Contexts) != 0 {
		t.Fatalf("no file: %+v, %v", s, err)
	}
	c := Context{Admin: "10.0.0.7:9770", TokenFile: "/t", CA: "/ca"}
	set := func(name string, c Context) error {
		return Edit(path, func(s *Set) error {
			s.Contexts[name], s.Current = c, name
			return nil
		})
	}
	if err := set("生产", c); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	s, err := Read(path)
	if err != nil || s.Current != "生产" || s.Contexts["生产"] != c {
		t.Errorf("%+v, %v", s, err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := set("x", Context{}); err == nil || !strings.Contains(err.Error(), "contexts.x.admin: is missing") {
		t.Error(err)
	}
	if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
		t.Errorf("%v: the file became %s", err, after)
	}
	if err := Edit(path, func(*Set) error {
		if err := set("y", c); err == nil || !strings.Contains(err.Error(), "at the moment; try again") {
			t.Errorf("two edits at a time: %v", err)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if err := Edit(path, func(s *Set) error { s.Current, s.Contexts = "", nil; return nil }); err != nil {
		t.Error(err)
	}
	if s, err := Read(path); err != nil || len(s.Contexts) != 0 {
		t.Errorf("the last one removed: %+v, %v", s, err)
	}
	if err := os.WriteFile(path, []byte("contexts: [broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := set("z", c); err == nil || !strings.Contains(err.Error(), path+":1") {
		t.Errorf("a broken file: %v", err)
	}
}

// FuzzParse: no file panics, and contexts that are taken are whole.
func FuzzParse(f *testing.F) {
	f.Add("current: a\ncontexts: {a: {admin: b, tokenFile: c, ca: system}, d: {registry: e, namespace: f}}")
	f.Add("contexts: &a {b: *a}")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse("c.yaml", []byte(text))
		if err != nil {
			return
		}
		for _, name := range s.Names() {
			c, err := s.Get(name)
			if field, problem := c.Check(); err != nil || field != "" || CheckName(name) != nil {
				t.Errorf("%q: %+v, %v, %s %s", name, c, err, field, problem)
			}
		}
		if _, err := s.Get(s.Current); s.Current != "" && err != nil {
			t.Error(err)
		}
	})
}
