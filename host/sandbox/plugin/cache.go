package plugin

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tetratelabs/wazero"
	processor "golang.org/x/sys/cpu"

	"github.com/wasmjob/wasmjob/host/config/ownership"
)

// DefaultCacheSize is what compiled code on disk may take unless [Options].CacheSize says
// otherwise, in bytes.
const DefaultCacheSize = 2 << 30

// footprint is the size of a compiled module in memory, in bytes.
type footprint struct {
	// Code is mapped and executed.
	Code int64
	// Heap is the engine's data about the module.
	Heap int64
}

func (f footprint) bytes() int64 { return f.Code + f.Heap }

// store is a directory with compiled code, and wazero's cache on top. A process that has read, validated and
// compiled the module within limits made each file; a seal at the file's end proves it. Without a sealed file
// wazero must not read the module in this process. It is safe for concurrent use, and other processes may use
// the same directory.
type store struct {
	dir   string
	cache wazero.CompilationCache
	// private says that this process made it, and removes it at its end.
	private bool
	// readOnly says that it belongs to another process.
	readOnly bool
	limit    int64 // of bytes on the disk
	user     ownership.User
	log      *slog.Logger

	mu sync.Mutex // held while files are removed to make room
}

// openStore makes the directory of a cache, or checks that no other user can change it.
func openStore(dir string, limit int64, user ownership.User, log *slog.Logger) (*store, error) {
	dir, err := filepath.Abs(dir) // other processes use it from other working directories
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := user.Path(dir, ownership.Private); err != nil {
		return nil, fmt.Errorf("what lies in the directory is executed: %w", err)
	}
	cache, err := wazero.NewCompilationCacheWithDir(dir)
	if err != nil {
		return nil, err
	}
	return &store{dir: dir, cache: cache, limit: cmp.Or(limit, DefaultCacheSize), user: user, log: log}, nil
}

// privateStore makes a directory through which a compiling process passes its results to this one.
func privateStore(log *slog.Logger) (*store, error) {
	dir, err := os.MkdirTemp("", "wasmjob-modules-")
	if err != nil {
		return nil, err
	}
	s, err := openStore(dir, 0, ownership.Self(), log)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	s.private = true
	return s, nil
}

// cacheFile is the path below a cache's directory where wazero v1.12.0 looks for a module's compiled code: a
// directory for its version and the machine, and a hash of the module, the compiler's options and the
// processor's features. wazero itself would first read and validate the module, which may take more memory than
// there is. A wazero version with other names finds nothing; a test and store.install notice that.
func cacheFile(wasm []byte) string {
	version := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			if strings.Contains(dep.Path, "github.com/tetratelabs/wazero") {
				version = dep.Version
			}
		}
		if version == "" || version == "(devel)" {
			version = info.Main.Version
		}
	}
	if version == "" || version == "(devel)" {
		version = "dev"
	}

	var features uint64
	set := func(bit uint64, has bool) {
		if has {
			features |= bit
		}
	}
	switch runtime.GOARCH {
	case "amd64":
		set(1, processor.X86.HasSSE41)
		set(2, processor.X86.HasBMI1)
		set(4, processor.X86.HasBMI1 && processor.X86.HasBMI2 && processor.X86.HasPOPCNT)
	case "arm64":
		set(1, processor.ARM64.HasATOMICS)
	}

	h := sha256.New()
	h.Write(wasm)
	h.Write([]byte{0}) // code does not look for the end of a context, see engineConfig
	id := h.Sum(nil)
	h.Reset()
	h.Write(id)
	h.Write([]byte("WAZEVO"))
	h.Write(binary.LittleEndian.AppendUint64(nil, features))
	return filepath.Join("wazero-"+version+"-"+runtime.GOARCH+"-"+runtime.GOOS, hex.EncodeToString(h.Sum(nil)))
}

// A seal is the end of a file with compiled code, after the part that wazero reads. It says that a process has
// accepted the module within this version's limits, how much memory it takes, and has a checksum of both. If
// you tighten the limits, change the seal's first word.
const (
	sealWord = "wasmjob1"
	sealSize = len(sealWord) + 8 + 8 + 4
)

func (f footprint) seal() []byte {
	b := binary.LittleEndian.AppendUint64([]byte(sealWord), uint64(f.Code))
	b = binary.LittleEndian.AppendUint64(b, uint64(f.Heap))
	return binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
}

func unseal(b []byte) (f footprint, ok bool) {
	if len(b) != sealSize {
		return f, false
	}
	f.Code = int64(binary.LittleEndian.Uint64(b[len(sealWord):]))
	f.Heap = int64(binary.LittleEndian.Uint64(b[len(sealWord)+8:]))
	return f, f.Code >= 0 && f.Heap >= 0 && bytes.Equal(b, f.seal())
}

// find reports whether the module was accepted and its code is stored, and its footprint. It marks the file as
// used. The file may be removed at any time.
func (s *store) find(wasm []byte) (f footprint, ok bool) {
	name := filepath.Join(s.dir, cacheFile(wasm))
	f, err := s.accepted(name)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errNotAccepted) {
			s.log.Warn("compiled code is not used, and the module is compiled anew", "file", name, "error", err)
		}
		return f, false
	}
	s.touch(wasm)
	return f, true
}

// touch marks the module's file as used through its modification time: not all file systems keep the access
// time.
func (s *store) touch(wasm []byte) {
	if !s.readOnly {
		_ = os.Chtimes(filepath.Join(s.dir, cacheFile(wasm)), time.Time{}, time.Now()) // it may be gone
	}
}

func (s *store) accepted(name string) (f footprint, err error) {
	info, err := os.Lstat(name)
	if err != nil {
		return f, err
	}
	if !info.Mode().IsRegular() {
		return f, errors.New("it is no regular file")
	}
	if err := s.user.Check(name, info, ownership.Private); err != nil {
		return f, err
	}
	file, err := os.Open(name)
	if err != nil {
		return f, err
	}
	defer file.Close() // only read
	seal := make([]byte, sealSize)
	if _, err := file.ReadAt(seal, max(info.Size()-int64(sealSize), 0)); err != nil && !errors.Is(err, io.EOF) {
		return f, err
	}
	f, ok := unseal(seal)
	if !ok {
		return f, errNotAccepted
	}
	return f, nil
}

// errNotAccepted says that a file has no seal of this version: another version wrote it, or a crash truncated
// it.
var errNotAccepted = errors.New("the file does not say that its module was accepted")

// size is how many bytes of code the module's file has; false if there is none.
func (s *store) size(wasm []byte) (int64, bool) {
	info, err := os.Lstat(filepath.Join(s.dir, cacheFile(wasm)))
	if err != nil {
		return 0, false
	}
	return info.Size(), true
}

// forget removes the module's file.
func (s *store) forget(wasm []byte) {
	_ = os.Remove(filepath.Join(s.dir, cacheFile(wasm))) // it is replaced if it stays
}

// install seals the file that a process has made, and moves it to where wazero looks for it. It replaces an
// existing file, which was unusable.
func (s *store) install(staging string, wasm []byte, f footprint) error {
	want := cacheFile(wasm)
	files, err := filepath.Glob(filepath.Join(staging, "wazero-*", "*"))
	if err != nil {
		return err
	}
	if len(files) != 1 || files[0] != filepath.Join(staging, want) {
		return fmt.Errorf("the process that compiles left %q, expected one file, %s", files, want)
	}
	file, err := os.OpenFile(files[0], os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = file.Write(f.seal())
	if err == nil {
		err = file.Sync() // otherwise a file truncated by a crash would be compiled again
	}
	info, failed := file.Stat()
	if err = errors.Join(err, failed, file.Close()); err != nil {
		return err
	}
	s.makeRoom(info.Size())
	return os.Rename(files[0], filepath.Join(s.dir, want))
}

// makeRoom removes the least recently used files until so many bytes are free. It logs errors: a file that
// cannot be removed must not prevent a compilation. Other hosts may use the same directory: a host that misses
// a file compiles the module again.
func (s *store) makeRoom(bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	names, err := filepath.Glob(filepath.Join(s.dir, "wazero-*", "*"))
	if err != nil {
		return // impossible: the pattern is valid
	}
	type stored struct {
		name string
		fs.FileInfo
	}
	var files []stored
	for _, name := range names {
		info, err := os.Lstat(name)
		if err != nil || !info.Mode().IsRegular() || !ours.MatchString(info.Name()) {
			continue // it is gone, or not wazero's
		}
		bytes += info.Size()
		if ours.FindStringSubmatch(info.Name())[1] == "" || time.Since(info.ModTime()) > stagingAge {
			files = append(files, stored{name, info})
		}
	}
	slices.SortFunc(files, func(a, b stored) int { return a.ModTime().Compare(b.ModTime()) })
	var errs []error
	for _, f := range files {
		if bytes <= s.limit {
			break
		}
		if err := os.Remove(f.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
			continue
		}
		bytes -= f.Size()
	}
	if err := errors.Join(errs...); err != nil {
		s.log.Warn("compiled code that was used longest ago could not be removed from the cache directory", "error", err)
	}
}

// ours matches what wazero v1.12.0 names a file with compiled code, and one that it has not written to
// its end.
var ours = regexp.MustCompile(`^[0-9a-f]{64}(\.[0-9]+\.tmp)?$`)

// sweep removes leftovers of hosts that ended while a module was compiled.
func (s *store) sweep() error {
	staged, err := filepath.Glob(filepath.Join(s.dir, stagingPattern))
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range staged {
		if info, err := os.Lstat(name); err == nil && info.IsDir() && time.Since(info.ModTime()) > stagingAge {
			errs = append(errs, os.RemoveAll(name))
		}
	}
	return errors.Join(errs...)
}

// close removes the directory if it is this process' own.
func (s *store) close() error {
	if s.private {
		return os.RemoveAll(s.dir)
	}
	return nil
}
