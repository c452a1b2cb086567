package grants

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/wasmjob/wasmjob/host/config/fields"
	"github.com/wasmjob/wasmjob/host/config/ownership"
)

const (
	// MaxSize is the largest file of grants, configuration or key, in bytes.
	MaxSize = 1 << 20
	// maxFiles bounds the files of a directory.
	maxFiles = 1000
)

// Error is what is wrong with the files; there is at least one problem.
type Error struct {
	fields.Problems

	files []string // that were read, or would have been
}

// Read reads the grants of a file, or of all *.yaml and *.yml files of a directory in the order of their names,
// as one. It is all or nothing: the error, an [*Error], has the first problems of all files, and the number of
// the others.
func Read(path string) (*Set, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, &Error{Problems: fields.Problems{{File: path, Message: "cannot be read: " + reason(err)}}}
	}
	names := []string{path}
	if info.IsDir() {
		if err := ownership.Self().Check(path, info, ownership.Settings); err != nil {
			return nil, &Error{Problems: fields.Problems{{File: path, Message: err.Error()}}}
		}
		if names, err = filesOf(path); err != nil {
			return nil, &Error{Problems: fields.Problems{{File: path, Message: err.Error()}}}
		}
	}
	r := &reader{open: readFile, contents: sha256.New()}
	for _, name := range names {
		data, err := r.read(name)
		if err != nil {
			r.problems.Add(fields.Problem{File: name, Message: err.Error()})
			continue
		}
		r.parse(name, data)
	}
	return r.set()
}

// filesOf lists the files of grants in a directory, without files of editors and volumes, as in the plugins
// directory.
func filesOf(dir string) ([]string, error) {
	list, err := os.ReadDir(dir) // by name
	if err != nil {
		return nil, errors.New("cannot be read: " + reason(err))
	}
	var names []string
	for _, d := range list {
		ext := filepath.Ext(d.Name())
		if (ext == ".yaml" || ext == ".yml") && !strings.HasPrefix(d.Name(), ".") && !strings.HasPrefix(d.Name(), "#") {
			names = append(names, filepath.Join(dir, d.Name()))
		}
	}
	switch {
	case len(names) == 0:
		return nil, errors.New("the directory has no *.yaml, expected at least one file; a file with \"grants: []\" grants nothing")
	case len(names) > maxFiles:
		return nil, fmt.Errorf("the directory has %d files, expected at most %d", len(names), maxFiles)
	}
	return names, nil
}

// readFile reads a regular file of at most MaxSize bytes.
func readFile(name string) ([]byte, error) {
	data, info, err := fields.ReadFile(name, MaxSize)
	if err != nil {
		return nil, err
	}
	return data, ownership.Self().Check(name, info, ownership.Settings)
}

// reason leaves the operation and the path out of an error.
func reason(err error) string {
	var p *fs.PathError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "it does not exist"
	case errors.As(err, &p):
		return p.Err.Error()
	}
	return err.Error()
}

// reader makes a set of files.
type reader struct {
	open     func(name string) ([]byte, error)
	out      Set
	contents hash.Hash       // of all files
	noted    map[string]bool // by the name in out.files
	problems fields.List

	// named has the keys, and given the secrets, of all files; uses are the places that use such a name,
	// checked at the end.
	named map[string]string // place by name
	given map[string]bool
	uses  []use
	// gives has the place that sets a thing for all jobs of a pattern.
	gives map[string]string
	pairs int // of patterns and things in gives
}

// use is a name that another place must define.
type use struct {
	problem fields.Problem
	kind    string // key or secret
	name    string
}

// read reads a file, and notes that it was.
func (r *reader) read(name string) ([]byte, error) {
	data, err := r.open(name)
	r.note(name, data)
	return data, err
}

func (r *reader) note(name string, data []byte) {
	if abs, err := filepath.Abs(name); err == nil {
		name = abs
	}
	if !r.noted[name] {
		if r.noted == nil {
			r.noted = map[string]bool{}
		}
		r.noted[name] = true
		r.out.files = append(r.out.files, name)
	}
	fmt.Fprintf(r.contents, "%s %d\n", name, len(data)) // a hash takes all
	r.contents.Write(data)
}

// set ends the reading.
func (r *reader) set() (*Set, error) {
	r.checkUses()
	if problems := (fields.Problems)(nil); errors.As(r.problems.Sorted(), &problems) {
		return nil, &Error{problems, r.out.files}
	}
	r.out.sum = [sha256.Size]byte(r.contents.Sum(nil))
	return &r.out, nil
}
