package backup

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/internal/text/words"
)

// Format is the version of the file format: the one that this version writes, and the newest that it reads.
const Format = 1

// Backup is the content of a backup file.
type Backup struct {
	Header
	Nodes []Node
	Files []File
}

// Header describes a backup; it is the first line of the file.
type Header struct {
	// Format is 0 if the file is no backup.
	Format int `json:"wasmjobBackup"`
	// Time is when the backup was made, by Version of wasmjob.
	Time    time.Time `json:"time"`
	Version string    `json:"version,omitempty"`
	// Registry names the registry that the backup was made from, in words.
	Registry  string `json:"registry"`
	Namespace string `json:"namespace"`
	// Number is the greatest transaction number that the nodes show, with the base of the namespace.
	Number int64 `json:"number"`
	// Sessions counts the ephemeral nodes, which the backup leaves out.
	Sessions int `json:"sessionNodes,omitempty"`
	// History is where the host keeps its history, and Plugins its directory of definitions and modules; empty
	// if not known. The backup contains neither.
	History string `json:"history,omitempty"`
	Plugins string `json:"plugins,omitempty"`
}

// File is a file of the host: its users, grants or alerts.
type File struct {
	// Kind is users, grants or alerts. Name is the name of the file, or for grants in a directory the name
	// inside it.
	Kind string `json:"file"`
	Name string `json:"name"`
	// Directory: the host reads all files of the directory that Name is in.
	Directory bool   `json:"directory,omitempty"`
	Data      []byte `json:"data"`
}

// Jobs returns the names of the jobs that have nodes in the backup, ascending.
func (b *Backup) Jobs() []string { return jobsOf(b.Nodes) }

// end is the last line.
type end struct {
	Lines *int `json:"lines"`
}

// Write writes a backup: lines of JSON, compressed by gzip. The last line says how many there are, so that a file that was
// cut short is noticed.
func (b *Backup) Write(w io.Writer) error {
	z := gzip.NewWriter(w)
	e := json.NewEncoder(z)
	b.Format = Format
	err := e.Encode(b.Header)
	for _, n := range b.Nodes {
		err = errors.Join(err, e.Encode(n))
	}
	for _, f := range b.Files {
		err = errors.Join(err, e.Encode(f))
	}
	lines := len(b.Nodes) + len(b.Files)
	return errors.Join(err, e.Encode(end{&lines}), z.Close())
}

const (
	// mostLine is the longest line that is read, in bytes: a node has 1 MiB at most, a file 16 MiB.
	mostLine = 32 << 20
	// mostBytes is how much of a file is read at most, uncompressed.
	mostBytes = 8 << 30
)

// ReadFile reads a backup to its end. An error names the line that is wrong.
func ReadFile(r io.Reader) (*Backup, error) {
	z, err := gzip.NewReader(bufio.NewReader(r))
	if err != nil {
		return nil, errors.New("it is no backup: found no data compressed by gzip, expected a file that 'wasmjob registry backup create' made")
	}
	lines := bufio.NewScanner(io.LimitReader(z, mostBytes))
	lines.Buffer(nil, mostLine)
	var b Backup
	for n := 0; lines.Scan(); n++ {
		whole, err := b.line(n, lines.Bytes())
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n+1, err)
		}
		if whole {
			if lines.Scan() {
				return nil, fmt.Errorf("line %d: found a line behind the last one", n+2)
			}
			if err := lines.Err(); err != nil {
				return nil, fmt.Errorf("the file is damaged: %w", err)
			}
			return &b, nil
		}
	}
	if err := lines.Err(); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, fmt.Errorf("the file is damaged: %w", err)
	}
	return nil, fmt.Errorf("the file is cut short: its last line is missing, and %s and %s are there", words.Count(len(b.Nodes), "node"), words.Count(len(b.Files), "file"))
}

// line reads a line; whole is true for the last line.
func (b *Backup) line(n int, text []byte) (whole bool, err error) {
	if n == 0 {
		if err := json.Unmarshal(text, &b.Header); err != nil || b.Format == 0 {
			return false, errors.New("it is no backup: the first line does not say so")
		}
		if b.Format < 0 || b.Format > Format {
			return false, fmt.Errorf("wasmjobBackup: found format %d, expected 1 to %d: a newer version of wasmjob has made it", b.Format, Format)
		}
		return false, nil
	}
	var l struct {
		Path string `json:"path"`
		File
		end
	}
	if err := json.Unmarshal(text, &l); err != nil {
		return false, fmt.Errorf("found no node and no file: %w", err)
	}
	switch {
	case l.Lines != nil:
		if have := len(b.Nodes) + len(b.Files); *l.Lines != have {
			return false, fmt.Errorf("lines: found %d, expected %d: lines are missing", *l.Lines, have)
		}
		return true, nil
	case l.Kind != "":
		return false, b.addFile(l.File)
	}
	return false, b.addNode(Node{l.Path, l.Data})
}

// kinds are the kinds of host files.
var kinds = [...]string{"users", "grants", "alerts"}

func (b *Backup) addFile(f File) error {
	if !slices.Contains(kinds[:], f.Kind) {
		return fmt.Errorf("file: found %q, expected %s", words.Clip(f.Kind), strings.Join(kinds[:], ", "))
	}
	if !filepath.IsLocal(f.Name) || f.Name == "." || strings.ContainsAny(f.Name, `/\`) {
		return fmt.Errorf("name: found %q, expected the name of a file without a directory", words.Clip(f.Name))
	}
	b.Files = append(b.Files, f)
	return nil
}

// addNode adds a node, if it belongs to one namespace and its parent came before it.
func (b *Backup) addNode(n Node) error {
	rest, ours := strings.CutPrefix(n.Path, ".wasmjob")
	if rest == "" && (ours || n.Path == "") {
		b.Nodes = append(b.Nodes, n)
		return nil
	}
	for name := range strings.SplitSeq(strings.TrimPrefix(rest, "/"), "/") {
		if !strings.HasPrefix(rest, "/") || name == "" || name == "." || name == ".." {
			return fmt.Errorf("path: found %q, expected that of a node, such as /job/config or .wasmjob/job/definition", words.Clip(n.Path))
		}
	}
	b.Nodes = append(b.Nodes, n)
	return nil
}
