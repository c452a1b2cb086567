// Package contexts has the file with contexts of commands: names for the clusters that a
// user works with, each with what reaches it.
//
// It has no secret: of tokens it has the paths of their files.
package contexts

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/wasmjob/wasmjob/host/config/fields"
	"github.com/wasmjob/wasmjob/host/config/filelock"
	"github.com/wasmjob/wasmjob/internal/schema"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

const (
	// Variable names the file, in place of the one in the user's directory.
	Variable = "WASMJOB_CONTEXTS"
	// SystemCA stands for the authorities that the machine knows.
	SystemCA = "system"
	// maxSize bounds the file, in bytes.
	maxSize = 1 << 20
)

// Context reaches a cluster: by one of its hosts, or by its registry.
type Context struct {
	// Admin is the address of a host, TokenFile has the token for it, and CA the
	// authorities of its certificate: a file, or SystemCA.
	Admin     string `json:"admin,omitempty" yaml:"admin,omitempty"`
	TokenFile string `json:"tokenFile,omitempty" yaml:"tokenFile,omitempty"`
	CA        string `json:"ca,omitempty" yaml:"ca,omitempty"`
	// Registry is the address of the registry, in place of a host; Namespace is that in it.
	Registry  string `json:"registry,omitempty" yaml:"registry,omitempty"`
	Namespace string `json:"namespace,omitempty" yaml:"namespace,omitempty"`
}

// Check says what is wrong with a context: the field, and why.
func (c Context) Check() (field, problem string) {
	switch {
	case c.Admin == "" && c.Registry == "":
		return "admin", "is missing, expected the address of a host, or a registry in its place"
	case c.Admin != "" && c.Registry != "":
		return "registry", "found beside admin, expected one of the two: a context asks a host or the registry itself"
	case c.Registry != "" && c.TokenFile != "":
		return "tokenFile", "found beside registry, expected it beside admin: a token is for a host"
	case c.Registry != "" && c.CA != "":
		return "ca", "found beside registry, expected it beside admin: it is for a host's certificate"
	case c.Registry == "" && c.Namespace != "":
		return "namespace", "found beside admin, expected it beside registry: a host has its own"
	}
	return "", ""
}

// Set are the contexts of a user.
type Set struct {
	// Current is the name of the context in use, empty for none.
	Current  string             `json:"current,omitempty" yaml:"current,omitempty"`
	Contexts map[string]Context `json:"contexts" yaml:"contexts,omitempty"`
}

// Names are those of all contexts, ascending.
func (s *Set) Names() []string { return slices.Sorted(maps.Keys(s.Contexts)) }

// Get is a context by its name.
func (s *Set) Get(name string) (Context, error) {
	c, known := s.Contexts[name]
	if known {
		return c, nil
	}
	if len(s.Contexts) == 0 {
		return c, fmt.Errorf("there is no context %q, and no other; 'wasmjob context set NAME --admin ADDRESS' makes one", words.Clip(name))
	}
	return c, fmt.Errorf("there is no context %q%s; 'wasmjob context' lists them", words.Clip(name), words.Suggest(name, s.Names()))
}

var nameForm = regexp.MustCompile(`^[\p{L}\p{N}][\p{L}\p{N}._@-]{0,99}$`)

// CheckName is an error if a context cannot be called so.
func CheckName(name string) error {
	if !nameForm.MatchString(name) {
		return fmt.Errorf("found %q as the name of a context, expected up to 100 letters, digits and . _ @ -, a letter or a digit first", words.Clip(name))
	}
	return nil
}

// Path is where the file is, as the environment has it; empty if the user has no
// directory for it.
func Path(getenv func(string) string) string {
	if name := getenv(Variable); name != "" {
		return name
	}
	config := getenv("XDG_CONFIG_HOME")
	if home := getenv("HOME"); !filepath.IsAbs(config) && filepath.IsAbs(home) {
		config = filepath.Join(home, ".config")
	}
	if !filepath.IsAbs(config) {
		return ""
	}
	return filepath.Join(config, "wasmjob", "contexts.yaml")
}

// Read reads the file; one that does not exist has no contexts.
func Read(path string) (*Set, error) {
	data, _, err := fields.ReadFile(path, maxSize)
	if errors.Is(err, fs.ErrNotExist) {
		return &Set{Contexts: make(map[string]Context)}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s %w", path, err)
	}
	return Parse(path, data)
}

// Parse reads contexts. Errors have the file, the line and the field. Paths are relative
// to the file's directory.
func Parse(name string, data []byte) (*Set, error) {
	f := &fields.File{Name: name}
	root := f.Root(data, "expected contexts", "a mapping with contexts")
	m := f.Fields(root, "", schema.Object{{Name: "current"}, {Name: "contexts"}})
	s := &Set{Contexts: make(map[string]Context)}
	f.Pairs(m["contexts"], "contexts", func(key, value *yaml.Node) {
		if err := CheckName(key.Value); err != nil {
			f.Problem(key, "contexts", "%s", err)
			return
		}
		s.Contexts[key.Value] = parseContext(f, value, fields.Join("contexts", key.Value))
	})
	if current, given := f.Text(m["current"], "current"); given {
		s.Current = current
		if _, known := s.Contexts[current]; !known && f.Problems.Len() == 0 {
			f.Problem(m["current"], "current", "found %q, expected the name of a context%s", words.Clip(current), words.Suggest(current, s.Names()))
		}
	}
	return s, f.Problems.Sorted()
}

func parseContext(f *fields.File, n *yaml.Node, field string) Context {
	before := f.Problems.Len()
	m := f.Fields(n, field, schema.Object{{Name: "admin"}, {Name: "tokenFile"}, {Name: "ca"}, {Name: "registry"}, {Name: "namespace"}})
	text := func(name string) string {
		found, _ := f.Text(m[name], fields.Join(field, name))
		return found
	}
	c := Context{Admin: text("admin"), CA: text("ca"), Registry: text("registry"), Namespace: text("namespace")}
	if m["tokenFile"] != nil {
		c.TokenFile = f.Path(m["tokenFile"], fields.Join(field, "tokenFile"))
	}
	if c.CA != "" && c.CA != SystemCA {
		c.CA = f.Path(m["ca"], fields.Join(field, "ca"))
	}
	if wrong, problem := c.Check(); wrong != "" && f.Problems.Len() == before {
		at := n
		if m[wrong] != nil {
			at = m[wrong]
		}
		f.Problem(at, fields.Join(field, wrong), "%s", problem)
	}
	return c
}

// heading begins the file.
const heading = "# The clusters that wasmjob's commands know: 'wasmjob context' edits this file.\n"

// Edit changes the file, which is made if it does not exist, in a directory that is made
// as well. The second of two edits at a time fails. The file is replaced as a whole, with
// the mode 0600; comments in it are not kept.
func Edit(path string, change func(*Set) error) error {
	return filelock.Edit(path, func(path string) ([]byte, error) {
		s, err := Read(path)
		if err != nil {
			return nil, err
		}
		if err := change(s); err != nil {
			return nil, err
		}
		var b bytes.Buffer
		b.WriteString(heading)
		e := yaml.NewEncoder(&b)
		e.SetIndent(2)
		if err := errors.Join(e.Encode(s), e.Close()); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if _, err := Parse(path, b.Bytes()); err != nil {
			return nil, fmt.Errorf("nothing is changed: the file would not be taken:\n%w", err)
		}
		return b.Bytes(), nil
	})
}
