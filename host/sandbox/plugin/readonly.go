package plugin

import (
	"embed"
	"io/fs"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/experimental/sys"
	"github.com/tetratelabs/wazero/experimental/sysfs"
)

// files returns the guest's file systems: the mounts, and an empty root directory, without which a Go guest
// reports a path outside all mounts as a bad file number.
func (in *instance) files() wazero.FSConfig {
	config := wazero.NewFSConfig().(sysfs.FSConfig)
	root, written := true, int64(0)
	read := in.mounts
	add := func(f sys.FS, at string) {
		config = config.WithSysFSMount(&countedFS{FS: f, in: in}, at).(sysfs.FSConfig)
	}
	for _, m := range in.x.settings.Mounts {
		root = root && m.Guest != "/"
		if m.Write {
			add(&writable{in: in, number: written, table: directoryFunctions()}, m.Guest)
			written++
			continue
		}
		add(newReadOnly(read[0]), m.Guest)
		read = read[1:]
	}
	if root { // the last: a Go guest's working directory is the first
		add(newReadOnly(embed.FS{}), "/")
	}
	return config.(wazero.FSConfig)
}

// readOnly refuses writes with EROFS. wazero's own file system answers ENOSYS or ENOENT.
type readOnly struct{ sysfs.ReadFS }

func newReadOnly(f fs.FS) *readOnly {
	return &readOnly{sysfs.ReadFS{FS: &sysfs.AdaptFS{FS: f}}}
}

// OpenFile implements [sys.FS].
func (r *readOnly) OpenFile(path string, flag sys.Oflag, perm fs.FileMode) (sys.File, sys.Errno) {
	writes := flag&(sys.O_WRONLY|sys.O_RDWR|sys.O_TRUNC) != 0
	if writes {
		if st, errno := r.FS.Stat(path); errno == 0 && st.Mode.IsDir() {
			return nil, sys.EISDIR
		}
		return nil, sys.EROFS
	}
	f, errno := r.ReadFS.OpenFile(path, flag, perm)
	if errno == sys.ENOENT && flag&sys.O_CREAT != 0 {
		errno = sys.EROFS
	}
	return f, errno
}
