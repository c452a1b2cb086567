package grants

import (
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/host/config/fields"
	"github.com/wasmjob/wasmjob/host/config/yamlnode"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// file is a file that is being read.
type file struct {
	*reader
	fields.File
	guests map[string]bool // the directories of the entry that is being read, as guests see them
}

// place is how messages to guests and people name a line.
func (f *file) place(n *yaml.Node) string { return base(f.Name) + ":" + strconv.Itoa(n.Line) }

func (f *file) bool(n *yaml.Node, field string) bool {
	if n == nil {
		return false
	}
	if n.Kind == yaml.ScalarNode {
		switch strings.ToLower(n.Value) {
		case "true", "yes", "on":
			return true
		case "false", "no", "off":
			return false
		}
	}
	f.Problem(n, field, "found %s, expected true or false", yamlnode.Describe(n))
	return false
}

func (f *file) number(n *yaml.Node, field string, most int64) int64 {
	if n == nil {
		return 0
	}
	v, err := strconv.ParseInt(n.Value, 10, 64)
	if n.Kind != yaml.ScalarNode || err != nil || v < 1 || v > most {
		f.Problem(n, field, "found %s, expected a whole number from 1 to %d", yamlnode.Describe(n), most)
		return 0
	}
	return v
}

func (f *file) size(n *yaml.Node, field string, most int64) int64 {
	if n == nil {
		return 0
	}
	v, ok := jobconfig.ParseSize(n.Value)
	if n.Kind != yaml.ScalarNode || !ok || v < 1 || v > most {
		f.Problem(n, field, "found %s, expected a size such as 64MiB, up to %s", yamlnode.Describe(n), jobconfig.ShowSize(most))
		return 0
	}
	return v
}

func (f *file) duration(n *yaml.Node, field string, least, most time.Duration) time.Duration {
	if n == nil {
		return 0
	}
	v, err := time.ParseDuration(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil || v < least || v > most {
		f.Problem(n, field, "found %s, expected a duration from %s to %s, such as 5s", yamlnode.Describe(n), words.Duration(least), words.Duration(most))
		return 0
	}
	return v
}

// path is [fields.File.Path], made absolute.
func (f *file) path(n *yaml.Node, field string) string {
	path := f.Path(n, field)
	if path == "" {
		return ""
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		f.Problem(n, field, "%v", err)
	}
	return abs
}
