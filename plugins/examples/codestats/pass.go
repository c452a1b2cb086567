package main

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/sdk"
)

// pass is what the offset holds: how far a pass got, and its sums so far.
type pass struct {
	root     string
	items    int
	finished bool
	last     string // the file counted last
	done     int64  // files counted
	files    int64  // files that there were when the pass began
	lines    int64
	reported int64 // packages that were logged and dropped to save room
	packages []total
}

// total is what a package has.
type total struct {
	name         string
	files, lines int64
}

func (t total) log() { slog.Debug("package "+t.name, "files", t.files, "lines", t.lines) }

// largest are the packages with the most lines, as a text.
func (p *pass) largest() string {
	const most = 3
	sorted := slices.SortedFunc(slices.Values(p.packages), func(a, b total) int {
		return cmp.Or(cmp.Compare(b.lines, a.lines), cmp.Compare(a.name, b.name))
	})
	var texts []string
	for _, t := range sorted[:min(most, len(sorted))] {
		texts = append(texts, fmt.Sprintf("%s %d", t.name, t.lines))
	}
	return strings.Join(texts, ", ")
}

// add counts a file. Files come in the order of the walk, in which the files
// of a package follow each other, but for ".", whose files lie between.
func (p *pass) add(name string, lines int64) {
	p.last = name
	p.done++
	p.lines += lines
	pkg := packageOf(name)
	for i := range p.packages {
		if p.packages[i].name == pkg {
			p.packages[i].files++
			p.packages[i].lines += lines
			return
		}
	}
	p.packages = append(p.packages, total{pkg, 1, lines})
}

// layout is the first byte of an offset: the version of what follows it.
const layout = 1

var errNoPass = errors.New("no pass is under way")

// load reads the offset; errNoPass if there is none.
func load() (pass, error) {
	b, ok := sdk.Offset()
	if !ok || len(b) == 0 {
		return pass{}, errNoPass
	}
	return decode(b)
}

// save sets the offset. Packages that do not fit any more are logged now, the
// first ones first, instead of at the end of the pass: their sums stay in the
// pass's.
func (p *pass) save() error {
	b := p.encode()
	for len(b) > abi.MaxOffset && len(p.packages) > 0 {
		p.packages[0].log()
		p.packages = p.packages[1:]
		p.reported++
		b = p.encode()
	}
	return sdk.SetOffset(b)
}

// encode writes numbers as uvarints and strings behind their lengths.
func (p *pass) encode() []byte {
	b := []byte{layout}
	number := func(n int64) { b = binary.AppendUvarint(b, uint64(n)) }
	text := func(s string) {
		number(int64(len(s)))
		b = append(b, s...)
	}
	if p.finished {
		number(1)
	} else {
		number(0)
	}
	number(int64(p.items))
	text(p.root)
	text(p.last)
	number(p.done)
	number(p.files)
	number(p.lines)
	number(p.reported)
	number(int64(len(p.packages)))
	for _, t := range p.packages {
		text(t.name)
		number(t.files)
		number(t.lines)
	}
	return b
}

func decode(b []byte) (pass, error) {
	if b[0] != layout {
		return pass{}, fmt.Errorf("layout %d, want %d", b[0], layout)
	}
	b = b[1:]
	short := false
	number := func() int64 {
		n, size := binary.Uvarint(b)
		if size <= 0 || int64(n) < 0 {
			short, b = true, nil
			return 0
		}
		b = b[size:]
		return int64(n)
	}
	text := func() string {
		n := number()
		if n > int64(len(b)) {
			short, b = true, nil
			return ""
		}
		s := string(b[:n])
		b = b[n:]
		return s
	}
	var p pass
	p.finished = number() == 1
	p.items = int(number())
	p.root, p.last = text(), text()
	p.done, p.files, p.lines, p.reported = number(), number(), number(), number()
	for n := number(); n > 0 && !short; n-- {
		p.packages = append(p.packages, total{text(), number(), number()})
	}
	if short || len(b) > 0 {
		return pass{}, errors.New("offset is truncated or has a tail")
	}
	return p, nil
}
