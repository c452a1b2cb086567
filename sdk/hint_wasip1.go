package sdk

import (
	"io"
	"os"
	"unsafe"
)

// explained is the reason with what its author can do about it, if it is an error that
// Go's runtime makes in a guest by itself, without asking the host, or one of a path.
func explained(reason string) string { return reason + hint(reason, mounted) }

//go:wasmimport wasi_snapshot_preview1 fd_prestat_get
//go:noescape
func prestat(fd int32, buf unsafe.Pointer) uint32

//go:wasmimport wasi_snapshot_preview1 fd_prestat_dir_name
//go:noescape
func prestatName(fd int32, buf unsafe.Pointer, size uint32) uint32

// mounted are the directories that the guest has. The host gives it an empty root beside
// them, which is none.
func mounted() (list []string) {
	for fd := int32(3); ; fd++ { // after the standard streams
		var head [2]uint32 // the kind, and the length of the name
		if prestat(fd, unsafe.Pointer(&head)) != 0 || head[1] == 0 {
			return list
		}
		name := make([]byte, head[1])
		if prestatName(fd, unsafe.Pointer(unsafe.SliceData(name)), head[1]) != 0 {
			return list
		}
		if dir := string(name); dir != "/" || !empty(dir) {
			list = append(list, dir)
		}
	}
}

func empty(dir string) bool {
	f, err := os.Open(dir)
	if err != nil {
		return true
	}
	defer f.Close() // read only: nothing is lost if that fails
	_, err = f.Readdirnames(1)
	return err == io.EOF
}
