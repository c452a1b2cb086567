package catalog

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/host/config/calendar"
	"github.com/wasmjob/wasmjob/host/config/definition"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// What a host keeps of a plugins directory, whatever lies in it. A host has 10,000 jobs.
const (
	// mostFiles is how many definitions are read; of modules, signatures and calendars as many each.
	mostFiles = 20_000
	// mostJobs is how many jobs all definitions may define together.
	mostJobs = 50_000
	// mostRefused is how many files are refused with all that is wrong with them. The others
	// are counted.
	mostRefused = 1_000
	// lookTime is how long files are read before what was read is acted on. A file that was
	// begun is read to its end.
	lookTime = 2 * time.Second
	// mostShared is how large a definition may be of which each name defines a job of its own,
	// in bytes.
	mostShared = 64 << 10
)

// list returns the names in a directory that the catalog knows a kind for. Of a kind with more than most it
// takes those of first, and then the first by name; l says how many there are, and has the folders. The value of a name is true if
// it stands for one that cannot be shown.
func list(root *os.Root, most int, first map[string]bool, enters func(folder string) bool) (names map[string]bool, l look, err error) {
	all, counts := make(map[kind][]string), make(map[kind]int)
	cut := func(names []string) []string {
		slices.SortFunc(names, func(a, b string) int { return cmp.Or(compareBool(!first[a], !first[b]), strings.Compare(a, b)) })
		return names[:min(most, len(names))]
	}
	l.folders, l.excess, err = folders(root, enters, func(folder, name string) {
		k := kindOf(name)
		if k == ignored {
			return
		}
		counts[k]++
		if all[k] = append(all[k], path.Join(folder, name)); len(all[k]) >= 2*most {
			all[k] = cut(all[k])
		}
	})
	if err != nil {
		return nil, l, err
	}
	names = make(map[string]bool)
	for _, k := range slices.Sorted(maps.Keys(all)) {
		for _, name := range cut(all[k]) {
			shown := shownName(name)
			if hidden, there := names[shown]; !there || hidden {
				names[shown] = shown != name
			}
		}
		if counts[k] > most {
			l.excess = append(l.excess, fmt.Sprintf("has %d %s, expected at most %d: %d are not read", counts[k], k, most, counts[k]-most))
		}
	}
	return names, l, nil
}

// String is what files of the kind are called together.
func (k kind) String() string {
	return [...]string{"other files", "modules", "definitions", "signatures", "calendars", "files of defaults"}[k]
}

// brief keeps of what is wrong with a file so much as is ever shown, or one thing only.
func brief(all complaints, one bool) complaints {
	var few complaints
	size := 0
	for i, c := range all.Kept() {
		if size += len(c.text); i > 0 && (one || size > words.MaxReasons) {
			few.Count(1)
			continue
		}
		few.Add(c)
	}
	few.Count(all.More())
	return few
}

// explained is how many files have more than one thing that is wrong with them.
func (s state) explained() (n int) {
	for _, f := range s.files {
		if len(f.problems.Kept()) > 1 {
			n++
		}
	}
	return n
}

// limit chooses the refusals that are kept, and counts the others: those of the directory and of the
// grants come first, then files of which an earlier version is in force, then by name.
func (r *report) limit(most int, dir string) {
	if len(r.complaints) <= most {
		return
	}
	rank := func(name string) int {
		switch {
		case name == dir || name == "grants":
			return 0
		case r.kept[name]:
			return 1
		}
		return 2
	}
	names := slices.SortedFunc(maps.Keys(r.complaints), func(a, b string) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), strings.Compare(a, b))
	})
	for _, name := range names[most:] {
		delete(r.complaints, name)
	}
	r.add(dir, about(fmt.Sprintf("%d more files in it are refused, expected at most %d: why is kept of these only", len(names)-most, most)))
}

// order puts versions that were not read before those that are only read again, then definitions that jobs are in force of,
// then what costs least. A file of defaults comes right before the first definition that is read with it: what lies in other
// folders does not wait for it.
func (s state) order(names []string) {
	places := make(map[string]place, len(names))
	shared := make(map[string]place) // of files of defaults: that of the first definition
	for _, name := range names {
		places[name] = s.place(name)
		if kindOf(name) != aDefinition {
			continue
		}
		for _, folder := range above(name) {
			at := path.Join(folder, definition.DefaultsFile)
			if first, known := shared[at]; !known || places[name].compare(first) < 0 {
				shared[at] = places[name]
			}
		}
	}
	for name := range places {
		if first, is := shared[name]; is {
			places[name] = first
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(places[a].compare(places[b]), compareBool(kindOf(a) != aShared, kindOf(b) != aShared), strings.Compare(a, b))
	})
}

// place is where a file comes when files are read.
type place struct {
	again bool // it was read
	new   bool // no job of it is in force
	cost  int64
}

func (p place) compare(q place) int {
	return cmp.Or(compareBool(p.again, q.again), compareBool(p.new, q.new), cmp.Compare(p.cost, q.cost))
}

// place is that of a file by itself. A definition costs what its defaults cost, too.
func (s state) place(name string) place {
	f := s.files[name]
	p := place{again: !f.read.none(), new: len(f.docs) == 0 && !s.past.files[name], cost: costOf(name, f.stamp.size)}
	if kindOf(name) == aDefinition {
		for _, folder := range above(name) {
			at := path.Join(folder, definition.DefaultsFile)
			p.cost += costOf(at, s.files[at].stamp.size)
		}
	}
	return p
}

// costOf is how long it takes to read a file, in bytes of a module that take as long. YAML takes about 64 times as long
// as a module of its size; the rules of an iCalendar file take long however small it is.
func costOf(name string, size int64) int64 {
	switch kindOf(name) {
	case aDefinition, aShared:
		return size * 64
	case aCalendar:
		if strings.HasSuffix(name, calendar.SuffixICS) {
			return size*64 + 32<<20
		}
		return size * 64
	}
	return size
}

// known are the files that a look does not leave out: those that were there before, and before the host started.
func (s state) known() map[string]bool {
	names := maps.Clone(s.past.files)
	if names == nil {
		names = make(map[string]bool, len(s.files))
	}
	for name := range s.files {
		names[name] = true
	}
	return names
}

// reading is one look's reading of files. A file with several names is read once.
type reading struct {
	dir   string
	files map[string]file
	parse parser
	// named are the names under which a version was read, by size and time.
	named map[string][]string
	// contents are what this look has read.
	contents map[string]content
	jobs     int // that the definitions define
}

func newReading(dir string, files map[string]file, parse parser) *reading {
	r := &reading{dir: dir, files: files, parse: parse, named: make(map[string][]string), contents: make(map[string]content)}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f := files[name]
		r.jobs += len(f.docs)
		if !f.read.none() && f.digest != "" {
			r.name(name, f.read)
		}
	}
	return r
}

func (s stamp) key() string { return fmt.Sprint(s.size, " ", s.modified.UnixNano()) }

// mostAlike bounds the files of one size and time among which one is looked for.
const mostAlike = 16

func (r *reading) name(name string, s stamp) {
	if key := s.key(); s.identity != nil && len(r.named[key]) < mostAlike {
		r.named[key] = append(r.named[key], name)
	}
}

// twin is another name of the file that was read, and what that brought; empty if there is none. now says that
// this look has read it. under is the key of the defaults: with others it is another file.
func (r *reading) twin(name string, s stamp, under string) (other string, c content, now bool) {
	for _, other := range r.named[s.key()] {
		if other == name || kindOf(other) != kindOf(name) {
			continue
		}
		if c, now := r.contents[other]; now {
			if c.stamp.equal(s) && c.under == under {
				if f := r.files[other]; c.digest == f.digest {
					c.docs, c.problems = f.docs, f.problems
				}
				return other, c, true
			}
		} else if f := r.files[other]; f.read.equal(s) && f.under == under {
			return other, content{stamp: f.read, digest: f.digest, docs: f.docs, problems: f.problems}, false
		}
	}
	return "", content{}, false
}

// read reads a file, unless that was done under another name.
func (r *reading) read(name string) {
	f := r.files[name]
	k := kindOf(name)
	with := r.under(name, k)
	other, same, now := r.twin(name, f.stamp, with.key)
	again := with.key != f.under // whatever its digest
	var c content
	switch {
	case k == aDefinition && with.unread:
		c = content{busy: true, stamp: f.stamp} // its defaults are still being written
	case now:
		c = content{stamp: same.stamp, digest: same.digest}
	case k == aDefinition && len(f.docs) == 0 && f.digest == "" && other == "" && r.jobs >= mostJobs:
		c = r.tooMany(f.stamp)
	case again:
		c = readFile(r.dir, name, k, f.stamp, r.parse, with, same.digest)
	default:
		c = readFile(r.dir, name, k, f.stamp, r.parse, with, f.digest, same.digest)
	}
	if other != "" && k == aDefinition && c.digest != "" && c.digest == same.digest && (c.digest != f.digest || again) {
		switch {
		case same.problems.Len() > 0:
			c.problems = same.problems
		case len(same.docs) == 1 && f.stamp.size <= mostShared:
			c = readFile(r.dir, name, k, f.stamp, r.parse, with)
		default:
			c = content{stamp: c.stamp, problems: about(fmt.Sprintf("is another name of the file %s, which defines its jobs; expected a file of its own", other))}
		}
	}
	if more := len(c.docs) - len(f.docs); more > 0 && r.jobs+more > mostJobs {
		c = r.tooMany(c.stamp)
	} else if len(c.docs) > 0 {
		r.jobs += more
	}
	c.under = with.key // also of what was refused without a look at its jobs
	r.contents[name] = c
	if other == "" && c.digest != "" {
		r.name(name, c.stamp)
	}
}

// under are the defaults of a definition, with what this look has read of them.
func (r *reading) under(name string, k kind) under {
	if k != aDefinition {
		return under{}
	}
	files := make(map[string]file)
	for _, folder := range above(name) {
		at := path.Join(folder, definition.DefaultsFile)
		f, there := r.files[at]
		if !there {
			continue
		}
		if c, read := r.contents[at]; read {
			f = f.with(c)
		}
		files[at] = f
	}
	return state{files: files}.under(name)
}

func (r *reading) tooMany(s stamp) content {
	return content{stamp: s, problems: about(fmt.Sprintf("defines more jobs than there is room for: all definitions define %d, expected at most %d", r.jobs, mostJobs))}
}
