package catalog

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/config/builtin"
	"github.com/wasmjob/wasmjob/host/config/calendar"
	"github.com/wasmjob/wasmjob/host/config/definition"
	"github.com/wasmjob/wasmjob/host/config/timetable"
	"github.com/wasmjob/wasmjob/host/sandbox/wasm"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// Finding is one thing that is wrong with a file.
type Finding struct {
	// File is a path as it was given, or with its directory as it was given.
	File string `json:"file"`
	// Line and Column begin with 1; they are 0 if they are not known, or if
	// the problem is the file.
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Problem string `json:"problem"`
	// Warning: a host takes the file, but it will not do what is expected.
	Warning bool `json:"warning,omitempty"`
	// last comes after the others of the file.
	last bool
}

// compareBool has false come first.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// String is FILE:LINE:COLUMN: PROBLEM, as far as they are known.
func (f Finding) String() string {
	place := f.File
	for _, n := range []int{f.Line, f.Column} {
		if n > 0 {
			place += fmt.Sprintf(":%d", n)
		}
	}
	if f.Warning {
		place += ": warning"
	}
	return place + ": " + f.Problem
}

// Check judges files as a host would that was started on them, and returns all
// problems, by file; none if everything would be taken. A path is a plugins
// directory, a definition (which is checked with the modules that it names) or
// a module. A directory with neither is a problem, though a host would wait for
// files there: it is most likely not the one that was meant. Directories that a host would mount for its jobs are not looked
// at. Of the options it uses Runtime, Ceilings, Workers, Placement and Granted. If ctx ends early, the last finding says so.
func Check(ctx context.Context, o Options, paths []string) []Finding {
	o.Mounts = nil
	o = placed(o)
	return check(ctx, loaderOf(o), parseWithin(o.Ceilings), o.Placement, paths)
}

func check(ctx context.Context, load loader, parse parser, placement Placement, paths []string) []Finding {
	var findings []Finding
	dirs := make(map[string]map[string]bool) // files by directory; nil is all
	for _, p := range paths {
		info, err := os.Stat(p)
		dir, name := rooted(p)
		_, seen := dirs[dir]
		switch {
		case err != nil:
			findings = append(findings, Finding{File: p, Problem: "cannot be read: " + plain(err).Error()})
		case info.IsDir():
			dirs[filepath.Clean(p)] = nil
		case kindOf(name) == ignored:
			findings = append(findings, Finding{File: p, Problem: "is not named as a module (NAME.wasm), a definition (NAME.yaml) or a calendar (NAME.calendar.yaml, NAME.ics) is"})
		case !seen:
			dirs[dir] = map[string]bool{name: true}
		case dirs[dir] != nil:
			dirs[dir][name] = true
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(dirs)) {
		c := &Catalog{dir: dir, load: load, parse: parse, placement: placement, log: zap.NewNop(), now: time.Now}
		findings = append(findings, c.check(ctx, dirs[dir])...)
	}
	if err := ctx.Err(); err != nil {
		findings = append(findings, Finding{File: ".", Problem: fmt.Sprintf("not everything was checked: %v", err)})
	}
	return findings
}

// check judges the named files of the directory; without names, all.
func (c *Catalog) check(ctx context.Context, names map[string]bool) []Finding {
	var enters func(string) bool
	if names != nil { // no other folders than those of the files: they may be anywhere
		enters = func(folder string) bool {
			for name := range names {
				if strings.HasPrefix(name, folder+"/") {
					return true
				}
			}
			return false
		}
	}
	l := lookFor(c.dir, mostFiles, names, enters)
	if l.problem != "" {
		return []Finding{{File: c.dir, Problem: l.problem}}
	}
	if names == nil && len(l.entries) == 0 {
		return []Finding{{File: c.dir, Problem: "has neither definitions (NAME.yaml) nor modules (NAME.wasm)"}}
	}
	contents := make(map[string]content)
	shared := state{files: make(map[string]file)} // the defaults
	read := func(name string) {
		if e := l.entries[name]; e.problem == "" {
			with := under{}
			if kindOf(name) == aDefinition {
				with = shared.under(name)
			}
			contents[name] = readFile(c.dir, name, kindOf(name), e.stamp, c.parse, with)
			if contents[name].busy {
				contents[name] = content{failed: true, problems: about("is still being written")}
			}
		}
	}
	for name := range l.entries {
		if kindOf(name) == aShared {
			read(name)
			shared.files[name] = file{}.with(contents[name])
		}
	}
	for name := range l.entries {
		if kindOf(name) != aShared && (names == nil || names[name]) {
			read(name)
		}
	}
	if names != nil {
		asked := maps.Clone(names)
		for file, found := range maps.Clone(contents) {
			for _, folder := range above(file) {
				at := path.Join(folder, definition.DefaultsFile)
				if _, ok := l.entries[at]; ok {
					names[at] = true
				}
			}
			for _, d := range found.docs {
				others := []string{d.Module}
				for _, name := range timetable.Calendars(d.Configuration) {
					for _, folder := range above(file) {
						others = append(others, path.Join(folder, name+calendar.SuffixYAML), path.Join(folder, name+calendar.SuffixICS))
					}
				}
				for _, name := range others {
					if _, ok := l.entries[name]; ok && !names[name] {
						names[name] = true
						read(name)
					}
				}
			}
		}
		maps.DeleteFunc(l.entries, func(name string, _ entry) bool { return !names[name] })
		maps.DeleteFunc(contents, func(name string, _ content) bool { return !names[name] })
		names = asked
	}

	now := time.Now()
	s, _, _ := state{unnamed: names != nil, placement: c.placement, ungranted: true}.look(l, now, 0, true)
	s, _ = s.read(contents, now, 0)
	outcomes := make(map[string]outcome)
	defer func() {
		for _, o := range outcomes {
			if o.compiled != nil {
				o.compiled.close()
			}
		}
	}()
	var findings []Finding
	s, p := s.decide(outcomes, now)
	for len(p.compile) > 0 && ctx.Err() == nil {
		for _, w := range p.compile {
			o := outcomes[w.digest]
			res := c.do(ctx, w, o.compiled, func() {})
			if res.gone {
				res.outcome.problems = []string{"is still being written"}
			}
			if o.trials == nil {
				o.trials = make(map[string]trial)
			}
			maps.Copy(o.trials, res.outcome.trials)
			res.outcome.trials = o.trials
			outcomes[w.digest] = res.outcome
		}
		s, p = s.decide(outcomes, now)
	}
	// Modules that no definition names are compiled for their own sake.
	for _, name := range slices.Sorted(maps.Keys(s.files)) {
		f := s.files[name]
		if _, done := outcomes[f.digest]; kindOf(name) != aModule || name == builtin.HTTP || f.digest == "" || done || ctx.Err() != nil {
			continue
		}
		res := c.do(ctx, want{file: name, digest: f.digest, apart: c.placement.workers}, nil, func() {})
		outcomes[f.digest] = res.outcome
		for _, problem := range res.outcome.problems {
			findings = append(findings, Finding{File: filepath.Join(c.dir, name), Problem: problem})
		}
	}
	for name, all := range p.complaints {
		for _, x := range all.Kept() {
			findings = append(findings, Finding{File: filepath.Join(c.dir, name), Line: x.line, Column: x.column, Problem: x.text})
		}
		if more := all.More(); more > 0 {
			findings = append(findings, Finding{File: filepath.Join(c.dir, name), Problem: words.More(more), last: true})
		}
	}
	findings = append(findings, c.warnings(s, p, now)...)
	slices.SortStableFunc(findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.File, b.File), compareBool(a.last, b.last), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return findings
}

// warnings are about the definitions that are taken, and all modules.
func (c *Catalog) warnings(s state, p plan, now time.Time) []Finding {
	var findings []Finding
	for _, b := range p.jobs {
		for _, w := range b.doc.Warnings(now) {
			findings = append(findings, Finding{File: filepath.Join(c.dir, b.job.File), Line: b.doc.Line, Problem: w, Warning: true})
		}
	}
	for name := range s.files {
		if kindOf(name) != aModule {
			continue
		}
		file, ok := readIn(c.dir, name, abi.MaxModuleSize)
		if !ok {
			continue // a problem, not a warning
		}
		for _, w := range wasm.Warnings(file) {
			findings = append(findings, Finding{File: filepath.Join(c.dir, name), Problem: w, Warning: true})
		}
	}
	return findings
}
