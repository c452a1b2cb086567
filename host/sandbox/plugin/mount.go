package plugin

import (
	"io/fs"
	"os"
	"syscall"
)

// mount is a directory of the host as one instance sees it: read-only, and without a way out, since os.Root
// follows a symbolic link only if it stays inside. wazero's own directory mounts would follow it out.
type mount struct {
	in   *instance
	root *os.Root
	open map[*file]struct{}
}

func (in *instance) openMounts() error {
	for _, m := range in.x.settings.Mounts {
		if m.Write {
			continue
		}
		root, err := os.OpenRoot(m.Host)
		if err != nil {
			for _, m := range in.mounts {
				m.close()
			}
			return err
		}
		in.mounts = append(in.mounts, &mount{in: in, root: root, open: map[*file]struct{}{}})
	}
	return nil
}

func (in *instance) countRead(bytes int) {
	in.reads++
	in.readBytes += int64(bytes)
}

func (m *mount) close() {
	for f := range m.open {
		f.f.Close()
	}
	clear(m.open)
	m.root.Close()
}

// Open implements fs.FS. It opens regular files and directories; for anything else (a pipe, a device) it
// returns only the status, because opening alone may block forever or have an effect.
func (m *mount) Open(name string) (fs.File, error) {
	m.in.stopIfEnded()
	if name == "" {
		name = "."
	}
	info, err := m.root.Stat(name)
	if err != nil {
		return nil, err
	}
	if !readable(info) {
		return &status{info}, nil
	}
	// Not blocking, in case it has become a pipe since.
	f, err := m.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if info, err = f.Stat(); err != nil || !readable(info) {
		f.Close()
		if err == nil {
			err = &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
		}
		return nil, err
	}
	opened := &file{m: m, f: f}
	m.open[opened] = struct{}{}
	return opened, nil
}

func readable(info fs.FileInfo) bool { return info.Mode().IsRegular() || info.IsDir() }

// file is the set of operations that wazero may use on an open file, without writing.
type file struct {
	m *mount
	f *os.File
}

func (f *file) Stat() (fs.FileInfo, error) { return f.f.Stat() }
func (f *file) Read(p []byte) (int, error) {
	f.m.in.stopIfEnded()
	n, err := f.f.Read(p[:min(len(p), pieceSize)])
	f.m.in.countRead(n)
	return n, err
}
func (f *file) ReadAt(p []byte, off int64) (n int, err error) {
	for n < len(p) && err == nil { // it may return less only with an error
		f.m.in.stopIfEnded()
		var k int
		k, err = f.f.ReadAt(p[n:min(len(p), n+pieceSize)], off+int64(n))
		n += k
	}
	f.m.in.countRead(n)
	return n, err
}
func (f *file) Seek(off int64, whence int) (int64, error) { return f.f.Seek(off, whence) }
func (f *file) ReadDir(n int) ([]fs.DirEntry, error)      { return f.f.ReadDir(n) }
func (f *file) Close() error {
	delete(f.m.open, f)
	return f.f.Close()
}

// status is a file that only has a status.
type status struct{ info fs.FileInfo }

func (s *status) Stat() (fs.FileInfo, error) { return s.info, nil }
func (s *status) Read([]byte) (int, error)   { return 0, fs.ErrPermission }
func (s *status) Close() error               { return nil }
