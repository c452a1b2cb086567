// Command guest does what the item's parameter says, line by line, and logs what came
// of each: operations on files, and on the state of the item.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

//go:wasmimport job_v1 ctx_str
//go:noescape
func ctxStr(field uint32, buf unsafe.Pointer, limit uint32) int32

//go:wasmimport job_v1 log
//go:noescape
func logLine(level int32, msg unsafe.Pointer, n uint32, kv unsafe.Pointer, kvn uint32)

//go:wasmimport job_v1 offset_set
//go:noescape
func offsetSet(p unsafe.Pointer, n uint32) int32

//go:wasmimport job_v1 offset_get
//go:noescape
func offsetGet(p unsafe.Pointer, n uint32) int32

//go:wasmimport job_v1 offset_commit
//go:noescape
func offsetCommit() int32

//go:wasmimport job_v1_kv get
//go:noescape
func kvGet(k unsafe.Pointer, kn uint32, p unsafe.Pointer, n uint32) int32

//go:wasmimport job_v1_kv set
//go:noescape
func kvSet(k unsafe.Pointer, kn uint32, p unsafe.Pointer, n uint32) int32

//go:wasmimport job_v1_kv increment
//go:noescape
func kvIncrement(k unsafe.Pointer, kn uint32, by int64) int64

//go:wasmimport job_v1_env get
//go:noescape
func envGet(k unsafe.Pointer, kn uint32, p unsafe.Pointer, n uint32) int32

//go:wasmimport job_v1_env secret
//go:noescape
func envSecret(k unsafe.Pointer, kn uint32, p unsafe.Pointer, n uint32) int32

//go:wasmimport job_v1_io error
//go:noescape
func ioError(h int32, p unsafe.Pointer, n uint32) int32

func say(s string) { logLine(0, unsafe.Pointer(unsafe.StringData(s)), uint32(len(s)), nil, 0) }

func text(s string) (unsafe.Pointer, uint32) {
	return unsafe.Pointer(unsafe.StringData(s)), uint32(len(s))
}

// read calls a function that reads.
func read(f func(p unsafe.Pointer, n uint32) int32) (string, error) {
	n := f(nil, 0)
	if n < 0 {
		return "", reason(n)
	}
	b := make([]byte, n)
	f(unsafe.Pointer(unsafe.SliceData(b)), uint32(n))
	return string(b), nil
}

func reason(code int32) error {
	var b [512]byte
	n := ioError(0, unsafe.Pointer(&b), uint32(len(b)))
	return fmt.Errorf("code %d: %s", code, b[:max(n, 0)])
}

// script is the whole parameter.
func script() string {
	s, _ := read(func(p unsafe.Pointer, n uint32) int32 { return ctxStr(3, p, n) })
	return s
}

//go:wasmexport job_abi_v1
func marker() {}

var kept *os.File // between items

//go:wasmexport job_execute
func execute() int32 { return perform(script()) }

var batch int // of a DATAFLOW job: the parts of its parameter between lines of --

//go:wasmexport job_fetch
func fetch() int32 {
	batch++
	if batch > len(strings.Split(script(), "--\n")) {
		return 0
	}
	return 1
}

//go:wasmexport job_process
func process() int32 { return perform(strings.Split(script(), "--\n")[batch-1]) }

func perform(script string) int32 {
	status := int32(0)
	for line := range strings.SplitSeq(script, "\n") {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		out, err := do(f[0], append(f[1:], "", "", ""))
		if err != nil {
			out = "error " + err.Error()
			if errno := syscall.Errno(0); errors.As(err, &errno) {
				out = "errno " + errno.Error()
			}
		}
		say(strings.TrimSpace(f[0] + " " + out))
		if f[0] == "status" {
			n, _ := strconv.Atoi(f[1])
			status = int32(n)
		}
	}
	return status
}

func do(word string, arg []string) (string, error) {
	switch word {
	case "status":
		return "", nil
	case "cat":
		b, err := os.ReadFile(arg[0])
		return string(b), err
	case "put":
		return "", os.WriteFile(arg[0], []byte(arg[1]), 0o666)
	case "append":
		f, err := os.OpenFile(arg[0], os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o666)
		if err != nil {
			return "", err
		}
		_, err = f.WriteString(arg[1])
		at, _ := f.Seek(0, io.SeekCurrent)
		return fmt.Sprint("at ", at), errors.Join(err, f.Close())
	case "fill": // PATH BYTES
		n, _ := strconv.Atoi(arg[1])
		f, err := os.Create(arg[0])
		if err != nil {
			return "", err
		}
		wrote, err := f.Write(make([]byte, n))
		info, _ := f.Stat()
		f.Close()
		if err != nil {
			return "", fmt.Errorf("after %d, of size %d: %w", wrote, info.Size(), err)
		}
		return fmt.Sprint(wrote), nil
	case "at": // PATH POSITION TEXT
		n, _ := strconv.ParseInt(arg[1], 10, 64)
		f, err := os.OpenFile(arg[0], os.O_RDWR|os.O_CREATE, 0o666)
		if err != nil {
			return "", err
		}
		defer f.Close()
		_, err = f.WriteAt([]byte(arg[2]), n)
		return "", err
	case "truncate":
		n, _ := strconv.ParseInt(arg[1], 10, 64)
		return "", os.Truncate(arg[0], n)
	case "sync":
		f, err := os.OpenFile(arg[0], os.O_RDWR, 0)
		if err != nil {
			return "", err
		}
		return "", errors.Join(f.Sync(), f.Close())
	case "exclusive":
		f, err := os.OpenFile(arg[0], os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		if err == nil {
			f.Close()
		}
		return "", err
	case "mkdir":
		return "", os.MkdirAll(arg[0], 0o777)
	case "rm":
		return "", os.Remove(arg[0])
	case "rmall":
		return "", os.RemoveAll(arg[0])
	case "mv":
		return "", os.Rename(arg[0], arg[1])
	case "ln":
		return "", os.Link(arg[0], arg[1])
	case "symlink":
		return "", os.Symlink(arg[0], arg[1])
	case "chmod":
		return "", os.Chmod(arg[0], 0o777)
	case "touch":
		at := time.Unix(1e9, 0)
		if err := os.Chtimes(arg[0], at, at); err != nil {
			return "", err
		}
		info, err := os.Stat(arg[0])
		if err != nil {
			return "", err
		}
		return fmt.Sprint(info.ModTime().Unix()), nil
	case "stat":
		info, err := os.Stat(arg[0])
		if err != nil {
			return "", err
		}
		if info.IsDir() {
			return "directory", nil
		}
		return fmt.Sprint(info.Size()), nil
	case "ls":
		var names []string
		err := filepath.WalkDir(arg[0], func(path string, d os.DirEntry, err error) error {
			names = append(names, path)
			return err
		})
		slices.Sort(names)
		return strings.Join(names, ","), err
	case "count":
		entries, err := os.ReadDir(arg[0])
		return fmt.Sprint(len(entries)), err
	case "keep":
		f, err := os.Create(arg[0])
		kept = f
		return "", err
	case "kept":
		_, err := kept.WriteString("late")
		return "", err
	case "many": // PREFIX COUNT
		n, _ := strconv.Atoi(arg[1])
		for i := range n {
			if _, err := os.Create(fmt.Sprint(arg[0], i)); err != nil {
				return fmt.Sprint(i), err
			}
		}
		return "", nil

	case "get":
		p, n := text(arg[0])
		return read(func(q unsafe.Pointer, m uint32) int32 { return kvGet(p, n, q, m) })
	case "set":
		p, n := text(arg[0])
		q, m := text(arg[1])
		if c := kvSet(p, n, q, m); c != 0 {
			return "", reason(c)
		}
		return "", nil
	case "add":
		p, n := text(arg[0])
		v := kvIncrement(p, n, 1)
		if v < 0 {
			return "", reason(int32(v))
		}
		return fmt.Sprint(v), nil
	case "offset":
		p, n := text(arg[0])
		offsetSet(p, n)
		return "", nil
	case "offset?":
		return read(offsetGet)
	case "commit":
		return fmt.Sprint(offsetCommit()), nil
	case "env":
		p, n := text(arg[0])
		v, err := read(func(q unsafe.Pointer, m uint32) int32 { return envGet(p, n, q, m) })
		return v + " " + os.Getenv(arg[0]), err
	case "secret":
		p, n := text(arg[0])
		return read(func(q unsafe.Pointer, m uint32) int32 { return envSecret(p, n, q, m) })
	}
	return "", errors.New("unknown word")
}

func main() {}
