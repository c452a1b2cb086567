package plugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/host/config/ownership"
	"github.com/wasmjob/wasmjob/host/sandbox/wasm"
)

// newStore opens a store in a new directory.
func newStore(t *testing.T, limit int64) *store {
	t.Helper()
	s, err := openStore(filepath.Join(t.TempDir(), "cache"), limit, ownership.Self(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.cache.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// cacheFile must be what wazero names a file: another version of it may do so differently, and then nothing
// would be found again.
func TestCacheFile(t *testing.T) {
	t.Parallel()
	needsCompiler(t)
	for _, name := range []string{"wat/noop", "c/guest"} {
		code := metered(t, guest(t, name))
		q := compileRequest{Dir: t.TempDir(), Size: len(code), Workers: 1}
		if a := q.compile(code); q.err(&a) != nil {
			t.Fatalf("%+v", a)
		}
		if files := stored(t, q.Dir); len(files) != 1 || files[0] != filepath.Join(q.Dir, cacheFile(code)) {
			t.Errorf("%s: wazero wrote %q, expected %s: cacheFile does not name files as this version of wazero does", name, files, cacheFile(code))
		}
	}
}

// deep is a valid module that takes little room, and much memory to validate: its function calls one of 1000
// results n times.
func deep(n int) []byte {
	many := append([]byte{0x60, 0}, appendU32(nil, 1000)...)
	many = append(many, times(1000, 0x7f)...)
	b := []byte("\x00asm\x01\x00\x00\x00")
	b = appendSection(b, 1, append([]byte{3, 0x60, 0, 0, 0x60, 0, 1, 0x7f}, many...))
	b = appendSection(b, 3, []byte{3, 0, 1, 2})
	b = appendSection(b, 5, []byte{1, 0, 1})
	b = appendSection(b, 7, []byte("\x03\x06memory\x02\x00\x0ajob_abi_v1\x00\x00\x0bjob_execute\x00\x01"))
	calls := append(append([]byte{0}, times(n, 0x10, 2)...), 0x00, 0x0b)
	code := append([]byte{3, 2, 0, 0x0b}, appendU32(nil, uint32(len(calls)))...)
	return appendSection(b, 10, append(append(code, calls...), 3, 0, 0x00, 0x0b))
}

// unscanned makes a module of bytes that wazero gets as they are.
func unscanned(t *testing.T, r *Runtime, name string, b []byte) *Module {
	t.Helper()
	m, err := r.Unpack(Packed{Name: name, Info: &wasm.Info{Digest: name}, Wasm: b})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

// What no process has accepted is not read by wazero in this one, whatever there is in the cache and whoever fails.
// It is not parallel: it looks at what this process allocates.
func TestOnlyProcessesValidate(t *testing.T) {
	needsCompiler(t)
	const calls = 1_000
	bomb := deep(calls)
	const least = calls * 1000 // a byte for each value is less than validation takes
	prove := func(r *Runtime) (took int64, err error) {
		m := unscanned(t, r, "bomb", bomb)
		before := allocated()
		err = r.prove(t.Context(), m.code, 0, time.Time{})
		return allocated() - before, err
	}
	dir := filepath.Join(t.TempDir(), "cache")
	for _, c := range []struct {
		name string
		o    Options
		says string
	}{
		{"the process refuses it", Options{CacheDir: dir, Compiler: compiler("good")}, "of memory, expected at most"},
		{"again at the next start", Options{CacheDir: dir, Compiler: compiler("good")}, "of memory, expected at most"},
		{"without a cache", Options{Compiler: compiler("good")}, "of memory, expected at most"},
		{"interpreted", Options{Compiler: compiler("good"), interpreter: true}, "of memory, expected at most"},
		{"there is no process", Options{CacheDir: dir, Compiler: compiler("mute")}, "no process compiles the module"},
		{"interpreted, and there is no process", Options{Compiler: compiler("mute"), interpreter: true}, "no process compiles the module"},
		{"in a worker process", Options{CacheDir: dir, Stored: true}, ErrNotStored.Error()},
	} {
		took, err := prove(newRuntime(t, c.o))
		if err == nil || !strings.Contains(err.Error(), c.says) || took > least {
			t.Errorf("%s: %v, and this process allocated %d bytes; expected %q, and less than %d", c.name, err, took, c.says, least)
		}
	}

	// A file that no process has accepted is none: an earlier version has left it.
	s := newStore(t, 0)
	name := filepath.Join(s.dir, cacheFile(bomb))
	if err := os.WriteFile(name, []byte("WAZEVO"), 0o600); err != nil {
		t.Fatal(err)
	}
	if took, err := prove(newRuntime(t, Options{CacheDir: s.dir, Compiler: compiler("good")})); err == nil || took > least {
		t.Errorf("with a file without a seal: %v, and this process allocated %d bytes", err, took)
	}

	// That this process would notice is shown by one that validates itself.
	if took, _ := prove(newRuntime(t, Options{interpreter: true})); took < least {
		t.Errorf("validating takes only %d bytes", took)
	}
}

func TestJudge(t *testing.T) {
	t.Parallel()
	const n = 1 << 20
	compiled, interpreted := compileRequest{Dir: "/d", Size: n}, compileRequest{Size: n}
	for _, c := range []struct {
		q    compileRequest
		a    compileAnswer
		want string
	}{
		{compiled, compileAnswer{}, ""},
		{compiled, compileAnswer{Allocated: 24 << 20, Time: validateTime(n), Takes: footprint{48<<20 - 1, 1}}, ""},
		{compiled, compileAnswer{Allocated: 25 << 20}, "reading and validating it takes 25.0 MiB of memory, expected at most 24.0 MiB for its 1048576 bytes"},
		{interpreted, compileAnswer{Allocated: 25 << 20}, ""},
		{interpreted, compileAnswer{Allocated: 81 << 20}, "reading and validating it takes 81.0 MiB of memory, expected at most 80.0 MiB for its 1048576 bytes"},
		{compiled, compileAnswer{Time: 2 * time.Second}, "reading and validating it takes 2s of processor time, expected at most 1.256s for its 1048576 bytes"},
		{compiled, compileAnswer{Takes: footprint{48 << 20, 1 << 20}}, "its compiled code takes 49.0 MiB of memory, expected at most 48.0 MiB for its 1048576 bytes"},
		{interpreted, compileAnswer{Takes: footprint{0, 49 << 20}}, ""},
		{interpreted, compileAnswer{Takes: footprint{0, 97 << 20}}, "its compiled code takes 97.0 MiB of memory, expected at most 96.0 MiB for its 1048576 bytes"},
	} {
		if got := c.q.judge(&c.a); got != c.want {
			t.Errorf("%+v: %q, expected %q", c.a, got, c.want)
		}
		if err := c.q.err(&c.a); (err != nil) != (c.want != "") {
			t.Errorf("%+v: %v", c.a, err)
		}
	}
}

func TestSeal(t *testing.T) {
	t.Parallel()
	f := footprint{Code: 1 << 40, Heap: 7}
	b := f.seal()
	if got, ok := unseal(b); !ok || got != f {
		t.Errorf("%+v %t", got, ok)
	}
	for i := range b {
		bad := slices.Clone(b)
		bad[i] ^= 1
		if got, ok := unseal(bad); ok {
			t.Errorf("byte %d: %+v is taken", i, got)
		}
	}
	if _, ok := unseal(b[1:]); ok {
		t.Error("a part is taken")
	}
}

// The budget has what the code takes, and not what its module's size lets one guess.
func TestCodeIsMeasured(t *testing.T) {
	t.Parallel()
	needsCompiler(t)
	dir := filepath.Join(t.TempDir(), "cache")
	bulky := deep(60) // calls of a function with many results are much code
	o := Options{CacheDir: dir, Compiler: compiler("good"), MemoryBudget: 64 << 20}
	code := int64(0)
	for _, start := range []string{"compiled", "from the cache"} {
		r := newRuntime(t, o)
		m := unscanned(t, r, "bulky", bulky)
		if err := r.prove(t.Context(), m.code, 0, time.Time{}); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(filepath.Join(dir, cacheFile(bulky)))
		if err != nil {
			t.Fatal(err)
		}
		code = r.Memory().Code
		if code < info.Size()-int64(sealSize) || code > 2*info.Size()+1<<20 || code < 4*guessed(len(bulky)).bytes() {
			t.Errorf("%s: the budget has %d bytes for a file of %d, of a module of %d", start, code, info.Size(), len(bulky))
		}
		if got := m.code.bytes(); got != code {
			t.Errorf("%s: the module is known to take %d bytes, the budget has %d", start, got, code)
		}
	}

	o.MemoryBudget = code // of which three quarters are for code
	r := newRuntime(t, o)
	m := unscanned(t, r, "bulky", bulky)
	err := r.prove(t.Context(), m.code, 0, time.Time{})
	if want := fmt.Sprintf("it needs %s for its compiled code", mebibytes(code)); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, expected %q", err, want)
	}
	if left := r.Memory().Code; left != 0 {
		t.Errorf("%d bytes are left in the budget", left)
	}
}

// A module whose code is beyond its limit is refused by name, with what it takes and what it may.
func TestCodeLimit(t *testing.T) {
	t.Parallel()
	needsCompiler(t)
	r := newRuntime(t, Options{CacheDir: filepath.Join(t.TempDir(), "cache"), Compiler: compiler("fat")})
	_, err := r.Load(t.Context(), "fat.wasm", guest(t, "wat/noop"), time.Time{})
	refused, ok := errors.AsType[*LoadError](err)
	if want := "fat.wasm: its compiled code takes 1024.0 MiB of memory, expected at most 32.0 MiB for its 159 bytes"; !ok || err.Error() != want {
		t.Errorf("%v, expected %q", err, want)
	}
	if files := stored(t, r.cache.dir); ok && (len(refused.Problems) != 1 || len(files) != 0) {
		t.Errorf("%q is kept", files)
	}
}

// distinct are modules with code of the same size, and each with a file of its own in the cache.
func distinct(n int) (list [][]byte) {
	for i := range n {
		list = append(list, nasty(body(times(1+i, 0x01))))
	}
	return list
}

// What was used longest ago goes first; what is used is touched; what is not compiled code stays.
func TestCacheSize(t *testing.T) {
	t.Parallel()
	needsCompiler(t)
	dir := filepath.Join(t.TempDir(), "cache")
	list := distinct(4)
	o := Options{CacheDir: dir, Compiler: compiler("good")}
	use := func(o Options, b []byte) {
		t.Helper()
		load(t, newRuntime(t, o), b).Close()
	}
	name := func(i int) string { return filepath.Join(dir, cacheFile(metered(t, list[i]))) }
	left := func() (list []int) {
		for i := range 4 {
			if _, err := os.Stat(name(i)); err == nil {
				list = append(list, i)
			}
		}
		return list
	}
	for _, b := range list[:3] {
		use(o, b)
	}
	info, err := os.Stat(name(0))
	if err != nil {
		t.Fatal(err)
	}
	age := func(i int, d time.Duration) {
		t.Helper()
		at := time.Now().Add(-d)
		if err := os.Chtimes(name(i), at, at); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 {
		age(i, time.Duration(10-i)*time.Hour)
	}
	foreign := filepath.Join(filepath.Dir(name(0)), "notes.txt")
	if err := os.WriteFile(foreign, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}

	o.CacheSize = 3*info.Size() + 1
	use(o, list[0]) // from the cache
	if got := left(); !slices.Equal(got, []int{0, 1, 2}) {
		t.Errorf("all fit, and %d are left", got)
	}
	use(o, list[3]) // there is room for three, and 1 was used longest ago
	if got := left(); !slices.Equal(got, []int{0, 2, 3}) {
		t.Errorf("%d are left, expected 0, 2 and 3", got)
	}

	// A lower limit holds from the next start. One module stays if it alone is more.
	o.CacheSize = 2*info.Size() + 1
	newRuntime(t, o)
	if got := left(); !slices.Equal(got, []int{0, 3}) {
		t.Errorf("%d are left, expected 0 and 3", got)
	}
	o.CacheSize = 1
	use(o, list[1])
	if got := left(); !slices.Equal(got, []int{1}) {
		t.Errorf("%d are left, expected 1", got)
	}
	if _, err := os.Stat(foreign); err != nil {
		t.Error(err)
	}

	// What is being written counts, and stays while it may be.
	s, err := openStore(dir, 1, ownership.Self(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	half := name(1) + ".123.tmp"
	if err := os.Rename(name(1), half); err != nil {
		t.Fatal(err)
	}
	s.makeRoom(0)
	if _, err := os.Stat(half); err != nil {
		t.Error("what may be being written is removed:", err)
	}
	old := time.Now().Add(-2 * stagingAge)
	if err := os.Chtimes(half, old, old); err != nil {
		t.Fatal(err)
	}
	s.makeRoom(0)
	if _, err := os.Stat(half); !errors.Is(err, os.ErrNotExist) {
		t.Error("what was not written to its end stays:", err)
	}
}

// A file that another host removes after this one has found it is compiled again.
func TestRemovedWhileItIsLoaded(t *testing.T) {
	t.Parallel()
	needsCompiler(t)
	dir := filepath.Join(t.TempDir(), "cache")
	compile, started := counted("good")
	file := guest(t, "c/guest")
	o := Options{CacheDir: dir, Compiler: compile}
	load(t, newRuntime(t, o), file).Close()

	// While it waits for the budget, it has found the file and has not read it.
	const total = 64 << 20
	o.MemoryBudget, o.ModuleMemory = total, total
	r := newRuntime(t, o)
	a, err := r.Admit(t.Context(), "a", total/2)
	if err != nil {
		t.Fatal(err)
	}
	b, err := r.Admit(t.Context(), "b", total/2)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	waits := make(chan struct{}, 9)
	r.OnShortage(func() { waits <- struct{}{} })
	loaded := make(chan error, 1)
	go func() {
		m, err := r.Open("guest.wasm", file)
		if err == nil {
			err = r.prove(t.Context(), m.code, 0, time.Time{})
			m.Close()
		}
		loaded <- err
	}()
	<-waits
	if err := os.Remove(filepath.Join(dir, cacheFile(metered(t, file)))); err != nil {
		t.Fatal(err)
	}
	a.Close()
	if err := <-loaded; err != nil {
		t.Error(err)
	}
	if n := started.Load(); n != 2 {
		t.Errorf("%d processes, expected one for each time that the file was not there", n)
	}
}

// A file that is damaged, and whose end says still that its module was accepted, is compiled again.
func TestDamagedFile(t *testing.T) {
	t.Parallel()
	needsCompiler(t)
	compile, started := counted("good")
	o := Options{CacheDir: filepath.Join(t.TempDir(), "cache"), Compiler: compile}
	file := guest(t, "wat/noop")
	load(t, newRuntime(t, o), file).Close()
	name := filepath.Join(o.CacheDir, cacheFile(metered(t, file)))
	code, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	code[len(code)/2] ^= 0xff
	if err := os.WriteFile(name, code, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		runs(t, newRuntime(t, o), file)
	}
	if n := started.Load(); n != 2 {
		t.Errorf("%d processes, expected one for the module and one for the damage", n)
	}
}

// Hosts that share a directory too small for what they load remove each other's files, and all of them load
// everything.
func TestHostsShareSmallCache(t *testing.T) {
	t.Parallel()
	needsCompiler(t)
	dir := filepath.Join(t.TempDir(), "cache")
	list := distinct(3)
	var wg sync.WaitGroup
	for range 2 {
		r := newRuntime(t, Options{CacheDir: dir, CacheSize: 1, Compiler: compiler("good")})
		for i := range 6 {
			wg.Go(func() {
				m, err := r.Load(context.Background(), fmt.Sprint(i), list[i%3], time.Time{})
				if err != nil {
					t.Error(err)
					return
				}
				m.Close()
			})
		}
	}
	wg.Wait()
}

// anothers gives a file to another user, if this process may; otherwise it is another user who asks. It returns
// who asks.
func anothers(t *testing.T, name string) *ownership.User {
	t.Helper()
	u := ownership.Self()
	if u != 0 {
		u++
		return &u
	}
	if err := os.Chown(name, 65534, -1); err != nil {
		t.Fatal(err)
	}
	return &u
}

// Code that another user can change is not executed.
func TestCacheOwner(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("files have no owner here that could be asked for")
	}
	needsCompiler(t)
	file := guest(t, "wat/noop")

	t.Run("directory", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "cache")
		o := Options{CacheDir: dir, Compiler: compiler("good")}
		load(t, newRuntime(t, o), file).Close()
		o.user = anothers(t, dir)
		for _, o.Stored = range []bool{false, true} {
			if _, err := NewRuntime(t.Context(), o); err == nil || !ownership.Is(err) || !strings.Contains(err.Error(), dir+": belongs to user ") {
				t.Errorf("%v, expected that %s belongs to another user", err, dir)
			}
		}
	})
	t.Run("directory above", func(t *testing.T) {
		above := filepath.Join(t.TempDir(), "above")
		if err := os.Mkdir(above, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(above, 0o777); err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(above, "cache")
		if _, err := NewRuntime(t.Context(), Options{CacheDir: dir}); err == nil || !strings.Contains(err.Error(), above+": has mode 0777") {
			t.Errorf("%v, expected that others can replace %s", err, dir)
		}
	})
	t.Run("file", func(t *testing.T) {
		var log lines
		s := newStore(t, 0)
		s.log = log.logger()
		code := metered(t, file)
		c := child{command: compiler("good"), workers: 1, limit: compileTime}
		if _, err := c.compile(t.Context(), s, code, 0); err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(s.dir, cacheFile(code))
		if _, ok := s.find(code); !ok {
			t.Error("the file is not found")
		}
		if err := os.Chmod(name, 0o620); err != nil {
			t.Fatal(err)
		}
		if _, ok := s.find(code); ok || !strings.Contains(log.String(), "has mode 0620") {
			t.Errorf("found %t: %s", ok, log.String())
		}
		if err := os.Chmod(name, 0o600); err != nil {
			t.Fatal(err)
		}
		s.user = *anothers(t, name)
		if _, ok := s.find(code); ok || !strings.Contains(log.String(), "belongs to user ") {
			t.Errorf("found %t: %s", ok, log.String())
		}
		if err := os.Rename(name, name+"0"); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(name+"0", name); err != nil {
			t.Fatal(err)
		}
		if _, ok := s.find(code); ok || !strings.Contains(log.String(), "no regular file") {
			t.Errorf("found %t: %s", ok, log.String())
		}
	})
}
