package plugin

import (
	"io/fs"

	"github.com/tetratelabs/wazero/experimental/sys"
)

const (
	// maxOpenFiles bounds the files and directories that one instance has open at once, in
	// all that it sees together. The guest gets WASI's mfile for one more.
	maxOpenFiles = 256
	// maxPath bounds a path in bytes. wazero puts the path of a file that is opened relative to a
	// directory behind the directory's own, and keeps it.
	maxPath = 4096
	// openBytes is about what an open file takes besides its path, and direntBytes a directory entry besides
	// its name.
	openBytes   = 512
	direntBytes = 64

	// errTooManyOpen becomes WASI's mfile on its way to the guest (wasm.ErrnoTooMany).
	errTooManyOpen = sys.ENOTSOCK
)

// countedFS is a guest's file system. It counts open files, and charges the guest's account for what wazero
// keeps of them.
type countedFS struct {
	sys.FS
	in *instance
	// rooted is set when wazero has opened the root for itself, which it does before anything else. It
	// panics if it cannot.
	rooted bool
}

// OpenFile implements [sys.FS].
func (c *countedFS) OpenFile(path string, flag sys.Oflag, perm fs.FileMode) (sys.File, sys.Errno) {
	if len(path) > maxPath {
		return nil, sys.ENAMETOOLONG
	}
	root := !c.rooted && path == "."
	if !root && c.in.open >= maxOpenFiles {
		return nil, errTooManyOpen
	}
	bytes := int64(openBytes + len(path))
	if root {
		bytes = 0
	}
	if !c.in.hold(bytes) {
		return nil, errTooManyOpen
	}
	f, errno := c.FS.OpenFile(path, flag, perm)
	if errno != 0 {
		c.in.hold(-bytes)
		return nil, errno
	}
	if root {
		c.rooted = true
	} else {
		c.in.open++
	}
	return &openFile{File: f, in: c.in, counts: !root, bytes: bytes}, 0
}

// openFile is an open file of a guest.
type openFile struct {
	sys.File
	in     *instance
	counts bool  // counts against maxOpenFiles
	bytes  int64 // charged to the account
	closed bool
}

// Readdir implements [sys.File]. wazero keeps the entries until the guest has read them, and of two calls at
// most.
func (f *openFile) Readdir(n int) ([]sys.Dirent, sys.Errno) {
	list, errno := f.File.Readdir(n)
	if errno != 0 {
		return nil, errno
	}
	bytes := int64(openBytes)
	for _, d := range list {
		bytes += 2 * int64(direntBytes+len(d.Name))
	}
	if more := bytes - f.bytes; more > 0 {
		if !f.in.hold(more) {
			return nil, errTooManyOpen
		}
		f.bytes = bytes
	}
	return list, 0
}

// Close implements [sys.File]. wazero closes a file again if closing it failed.
func (f *openFile) Close() sys.Errno {
	if f.closed {
		return 0
	}
	f.closed = true
	f.in.hold(-f.bytes)
	if f.counts {
		f.in.open--
	}
	return f.File.Close()
}

// hold charges the account for what the host keeps for the guest, if available. Negative bytes are returned.
func (in *instance) hold(bytes int64) bool {
	if !in.account.holds(in.held + bytes) {
		return false
	}
	in.held += bytes
	return true
}
