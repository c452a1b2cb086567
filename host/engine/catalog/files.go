package catalog

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/config/calendar"
	"github.com/wasmjob/wasmjob/host/config/definition"
	"github.com/wasmjob/wasmjob/host/config/signature"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// kind is the kind of a file, by its name.
type kind int

const (
	ignored kind = iota
	aModule
	aDefinition
	aSignature // of a module
	aCalendar
	aShared // a folder's defaults
)

// kindOf ignores files that editors, copiers and volumes write beside the others: names that begin with a dot or a hash,
// or do not end like a module's, a definition's or a calendar's.
func kindOf(name string) kind {
	name = path.Base(name)
	if strings.HasPrefix(name, ".") || strings.HasPrefix(name, "#") {
		return ignored
	}
	lower := strings.ToLower(name) // another case is refused: see lookAtFile
	if _, is := calendar.NameOf(lower); is || strings.HasSuffix(lower, oldCalendar) {
		return aCalendar
	}
	if lower == definition.DefaultsFile || lower == oldDefaults {
		return aShared
	}
	switch filepath.Ext(lower) {
	case ".wasm":
		return aModule
	case ".yaml", ".yml":
		return aDefinition
	case signature.Suffix:
		if filepath.Ext(stem(name)) == ".wasm" {
			return aSignature
		}
	}
	return ignored
}

// oldCalendar is the end of a file name that was meant for a calendar, but has the wrong extension.
const oldCalendar = ".calendar.yml"

// oldDefaults is a file name that was meant for defaults, but has the wrong extension.
const oldDefaults = "defaults.yml"

// stem returns the name without its extension.
func stem(name string) string { return strings.TrimSuffix(name, filepath.Ext(name)) }

// stamp distinguishes versions of a file without reading it. No file has the zero stamp.
type stamp struct {
	size     int64
	modified time.Time
	// identity is nil in tests that have no real file.
	identity fs.FileInfo
}

func stampOf(info fs.FileInfo) stamp { return stamp{info.Size(), info.ModTime(), info} }

func (s stamp) none() bool { return s == stamp{} }

func (s stamp) equal(o stamp) bool {
	if s.size != o.size || !s.modified.Equal(o.modified) {
		return false
	}
	if s.identity == nil || o.identity == nil {
		return s.identity == o.identity
	}
	return os.SameFile(s.identity, o.identity)
}

// entry is what a look found for a name.
type entry struct {
	stamp stamp
	// problem says why the file cannot be read; empty if it can be tried.
	problem string
}

// look is the result of one look at a directory.
type look struct {
	// problem says why the directory could not be read; entries is then nil.
	problem string
	entries map[string]entry
	// excess says of which kinds there are too many files, and what is wrong with folders.
	excess []string
	// folders are the directory, ".", and its folders, with slashes.
	folders []string
}

// lookAt lists the modules, definitions, calendars and defaults of a directory and its folders, with slashes. It follows
// symbolic links inside the directory, and treats them like their targets. It follows no link out of the directory: a
// user who may write there must not make the host read files that only the host may read.
func lookAt(dir string) look { return lookFor(dir, mostFiles, nil, nil) }

// lookFor is lookAt with at most most files of a kind, including those in first. enters says which folders are read; nil
// means all.
func lookFor(dir string, most int, first map[string]bool, enters func(folder string) bool) look {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return look{problem: "cannot be read: " + plain(err).Error()}
	}
	defer root.Close() // read only: nothing is lost if that fails
	names, l, err := list(root, most, first, enters)
	if err != nil {
		return look{problem: "cannot be read: " + plain(err).Error()}
	}
	l.entries = make(map[string]entry)
	for name, hidden := range names {
		if hidden {
			l.entries[name] = entry{problem: unshown}
		} else if e, ok := lookAtFile(root, name); ok {
			l.entries[name] = e
		}
	}
	return l
}

// unshown is the problem of a file whose name could be taken for other lines, or for terminal commands, when it is
// printed.
const unshown = "has a name with a line break, or with another character that cannot be shown: rename it"

// shownName returns a file's name as one printable line.
func shownName(name string) string {
	return strings.NewReplacer("\n", `\n`, "\t", `\t`).Replace(words.Printable(name))
}

// lookAtFile returns false if there is no such file, or no longer.
func lookAtFile(root *os.Root, name string) (entry, bool) {
	if ext := filepath.Ext(name); ext != strings.ToLower(ext) {
		return entry{problem: fmt.Sprintf("ends in %s, expected %s: rename it", ext, strings.ToLower(ext))}, true
	}
	if strings.HasSuffix(name, oldCalendar) || path.Base(name) == oldDefaults {
		return entry{problem: "ends in .yml, expected .yaml: rename it"}, true
	}
	info, err := root.Stat(name)
	if err == nil {
		if t := info.Mode().Type(); t != 0 {
			return entry{problem: fmt.Sprintf("is %s, expected a regular file", typeName(t))}, true
		}
		return entry{stamp: stampOf(info)}, true
	}
	if errors.Is(err, fs.ErrNotExist) {
		target, err := root.Readlink(name)
		if err != nil {
			return entry{}, false
		}
		return entry{problem: fmt.Sprintf("is a symbolic link to %s, which does not exist", shownName(target))}, true
	}
	return entry{problem: unreadable(root, name, err)}, true
}

// leadsOut is the problem of a link that is not followed.
const leadsOut = "is a symbolic link that leads out of the plugins directory; expected a file in it, or a relative link to one"

// unreadable says why a name cannot be opened. A link that leads to an existing file, but cannot be opened inside the
// directory, leads out of it: package os has no error for that.
func unreadable(root *os.Root, name string, err error) string {
	if _, inside := root.Readlink(name); inside == nil {
		if _, outside := os.Stat(filepath.Join(root.Name(), name)); outside == nil {
			return leadsOut
		}
	}
	return "cannot be read: " + plain(err).Error()
}

func typeName(t fs.FileMode) string {
	switch {
	case t&fs.ModeDir != 0:
		return "a directory"
	case t&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case t&fs.ModeSocket != 0:
		return "a socket"
	case t&fs.ModeDevice != 0:
		return "a device"
	}
	return "a special file"
}

// plain removes the operation and the path from an error, because the refusal already names the file.
func plain(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// content is the result of reading a file.
type content struct {
	// busy says that the file was replaced since the look, or changed while it was read; stamp is the newest one.
	busy  bool
	stamp stamp
	// failed says that the file could not be read, for a reason in problems that may pass.
	failed   bool
	problems complaints
	// digest is set unless busy or failed.
	digest string
	docs   []definition.Definition // of a definition without problems, if its digest was not known
	shared *definition.Shared      // of a file of defaults, likewise
	under  string                  // the defaults that a definition was read with: their key
	// calendar is the days of a calendar without problems, if its digest was not known.
	calendar *daysOf
}

// readFile reads the file that a look found with the stamp. Of a module, and of a definition with a known digest, it
// returns only the digest. with are the defaults of a definition.
func readFile(dir, name string, k kind, seen stamp, parse parser, with under, known ...string) content {
	var keep strings.Builder
	limit, sink := int64(abi.MaxModuleSize), io.Discard
	switch k {
	case aDefinition, aShared:
		limit, sink = definition.MaxSize, &keep
	case aSignature:
		limit = signature.MaxSize
	case aCalendar:
		limit, sink = calendar.MaxSize, &keep
	}
	c := digestFile(dir, name, seen, limit, sink)
	c.under = with.key
	if (k != aDefinition && k != aCalendar && k != aShared) || c.busy || c.failed || c.problems.Len() > 0 || slices.Contains(known, c.digest) {
		return c
	}
	if k == aCalendar {
		c.calendar, c.problems = readCalendar(name, keep.String())
		return c
	}
	if k == aShared {
		shared, err := definition.ParseShared(name, []byte(keep.String()))
		c.shared, c.problems = shared, complaintsOf(err)
		return c
	}
	if with.problem != "" {
		c.problems = about(with.problem)
		return c
	}
	docs, problems := parse(name, []byte(keep.String()), with.shared)
	if len(docs) == 0 && problems.Len() == 0 {
		problems = about("defines no job (delete the file to remove its jobs)")
	}
	if problems.Len() > 0 {
		c.problems = problems
	} else {
		c.docs = docs
	}
	return c
}

// digestFile computes the digest of a file, and copies the file to sink.
func digestFile(dir, name string, seen stamp, limit int64, sink io.Writer) content {
	fail := func(err error) content {
		return content{failed: true, problems: about("cannot be read: " + plain(err).Error())}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fail(err)
	}
	defer root.Close() // read only: nothing is lost if that fails
	// Without O_NONBLOCK, a pipe that has replaced the file would block this process.
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return content{busy: true}
	}
	if err != nil {
		return content{failed: true, problems: about(unreadable(root, name, err))}
	}
	defer f.Close() // read only: nothing is lost if that fails
	info, err := f.Stat()
	if err != nil {
		return fail(err)
	}
	before := stampOf(info)
	if !before.equal(seen) {
		return content{busy: true, stamp: before}
	}
	if info.Size() > limit {
		return content{stamp: before, problems: about(fmt.Sprintf("is %d bytes long, the limit is %d", info.Size(), limit))}
	}
	if info.Size() == 0 {
		return content{stamp: before, problems: about("is empty")}
	}
	sum := sha256.New()
	// The buffer is as large as the file if the file is small, because there may be ten thousand of them.
	n, err := io.Copy(io.MultiWriter(sum, sink), io.LimitReader(f, before.size+1))
	if err != nil {
		return fail(err)
	}
	if info, err = f.Stat(); err != nil {
		return fail(err)
	}
	after := stampOf(info)
	if !after.equal(before) || n != after.size {
		return content{busy: true, stamp: after}
	}
	return content{stamp: after, digest: hex.EncodeToString(sum.Sum(nil))}
}
