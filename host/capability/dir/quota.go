package dir

import (
	"io/fs"
	"os"
	"sync"
	"syscall"
)

// Quotas know what the directories hold that jobs write to, over all jobs and runs of
// the process. They are safe for concurrent use.
type Quotas struct {
	mu   sync.Mutex
	dirs map[string]*quota // by path; those in use
}

// NewQuotas makes Quotas.
func NewQuotas() *Quotas { return &Quotas{dirs: map[string]*quota{}} }

// quota is what a directory holds. It is measured when its use begins, and counted as
// long as it lasts.
type quota struct {
	uses int // guarded by Quotas.mu

	mu           sync.Mutex // held across a change, so that two do not both take the last room
	measured     bool
	bytes, files int64
}

func (q *Quotas) use(path string) *quota {
	q.mu.Lock()
	defer q.mu.Unlock()
	d := q.dirs[path]
	if d == nil {
		d = &quota{}
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

// measure counts what is in the directory, once. The caller holds mu.
func (d *quota) measure(root *os.Root) error {
	if d.measured {
		return nil
	}
	err := fs.WalkDir(root.FS(), ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == "." {
			return err
		}
		d.files++
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			d.bytes += info.Size()
		}
		return nil
	})
	d.measured = err == nil
	return err
}

// room is how many of the wanted bytes may be added.
func (d *quota) room(limit, want int64) int64 {
	if limit <= 0 {
		return want
	}
	return max(min(want, limit-d.bytes), 0)
}

// one reports whether one more file may be made.
func (d *quota) one(limit int64) error {
	if limit > 0 && d.files >= limit {
		return syscall.EDQUOT
	}
	return nil
}
