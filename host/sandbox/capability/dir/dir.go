// Package dir carries out file operations of guests in directories that they may write to. It runs in the host,
// also for guests of worker processes. No path leads out of a directory (os.Root), only regular files and
// directories are opened or created, and every change checks, just before it is made, whether the item is still
// this host's.
package dir

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/tetratelabs/wazero/experimental/sys"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/config/grants"
	"github.com/wasmjob/wasmjob/host/sandbox/capability"
)

// maxPath is the system's limit of a path, in bytes.
const maxPath = 4 << 10

// maxFiles bounds the files that a run has open at once.
const maxFiles = 256

// Check returns an error that names a missing writable directory.
func Check(granted []grants.Dir) error {
	var missing []error
	for _, g := range granted {
		if !g.Write {
			continue
		}
		info, err := os.Stat(g.Host)
		if err == nil && !info.IsDir() {
			err = fmt.Errorf("%s is not a directory", g.Host)
		}
		if err != nil {
			missing = append(missing, fmt.Errorf("the directory that is granted as %s: %w", g.Guest, err))
		}
	}
	return errors.Join(missing...)
}

// Dirs are the directories of one run, which is used by one goroutine at a time.
type Dirs struct {
	quotas *Quotas
	dirs   []*directory
	open   map[int64]*file
	next   int64
	full   string // the quota that is used up; empty: none
	listed listing
}

// listing is the last listed directory, whose remaining entries the guest may read.
type listing struct {
	dir     *directory
	at      string
	entries []fs.DirEntry // sorted
	next    int64         // how many of them the guest has
}

// directory is a writable directory. It is opened on first use.
type directory struct {
	grants.Dir
	root  *os.Root
	quota *quota
}

// file is an open file.
type file struct {
	*os.File
	dir   *directory
	id    identity
	name  string // as the guest has it
	write bool
}

// New makes the Dirs of a run. The caller ends them with Close.
func New(granted []grants.Dir, quotas *Quotas) *Dirs {
	d := &Dirs{quotas: quotas, open: map[int64]*file{}}
	for _, g := range granted {
		if g.Write {
			d.dirs = append(d.dirs, &directory{Dir: g})
		}
	}
	return d
}

// Close closes what is open.
func (d *Dirs) Close() {
	for _, f := range d.open {
		_ = f.close() // earlier writes have succeeded
	}
	for _, dir := range d.dirs {
		if dir.root != nil {
			dir.root.Close()
			d.quotas.end(dir.Host)
		}
	}
}

// Functions are those of abi.ModuleDir.
func (d *Dirs) Functions() map[string]capability.Function {
	functions := map[string]capability.Function{}
	reads := map[string]func(*capability.Run, *abi.Call) (int64, error){
		"stat": d.stat, "fstat": d.fstat, "read": d.read, "close": d.close, "list": d.list, "open": d.openFile,
	}
	changes := map[string]func(*capability.Run, *abi.Call) (int64, error){
		"write": d.write, "truncate": d.truncate, "sync": d.sync, "mkdir": d.mkdir, "rmdir": d.rmdir, "unlink": d.unlink,
		"rename": d.rename, "utimes": d.utimes,
	}
	add := func(name string, do func(*capability.Run, *abi.Call) (int64, error), changes bool) {
		functions[abi.ModuleDir+"."+name] = func(_ context.Context, r *capability.Run, c *abi.Call) (int64, error) {
			if changes {
				if err := r.MayAct(); err != nil {
					return 0, err
				}
			}
			if name != "write" && slices.ContainsFunc(c.Texts, func(path []byte) bool { return len(path) > maxPath }) {
				return -abi.DirError - int64(syscall.ENAMETOOLONG), nil
			}
			n, err := do(r, c)
			if errno := syscall.Errno(0); errors.As(err, &errno) {
				if errno == syscall.EDQUOT {
					d.refuse(r)
				}
				return -abi.DirError - int64(errno), nil
			}
			return n, plain(err)
		}
	}
	for name, do := range reads {
		add(name, do, false)
	}
	for name, do := range changes {
		add(name, do, true)
	}
	return functions
}

// refuse logs once in a run why the guest gets an I/O error: WASI's error for a quota is lost on the way
// through wazero.
func (d *Dirs) refuse(r *capability.Run) {
	r.Usage.Refused("dir", "quota")
	if d.full != "" {
		return
	}
	var reasons []string
	for _, dir := range d.dirs {
		if dir.quota == nil {
			continue
		}
		bytes, files := dir.quota.used()
		r.Warn("a file cannot be made or grow, which the job sees as an I/O error: the quota of its directory is used up", "directory", dir.Guest,
			"bytes", fmt.Sprintf("%d of %d", bytes, dir.Bytes), "files", fmt.Sprintf("%d of %d", files, dir.Files))
		reasons = append(reasons, fmt.Sprintf("the quota of %s is used up: it has %d of %d bytes and %d of %d files", dir.Guest, bytes, dir.Bytes, files, dir.Files))
	}
	d.full = strings.Join(reasons, "; ")
}

// Full says which quota refused a write in the run, and why; empty if none did.
func (d *Dirs) Full() string { return d.full }

// plain maps errors of package os without an errno to one.
func plain(err error) error {
	f := (*capability.Failure)(nil)
	if err == nil || errors.As(err, &f) {
		return err
	}
	if errors.Is(err, fs.ErrNotExist) {
		return capability.Fail(abi.ErrNotFound, "%v", err)
	}
	return capability.Fail(abi.ErrDenied, "%v", err) // os.Root: the path leads out
}

// at finds a directory, and opens it if need be.
func (d *Dirs) at(c *abi.Call) (*directory, error) {
	n := c.Numbers[0]
	if n < 0 || n >= int64(len(d.dirs)) {
		return nil, syscall.EBADF
	}
	dir := d.dirs[n]
	if dir.root == nil {
		root, err := os.OpenRoot(dir.Host)
		if err != nil {
			return nil, err
		}
		dir.root, dir.quota = root, d.quotas.use(dir.Host)
	}
	return dir, nil
}

func (d *Dirs) file(c *abi.Call) (*file, error) {
	if f := d.open[c.Numbers[0]]; f != nil {
		return f, nil
	}
	return nil, syscall.EBADF
}

// name converts a path for os.Root. wazero adds a leading slash to paths below an opened root directory.
func name(text []byte) string {
	return cmp.Or(strings.TrimLeft(string(text), "/"), ".")
}

// allowed returns why a file must not be opened or written to: it may have been replaced since it was found.
func allowed(info fs.FileInfo, write bool) error {
	switch {
	case info.IsDir():
		return syscall.EISDIR
	case !info.Mode().IsRegular():
		return syscall.EPERM // opening a pipe or a device may block, or have an effect
	case write && links(info) > 1:
		return syscall.EPERM // its other name may be outside
	}
	return nil
}

func (d *Dirs) openFile(r *capability.Run, c *abi.Call) (int64, error) {
	dir, err := d.at(c)
	if err != nil {
		return 0, err
	}
	flags, mode, at := sys.Oflag(c.Numbers[1]), fs.FileMode(c.Numbers[2])&0o666, name(c.Texts[0])
	write := flags&(sys.O_WRONLY|sys.O_RDWR|sys.O_TRUNC|sys.O_CREAT) != 0
	if write {
		if err := r.MayAct(); err != nil {
			return 0, err
		}
	}
	if len(d.open) >= maxFiles {
		return 0, syscall.EMFILE
	}
	f, id, err := dir.find(r, at, flags, mode)
	for range 10 { // another run creates or removes it at the same time
		made := errors.Is(err, fs.ErrExist) && flags&sys.O_EXCL == 0
		if flags&sys.O_CREAT == 0 || (!made && !errors.Is(err, fs.ErrNotExist)) {
			break
		}
		f, id, err = dir.find(r, at, flags, mode)
	}
	if f == nil || err != nil {
		return 0, err
	}
	opened := &file{f, dir, id, path.Join(dir.Guest, at), flags&(sys.O_WRONLY|sys.O_RDWR) != 0}
	if flags&sys.O_TRUNC != 0 {
		if err := opened.resize(r, 0); err != nil {
			_ = opened.close() // nothing was written
			return 0, err
		}
	}
	if opened.write {
		r.Usage.Target("dir", opened.name)
	}
	d.next++
	d.open[d.next] = opened
	return d.next, nil
}

// find opens or creates a file, as the flags say. The result is nil for a directory.
func (dir *directory) find(r *capability.Run, at string, flags sys.Oflag, mode fs.FileMode) (*os.File, identity, error) {
	write := flags&(sys.O_WRONLY|sys.O_RDWR|sys.O_TRUNC|sys.O_CREAT) != 0
	look := dir.root.Stat
	if flags&sys.O_NOFOLLOW != 0 {
		look = dir.root.Lstat
	}
	info, err := look(at)
	switch {
	case err == nil && info.IsDir():
		if write && flags&sys.O_DIRECTORY == 0 {
			return nil, identity{}, syscall.EISDIR
		}
		return nil, identity{}, nil
	case err == nil && flags&sys.O_DIRECTORY != 0:
		return nil, identity{}, syscall.ENOTDIR
	case err == nil && info.Mode()&fs.ModeSymlink != 0:
		return nil, identity{}, syscall.ELOOP
	case err == nil && flags&sys.O_CREAT != 0 && flags&sys.O_EXCL != 0:
		return nil, identity{}, syscall.EEXIST
	case err == nil:
		if err := allowed(info, write); err != nil {
			return nil, identity{}, err
		}
	case !errors.Is(err, fs.ErrNotExist) || flags&sys.O_CREAT == 0:
		return nil, identity{}, err
	}
	return dir.openFile(r, at, flags, mode, err != nil)
}

// openFile opens a file, and makes it if it is not there.
func (dir *directory) openFile(r *capability.Run, at string, flags sys.Oflag, mode fs.FileMode, create bool) (f *os.File, id identity, err error) {
	how := os.O_RDONLY
	if cuts := flags&sys.O_TRUNC != 0; (cuts && flags&sys.O_WRONLY == 0) || flags&sys.O_RDWR != 0 {
		how = os.O_RDWR
	} else if flags&sys.O_WRONLY != 0 {
		how = os.O_WRONLY
	}
	how |= syscall.O_NONBLOCK // in case it has become a pipe since
	q := dir.quota
	if !create {
		q.mu.Lock() // a goroutine that removes the file sees that it is open
		defer q.mu.Unlock()
		f, err := dir.root.OpenFile(at, how, 0)
		return q.opened(f, err, how&(os.O_WRONLY|os.O_RDWR) != 0)
	}
	err = dir.changed(r, 1, func() error {
		f, err = dir.root.OpenFile(at, how|os.O_CREATE|os.O_EXCL, mode|0o200)
		f, id, err = q.opened(f, err, true)
		return err
	})
	return f, id, err
}

// opened counts a file as open, or closes it if it may not be used. The caller holds mu.
func (d *quota) opened(f *os.File, err error, write bool) (*os.File, identity, error) {
	if err != nil {
		return nil, identity{}, err
	}
	info, err := f.Stat()
	if err == nil {
		err = allowed(info, write)
	}
	if err != nil {
		f.Close()
		return nil, identity{}, err
	}
	id := identityOf(info)
	d.open[id]++
	return f, id, nil
}

// close closes the file. The last close of an unlinked file frees its space.
func (f *file) close() error {
	q := f.dir.quota
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.open[f.id]--; q.open[f.id] == 0 {
		delete(q.open, f.id)
		if q.nameless[f.id] {
			delete(q.nameless, f.id)
			if info, err := f.Stat(); err == nil {
				q.bytes -= info.Size()
			}
		}
	}
	return f.Close()
}

func give(c *abi.Call, info fs.FileInfo) (int64, error) {
	if len(c.Buf) < abi.DirStat {
		return 0, syscall.EINVAL
	}
	for i, v := range []uint64{uint64(info.Mode()), links(info), identityOf(info).inode, uint64(info.Size()), uint64(info.ModTime().UnixNano())} {
		binary.LittleEndian.PutUint64(c.Buf[8*i:], v)
	}
	return abi.DirStat, nil
}

func (d *Dirs) stat(_ *capability.Run, c *abi.Call) (int64, error) {
	dir, err := d.at(c)
	if err != nil {
		return 0, err
	}
	info, err := dir.root.Stat(name(c.Texts[0]))
	if err != nil {
		return 0, err
	}
	return give(c, info)
}

func (d *Dirs) fstat(_ *capability.Run, c *abi.Call) (int64, error) {
	f, err := d.file(c)
	if err != nil {
		return 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return give(c, info)
}

func (d *Dirs) read(r *capability.Run, c *abi.Call) (int64, error) {
	f, err := d.file(c)
	if err != nil {
		return 0, err
	}
	n, err := f.ReadAt(c.Buf[:min(len(c.Buf), maxPiece)], c.Numbers[1])
	if n > 0 || errors.Is(err, io.EOF) {
		err = nil
	}
	r.Usage.Add("dir", func(u *abi.OutsideCount) { u.Received += int64(n) })
	return int64(n), err
}

// maxPiece is how much is read or written at once: between two pieces the guest's deadline is checked.
const maxPiece = 1 << 20

func (d *Dirs) write(r *capability.Run, c *abi.Call) (int64, error) {
	f, err := d.writable(c)
	if err != nil {
		return 0, err
	}
	data := c.Texts[0][:min(len(c.Texts[0]), maxPiece)]
	q := f.dir.quota
	q.mu.Lock()
	defer q.mu.Unlock()
	info, err := f.mayChange(r)
	if err != nil {
		return 0, err
	}
	at := c.Numbers[1]
	if at < 0 {
		at = info.Size()
	}
	// Writing beyond the end grows the file, including a gap before the data.
	growth := max(at+int64(len(data))-info.Size(), 0)
	if room := q.room(f.dir.Bytes, growth); room < growth {
		data = data[:max(int64(len(data))-(growth-room), 0)]
		if len(data) == 0 {
			return 0, syscall.EDQUOT
		}
	}
	n, err := f.WriteAt(data, at)
	if after := at + int64(n); after > info.Size() {
		q.bytes += after - info.Size()
	}
	r.Usage.Add("dir", func(u *abi.OutsideCount) { u.Sent += int64(n) })
	if n > 0 {
		err = nil
	}
	return int64(n), err
}

// mayChange returns the file's state before a change, or why the file must not be changed. The caller holds the
// quota's mu.
func (f *file) mayChange(r *capability.Run) (fs.FileInfo, error) {
	info, err := f.Stat()
	if err == nil {
		err = allowed(info, true)
	}
	if err == nil {
		err = f.dir.quota.measure(f.dir.root)
	}
	if err == nil {
		err = r.MayAct() // it has waited for the lock
	}
	return info, err
}

// writable finds a file that was opened to be written to.
func (d *Dirs) writable(c *abi.Call) (*file, error) {
	f, err := d.file(c)
	if err == nil && !f.write {
		err = syscall.EBADF
	}
	return f, err
}

func (d *Dirs) truncate(r *capability.Run, c *abi.Call) (int64, error) {
	f, err := d.writable(c)
	if err != nil {
		return 0, err
	}
	return 0, f.resize(r, c.Numbers[1])
}

// resize cuts a file, or adds zeros to it.
func (f *file) resize(r *capability.Run, size int64) error {
	if size < 0 {
		return syscall.EINVAL
	}
	q := f.dir.quota
	q.mu.Lock()
	defer q.mu.Unlock()
	info, err := f.mayChange(r)
	if err != nil {
		return err
	}
	growth := size - info.Size()
	if growth > 0 && q.room(f.dir.Bytes, growth) < growth {
		return syscall.EDQUOT
	}
	if err := f.Truncate(size); err != nil {
		return err
	}
	q.bytes += growth
	return nil
}

func (d *Dirs) sync(_ *capability.Run, c *abi.Call) (int64, error) {
	f, err := d.file(c)
	if err != nil {
		return 0, err
	}
	return 0, f.Sync()
}

func (d *Dirs) close(_ *capability.Run, c *abi.Call) (int64, error) {
	f, err := d.file(c)
	if err != nil {
		return 0, err
	}
	delete(d.open, c.Numbers[0])
	return 0, f.close()
}

func (d *Dirs) list(_ *capability.Run, c *abi.Call) (int64, error) {
	dir, err := d.at(c)
	if err != nil {
		return 0, err
	}
	at, from := name(c.Texts[0]), min(max(c.Numbers[1], 0), math.MaxInt32)
	l := &d.listed
	if goesOn := from > 0 && from == l.next && dir == l.dir && at == l.at; !goesOn {
		entries, err := readDir(dir.root, at)
		if err != nil {
			return 0, err
		}
		slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
		*l = listing{dir, at, entries, min(from, int64(len(entries)))}
	}
	n := 0
	for _, e := range l.entries[l.next:] {
		letter := "?"
		if e.IsDir() {
			letter = "d"
		} else if e.Type().IsRegular() {
			letter = "-"
		}
		text := letter + e.Name() + "\x00"
		if n+len(text) > len(c.Buf) {
			break
		}
		n += copy(c.Buf[n:], text)
		l.next++
	}
	if n == 0 {
		*l = listing{} // the end
	}
	return int64(n), nil
}

// readDir reads the entries of a directory. It opens nothing else, such as a pipe.
func readDir(root *os.Root, at string) ([]fs.DirEntry, error) {
	f, err := root.OpenFile(at, os.O_RDONLY|onlyDirectory|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close() // read only: nothing is lost if that fails
	return f.ReadDir(-1)
}

func (d *Dirs) mkdir(r *capability.Run, c *abi.Call) (int64, error) {
	dir, err := d.at(c)
	if err != nil {
		return 0, err
	}
	return 0, dir.changed(r, 1, func() error {
		return dir.root.Mkdir(name(c.Texts[0]), fs.FileMode(c.Numbers[1])&0o777|0o700)
	})
}

// changed makes a change that adds files to the directory's count.
func (dir *directory) changed(r *capability.Run, files int64, change func() error) error {
	q := dir.quota
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.measure(dir.root); err != nil {
		return err
	}
	if files > 0 {
		if err := q.one(dir.Files); err != nil {
			return err
		}
	}
	if err := r.MayAct(); err != nil { // it has waited for the lock
		return err
	}
	err := change()
	if err == nil {
		q.files += files
	}
	return err
}

func (d *Dirs) rmdir(r *capability.Run, c *abi.Call) (int64, error) {
	dir, err := d.at(c)
	if err != nil {
		return 0, err
	}
	return 0, dir.changed(r, -1, func() error {
		info, err := dir.root.Lstat(name(c.Texts[0]))
		if err != nil {
			return err
		}
		if !info.IsDir() {
			return syscall.ENOTDIR
		}
		return dir.root.Remove(name(c.Texts[0]))
	})
}

func (d *Dirs) unlink(r *capability.Run, c *abi.Call) (int64, error) {
	dir, err := d.at(c)
	if err != nil {
		return 0, err
	}
	at := name(c.Texts[0])
	r.Usage.Target("dir", path.Join(dir.Guest, at))
	return 0, dir.changed(r, -1, func() error {
		info, err := dir.root.Lstat(at)
		if err != nil {
			return err
		}
		if info.IsDir() {
			return syscall.EISDIR
		}
		if err := dir.root.Remove(at); err != nil {
			return err
		}
		dir.quota.free(info)
		return nil
	})
}

func (d *Dirs) rename(r *capability.Run, c *abi.Call) (int64, error) {
	dir, err := d.at(c)
	if err != nil {
		return 0, err
	}
	from, to := name(c.Texts[0]), name(c.Texts[1])
	if slices.Contains([]string{from, to}, ".") {
		return 0, syscall.EINVAL
	}
	r.Usage.Target("dir", path.Join(dir.Guest, to))
	return 0, dir.changed(r, 0, func() error {
		old, err := dir.root.Lstat(from)
		if err != nil {
			return err
		}
		over, err := dir.root.Lstat(to)
		replaces := err == nil && !os.SameFile(old, over)
		if err := dir.root.Rename(from, to); err != nil {
			return err
		}
		if replaces {
			dir.quota.files--
			dir.quota.free(over)
		}
		return nil
	})
}

func (d *Dirs) utimes(r *capability.Run, c *abi.Call) (int64, error) {
	dir, err := d.at(c)
	if err != nil {
		return 0, err
	}
	at := name(c.Texts[0])
	return 0, dir.changed(r, 0, func() error {
		info, err := dir.root.Stat(at)
		if err == nil && !info.IsDir() {
			err = allowed(info, true)
		}
		if err != nil {
			return err
		}
		return dir.root.Chtimes(at, time.Unix(0, c.Numbers[1]), time.Unix(0, c.Numbers[2]))
	})
}
