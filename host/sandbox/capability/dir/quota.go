package dir

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"sync"
	"syscall"
)

// Quotas track what the writable directories hold, over all jobs and runs of the process. They are safe for
// concurrent use.
type Quotas struct {
	mu   sync.Mutex
	dirs map[string]*quota // by path; those in use
}

// NewQuotas makes Quotas.
func NewQuotas() *Quotas { return &Quotas{dirs: map[string]*quota{}} }

// quota is the usage of a directory. It is measured on first use, and then counted while the directory is in
// use.
type quota struct {
	uses int // guarded by Quotas.mu

	mu           sync.Mutex // held across a change, so that two changes do not both take the last space
	measured     bool
	bytes, files int64
	open         map[identity]int  // how often a file is open
	nameless     map[identity]bool // unlinked open files: they take space until they are closed
}

// identity identifies a file under all its names.
type identity struct{ device, inode uint64 }

func (q *Quotas) use(path string) *quota {
	q.mu.Lock()
	defer q.mu.Unlock()
	d := q.dirs[path]
	if d == nil {
		d = &quota{open: map[identity]int{}, nameless: map[identity]bool{}}
		q.dirs[path] = d
	}
	d.uses++
	return d
}

func (q *Quotas) end(path string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if d := q.dirs[path]; d != nil {
		if d.uses--; d.uses == 0 {
			delete(q.dirs, path)
		}
	}
}

// used is what the directory holds.
func (d *quota) used() (bytes, files int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.bytes, d.files
}

// measure counts the directory's content, once. The caller holds mu.
func (d *quota) measure(root *os.Root) error {
	if d.measured {
		return nil
	}
	d.bytes, d.files = 0, 0
	if err := d.walk(root, "."); err != nil {
		return err
	}
	d.measured = true
	return nil
}

// walk adds what is in a directory. Others may change it meanwhile.
func (d *quota) walk(root *os.Root, at string) error {
	entries, err := readDir(root, at)
	gone := errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
	if at != "." && gone {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		d.files++
		if e.IsDir() {
			if err := d.walk(root, path.Join(at, e.Name())); err != nil {
				return err
			}
			continue
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			d.bytes += info.Size()
		}
	}
	return nil
}

// free returns the bytes of a file whose last name was removed, unless it is open. The caller holds mu.
func (d *quota) free(info fs.FileInfo) {
	if !info.Mode().IsRegular() || links(info) > 1 {
		return
	}
	if id := identityOf(info); d.open[id] > 0 {
		d.nameless[id] = true
		return
	}
	d.bytes -= info.Size()
}

// room is how many of the wanted bytes may be added.
func (d *quota) room(limit, want int64) int64 {
	if limit <= 0 {
		return want
	}
	return max(min(want, limit-d.bytes), 0)
}

// one returns an error if no more file may be created.
func (d *quota) one(limit int64) error {
	if limit > 0 && d.files >= limit {
		return syscall.EDQUOT
	}
	return nil
}
