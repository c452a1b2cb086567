package plugin

import (
	"encoding/binary"
	"io"
	"io/fs"
	"strings"
	"syscall"

	"github.com/tetratelabs/wazero/experimental/sys"
	"github.com/tetratelabs/wazero/experimental/sysfs"
	wasisys "github.com/tetratelabs/wazero/sys"

	"github.com/wasmjob/wasmjob/abi"
)

// writable is a directory that a guest may write to. The host carries out the guest's operations
// (abi.ModuleDir), also for a worker process: this code does not touch the file system.
type writable struct {
	sys.UnimplementedFS
	in     *instance
	number int64
	table  map[string]*abi.Import
}

// directoryFunctions are those of abi.ModuleDir by name.
func directoryFunctions() map[string]*abi.Import {
	table := map[string]*abi.Import{}
	for _, f := range abi.DirectoryFunctions() {
		table[f.Name] = &f
	}
	return table
}

// do makes a call. A negative result becomes the errno.
func (w *writable) do(name string, buf []byte, numbers []int64, texts ...[]byte) (int64, sys.Errno) {
	w.in.stopIfEnded()
	if w.in.inv == nil || w.in.inv.Outside == nil {
		return 0, sys.EIO
	}
	v := w.in.inv.Outside.Call(w.in.ctx, &abi.Call{Function: w.table[name], Numbers: numbers, Texts: texts, Buf: buf})
	w.in.stopIfEnded()
	switch {
	case v >= 0:
		return v, 0
	case v <= -abi.DirError:
		return 0, sys.UnwrapOSError(syscall.Errno(-abi.DirError - v))
	case abi.Code(v) == abi.ErrNotFound:
		return 0, sys.ENOENT
	case abi.Code(v) == abi.ErrDenied:
		return 0, sys.EPERM
	}
	return 0, sys.EIO // ownership is lost, for one
}

// done makes a call that only returns an errno.
func (w *writable) done(name string, numbers []int64, texts ...[]byte) sys.Errno {
	_, errno := w.do(name, nil, numbers, texts...)
	return errno
}

func (w *writable) status(name string, numbers []int64, texts ...[]byte) (wasisys.Stat_t, sys.Errno) {
	var b [abi.DirStat]byte
	if _, errno := w.do(name, b[:], numbers, texts...); errno != 0 {
		return wasisys.Stat_t{}, errno
	}
	field := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }
	modified := int64(field(4))
	return wasisys.Stat_t{Mode: fs.FileMode(field(0)), Nlink: field(1), Ino: field(2), Size: int64(field(3)), Atim: modified, Mtim: modified, Ctim: modified}, 0
}

// OpenFile implements [sys.FS].
func (w *writable) OpenFile(at string, flag sys.Oflag, perm fs.FileMode) (sys.File, sys.Errno) {
	h, errno := w.do("open", nil, []int64{w.number, int64(flag), int64(perm.Perm())}, []byte(at))
	if errno != 0 {
		return nil, errno
	}
	f := &writableFile{w: w, inv: w.in.inv, handle: h, at: at, append: flag&sys.O_APPEND != 0}
	f.File, errno = (&sysfs.AdaptFS{FS: position{f}}).OpenFile(".", 0, 0)
	return f, errno
}

// Stat implements [sys.FS].
func (w *writable) Stat(at string) (wasisys.Stat_t, sys.Errno) {
	return w.status("stat", []int64{w.number}, []byte(at))
}

// Lstat implements [sys.FS]. Links are followed, as far as they stay inside.
func (w *writable) Lstat(at string) (wasisys.Stat_t, sys.Errno) { return w.Stat(at) }

// Mkdir implements [sys.FS].
func (w *writable) Mkdir(at string, perm fs.FileMode) sys.Errno {
	return w.done("mkdir", []int64{w.number, int64(perm.Perm())}, []byte(at))
}

// Rename implements [sys.FS].
func (w *writable) Rename(from, to string) sys.Errno {
	return w.done("rename", []int64{w.number}, []byte(from), []byte(to))
}

// Rmdir implements [sys.FS].
func (w *writable) Rmdir(at string) sys.Errno {
	return w.done("rmdir", []int64{w.number}, []byte(at))
}

// Unlink implements [sys.FS].
func (w *writable) Unlink(at string) sys.Errno {
	return w.done("unlink", []int64{w.number}, []byte(at))
}

// Utimens implements [sys.FS].
func (w *writable) Utimens(at string, accessed, modified int64) sys.Errno {
	return w.done("utimes", []int64{w.number, accessed, modified}, []byte(at))
}

// Link, Symlink and Chmod implement [sys.FS]: a link might lead elsewhere.
func (w *writable) Link(string, string) sys.Errno       { return sys.EPERM }
func (w *writable) Symlink(string, string) sys.Errno    { return sys.EPERM }
func (w *writable) Chmod(string, fs.FileMode) sys.Errno { return sys.EPERM }
func (w *writable) Readlink(string) (string, sys.Errno) { return "", sys.EINVAL }

// writableFile is an open file, or a directory (handle 0).
type writableFile struct {
	sys.File // a position
	w        *writable
	inv      *abi.Invocation // the invocation that opened it, and with which it ends
	handle   int64
	at       string
	append   bool
	next     int64        // where to read or write; of a directory the number of the next entry
	listed   []sys.Dirent // entries from next on that the host has already returned
}

// gone says that the file was opened by an invocation that is over.
func (f *writableFile) gone() bool { return f.handle != 0 && f.inv != f.w.in.inv }

func (f *writableFile) do(name string, buf []byte, numbers []int64, texts ...[]byte) (int64, sys.Errno) {
	if f.gone() {
		return 0, sys.EBADF
	}
	if f.handle == 0 {
		return 0, sys.EISDIR
	}
	return f.w.do(name, buf, append([]int64{f.handle}, numbers...), texts...)
}

// Dev implements [sys.File].
func (f *writableFile) Dev() (uint64, sys.Errno) { return uint64(f.w.number) + 1, 0 }

// Ino implements [sys.File].
func (f *writableFile) Ino() (wasisys.Inode, sys.Errno) {
	st, errno := f.Stat()
	return st.Ino, errno
}

// IsDir implements [sys.File].
func (f *writableFile) IsDir() (bool, sys.Errno) { return f.handle == 0, 0 }

// IsAppend implements [sys.File].
func (f *writableFile) IsAppend() bool { return f.append }

// SetAppend implements [sys.File].
func (f *writableFile) SetAppend(enable bool) sys.Errno {
	f.append = enable
	return 0
}

// Stat implements [sys.File].
func (f *writableFile) Stat() (wasisys.Stat_t, sys.Errno) {
	if f.gone() {
		return wasisys.Stat_t{}, sys.EBADF
	}
	if f.handle == 0 {
		return f.w.Stat(f.at)
	}
	return f.w.status("fstat", []int64{f.handle})
}

// Read implements [sys.File].
func (f *writableFile) Read(buf []byte) (int, sys.Errno) {
	n, errno := f.Pread(buf, f.next)
	f.next += int64(n)
	return n, errno
}

// Pread implements [sys.File].
func (f *writableFile) Pread(buf []byte, off int64) (int, sys.Errno) {
	if off < 0 {
		return 0, sys.EINVAL
	}
	if len(buf) == 0 {
		return 0, 0
	}
	n, errno := f.do("read", buf, []int64{off})
	return int(n), errno
}

// position is the position in a file or directory. It implements a file only so that wazero accepts it;
// writableFile uses its Seek.
type position struct{ f *writableFile }

// Seek implements io.Seeker.
func (p position) Seek(offset int64, whence int) (int64, error) {
	base := int64(0)
	switch whence {
	case io.SeekStart:
	case io.SeekCurrent:
		base = p.f.next
	case io.SeekEnd:
		st, errno := p.f.Stat()
		if errno != 0 {
			return 0, syscall.EIO
		}
		base = st.Size
	default:
		return 0, syscall.EINVAL
	}
	if base+offset < 0 || (p.f.handle == 0 && base+offset != 0) {
		return 0, syscall.EINVAL
	}
	p.f.next, p.f.listed = base+offset, nil
	return p.f.next, nil
}
func (position) Stat() (fs.FileInfo, error) { return nil, syscall.EIO }
func (position) Read([]byte) (int, error)   { return 0, syscall.EIO }
func (position) Close() error               { return nil }

// Open implements fs.FS.
func (p position) Open(string) (fs.File, error) { return p, nil }

// Readdir implements [sys.File].
func (f *writableFile) Readdir(n int) (entries []sys.Dirent, errno sys.Errno) {
	if f.handle != 0 {
		return nil, sys.ENOTDIR
	}
	for n <= 0 || len(entries) < n {
		if len(f.listed) == 0 {
			if errno := f.list(); errno != 0 {
				return nil, errno
			}
			if len(f.listed) == 0 {
				break
			}
		}
		k := len(f.listed)
		if n > 0 {
			k = min(k, n-len(entries))
		}
		entries = append(entries, f.listed[:k]...)
		f.listed, f.next = f.listed[k:], f.next+int64(k)
	}
	return entries, 0
}

// list asks for the next entries.
func (f *writableFile) list() sys.Errno {
	buf := make([]byte, 64<<10)
	got, errno := f.w.do("list", buf, []int64{f.w.number, f.next}, []byte(f.at))
	if errno != 0 || got == 0 {
		return errno
	}
	for text := range strings.SplitSeq(strings.TrimSuffix(string(buf[:got]), "\x00"), "\x00") {
		mode := fs.ModeIrregular
		switch text[0] {
		case 'd':
			mode = fs.ModeDir
		case '-':
			mode = 0
		}
		f.listed = append(f.listed, sys.Dirent{Name: text[1:], Type: mode})
	}
	return 0
}

// Write implements [sys.File].
func (f *writableFile) Write(buf []byte) (int, sys.Errno) {
	if !f.append {
		n, errno := f.Pwrite(buf, f.next)
		f.next += int64(n)
		return n, errno
	}
	n, errno := f.put(buf, -1)
	if st, failed := f.Stat(); failed == 0 {
		f.next = st.Size
	}
	return n, errno
}

// Pwrite implements [sys.File].
func (f *writableFile) Pwrite(buf []byte, off int64) (int, sys.Errno) {
	if off < 0 {
		return 0, sys.EINVAL
	}
	return f.put(buf, off)
}

// put writes as much as possible, at a position or, if that is negative, at the end. It returns an error only
// if nothing was written: the guest writes again.
func (f *writableFile) put(buf []byte, at int64) (n int, errno sys.Errno) {
	for n < len(buf) {
		from := at
		if at >= 0 {
			from += int64(n)
		}
		wrote, errno := f.do("write", nil, []int64{from}, buf[n:])
		if errno != 0 && n == 0 {
			return 0, errno
		}
		if errno != 0 || wrote == 0 {
			break
		}
		n += int(wrote)
	}
	return n, 0
}

// Truncate implements [sys.File].
func (f *writableFile) Truncate(size int64) sys.Errno {
	_, errno := f.do("truncate", nil, []int64{size})
	return errno
}

// Sync implements [sys.File].
func (f *writableFile) Sync() sys.Errno {
	if f.handle == 0 {
		return 0
	}
	_, errno := f.do("sync", nil, nil)
	return errno
}

// Datasync implements [sys.File].
func (f *writableFile) Datasync() sys.Errno { return f.Sync() }

// Utimens implements [sys.File].
func (f *writableFile) Utimens(accessed, modified int64) sys.Errno {
	return f.w.Utimens(f.at, accessed, modified)
}

// Close implements [sys.File].
func (f *writableFile) Close() sys.Errno {
	if f.handle == 0 || f.gone() {
		return 0
	}
	_, errno := f.do("close", nil, nil)
	return errno
}
