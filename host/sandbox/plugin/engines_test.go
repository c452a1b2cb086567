package plugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/sandbox/wasm"
)

// What leaves memory and what comes back is decided from when it is needed.
func TestSettle(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 4, 10, 0, 0, 0, time.UTC)
	in := func(name string, next, used time.Duration) Held[*code] {
		h := Held[*code]{Code: &code{info: &wasm.Info{Digest: name}}, Bytes: 10, In: true, Used: now.Add(-used)}
		if next != 0 {
			h.Next = now.Add(next)
		}
		return h
	}
	out := func(name string, next time.Duration) Held[*code] {
		h := in(name, next, time.Hour)
		h.In = false
		return h
	}
	busy := func(h Held[*code]) Held[*code] { h.Busy = true; return h }
	for name, c := range map[string]struct {
		all           []Held[*code]
		limit, wanted int64
		out           string // names, in order
		back          string
		wake          time.Duration // 0: none
	}{
		"all fit":                            {[]Held[*code]{in("a", time.Hour, 0), in("b", 0, time.Hour)}, 20, 0, "", "", 0},
		"what is needed last leaves":         {[]Held[*code]{in("a", time.Hour, 0), in("b", 2*time.Hour, 0), in("c", time.Minute, 0)}, 20, 0, "b", "", 0},
		"as many as it takes":                {[]Held[*code]{in("a", time.Hour, 0), in("b", 2*time.Hour, 0), in("c", time.Minute, 0)}, 10, 0, "b a", "", 0},
		"not known: as long as it idled":     {[]Held[*code]{in("a", time.Hour, 0), in("b", 0, 2*time.Hour), in("c", 0, time.Minute)}, 10, 0, "b a", "", 0},
		"a time long past is not known":      {[]Held[*code]{in("a", -time.Hour, 2*time.Hour), in("b", time.Hour, 0)}, 10, 0, "a", "", 0},
		"what runs stays":                    {[]Held[*code]{busy(in("a", 3*time.Hour, 0)), in("b", time.Hour, 0)}, 10, 0, "b", "", 0},
		"nothing else is left to leave":      {[]Held[*code]{busy(in("a", 3*time.Hour, 0)), in("b", Soon, 0)}, 10, 0, "", "", 0},
		"due this moment":                    {[]Held[*code]{in("a", -time.Second, 0), in("b", 0, time.Minute)}, 10, 0, "b", "", 0},
		"a guest needs the memory":           {[]Held[*code]{in("a", time.Second, 0), in("b", Soon, 0), in("c", time.Hour, 0)}, 100, 15, "c b", "", 0},
		"but not what runs":                  {[]Held[*code]{busy(in("a", time.Hour, 0))}, 100, 15, "", "", 0},
		"comes back":                         {[]Held[*code]{in("a", time.Hour, 0), out("b", Soon)}, 20, 0, "", "b", 0},
		"in the place of another":            {[]Held[*code]{in("a", time.Hour, 0), in("b", time.Minute, 0), out("c", Soon)}, 20, 0, "a", "c", 0},
		"the first comes first":              {[]Held[*code]{out("a", 3*time.Second), out("b", time.Second), out("c", 2*time.Second)}, 20, 0, "", "b", 0},
		"not while a guest needs memory":     {[]Held[*code]{in("a", time.Hour, 0), out("b", Soon)}, 100, 5, "a", "", 0},
		"no room beside what is due":         {[]Held[*code]{in("a", time.Second, 0), out("b", Soon)}, 10, 0, "", "", 0},
		"later":                              {[]Held[*code]{in("a", time.Hour, 0), out("b", 2*time.Minute), out("c", time.Minute)}, 20, 0, "", "", time.Minute - Soon},
		"it is not known when, and it stays": {[]Held[*code]{out("a", 0)}, 20, 0, "", "", 0},
	} {
		gone, back, wake := Settle(c.all, c.limit, c.wanted, now)
		var names []string
		for _, h := range gone {
			names = append(names, h.Code.info.Digest)
		}
		if got := strings.Join(names, " "); got != c.out {
			t.Errorf("%s: %q leaves, want %q", name, got, c.out)
		}
		got := ""
		if back != nil {
			got = back.Code.info.Digest
		}
		if got != c.back {
			t.Errorf("%s: %q comes back, want %q", name, got, c.back)
		}
		want := time.Time{}
		if c.wake != 0 {
			want = now.Add(c.wake)
		}
		if !wake.Equal(want) {
			t.Errorf("%s: it is decided again at %s, want %s", name, wake, want)
		}
	}
}

// versions are modules that differ in nothing but a section that does nothing, and what each takes in memory once it
// is compiled.
func versions(t *testing.T, wasm []byte, n int) (list [][]byte, bytes int64) {
	t.Helper()
	for i := range n {
		list = append(list, appendSection(slices.Clone(wasm), 0, append([]byte{1, 'n'}, byte(i))))
	}
	r := newRuntime(t, Options{CacheDir: filepath.Join(t.TempDir(), "cache")})
	m := load(t, r, list[0])
	defer m.Close()
	return list, r.Memory().Code
}

// until waits for what another goroutine brings about.
func until(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: it does not come about", what)
		}
	}
}

// inMemory is the engine, if there is one.
func (x *executor) inMemory() *engine {
	x.r.mu.Lock()
	defer x.r.mu.Unlock()
	return x.code.engine
}

// Modules beyond the limit leave memory when no guest runs in them, come back
// for a fire, and ahead of one that is known.
func TestModulesLeaveAndComeBack(t *testing.T) {
	t.Parallel()
	needsCompiler(t)
	wasms, bytes := versions(t, guest(t, "c/guest"), 6)
	r := newRuntime(t, Options{CacheDir: filepath.Join(t.TempDir(), "cache"), ModuleMemory: 2 * bytes})
	var all []*executor
	for _, file := range wasms {
		m := load(t, r, file)
		x, err := m.Executor(Settings{Type: wasm.TypeSimple})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		defer x.Release()
		all = append(all, x.(*executor))
	}
	settled := func() bool { return r.Memory().Code <= 2*bytes }
	until(t, "six modules beyond a limit of two", settled)

	first := worked(t, all[0])
	defer first.Close()
	engine := all[0].inMemory()
	for range 2 {
		for i, x := range all {
			w := worked(t, x)
			if got := w.Execute(t.Context(), item(newRecorder(), "ok")); got.Outcome != abi.OutcomeOK {
				t.Errorf("module %d: %+v", i, got)
			}
			w.Close()
		}
	}
	until(t, "after all have run", settled)
	if all[0].inMemory() != engine {
		t.Error("a module left memory while a worker counted on it")
	}
	if got := first.Execute(t.Context(), item(newRecorder(), "ok")); got.Outcome != abi.OutcomeOK {
		t.Errorf("in an engine that others were to replace: %+v", got)
	}
	if m := r.Memory(); m.Idle != m.Code-bytes {
		t.Errorf("one module is in use: %+v", m)
	}

	if r.Memory().Late == 0 {
		t.Error("modules that had left were not counted")
	}
	for i, x := range all {
		x.Expect(time.Now().Add(time.Duration(i+1) * time.Hour))
	}
	last := all[5]
	worked(t, all[1]).Close()
	until(t, "what is needed last", func() bool { return last.inMemory() == nil })
	last.Expect(time.Now().Add(Soon / 2))
	until(t, "ahead of its fire", func() bool {
		e := last.inMemory()
		if e == nil {
			return false
		}
		<-e.ready
		return e.err == nil
	})
	until(t, "with it", settled)
	if last.inMemory() == nil {
		t.Error("what is due Soon has left memory")
	}

	last.Expect(time.Time{})
	all[4].Expect(time.Now().Add(Soon / 2))
	until(t, "in its place", func() bool { return last.inMemory() == nil })
	if err := last.code.wasm.file.Close(); err != nil {
		t.Fatal(err)
	}
	w := worked(t, last)
	defer w.Close()
	got := w.Execute(t.Context(), item(newRecorder(), "ok"))
	if e, ok := errors.AsType[*Error](got.Err); got.Outcome != abi.OutcomeError || !ok || e.Kind != KindLoad || !strings.Contains(got.Message, "read the module again") {
		t.Errorf("it cannot be loaded again: %+v", got)
	}
}

// What the cache has waits for nothing that is compiled.
func TestCacheIsAheadOfTheLanes(t *testing.T) {
	t.Parallel()
	needsCompiler(t)
	for name, compiler := range map[string]func() *exec.Cmd{"here": nil, "by a process": compiler("good")} {
		o := Options{CacheDir: filepath.Join(t.TempDir(), "cache"), Compiler: compiler}
		load(t, newRuntime(t, o), guest(t, "wat/noop")).Close()
		r := newRuntime(t, o)
		for _, l := range []*lane{r.quick, r.long} {
			for l.free > 0 {
				if err := l.enter(t.Context(), time.Time{}); err != nil {
					t.Fatal(err)
				}
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		m, err := r.Load(ctx, "noop.wasm", guest(t, "wat/noop"), time.Time{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		m.Close()
	}
}

// Without a cache directory there is nowhere to come back from.
func TestModulesStayWithoutCache(t *testing.T) {
	t.Parallel()
	wasms, _ := versions(t, guest(t, "c/guest"), 3)
	r := newRuntime(t, Options{ModuleMemory: 1})
	for _, wasm := range wasms {
		m := load(t, r, wasm)
		defer m.Close()
		if m.code.engine == nil {
			t.Error("the module has left memory")
		}
	}
}

// Idle code does not stand in the way of a guest, nor of other code.
func TestIdleCodeMakesRoom(t *testing.T) {
	t.Parallel()
	needsCompiler(t)
	wasms, bytes := versions(t, guest(t, "c/guest"), 6)
	const total = 2 << 20
	r := newRuntime(t, Options{CacheDir: filepath.Join(t.TempDir(), "cache"), ModuleMemory: total, MemoryBudget: total})
	var modules []*Module
	for _, wasm := range wasms {
		m := load(t, r, wasm)
		defer m.Close()
		modules = append(modules, m)
	}
	if m := r.Memory(); m.Code != 6*bytes || m.Idle != m.Code {
		t.Fatalf("six modules were tried: %+v", m)
	}
	a, err := r.Admit(t.Context(), "a", total/2)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b, err := r.Admit(t.Context(), "b", total/2-3*bytes)
	if err != nil {
		t.Fatal(err)
	}
	until(t, "three modules leave for a guest", func() bool { return r.Memory().Code == 3*bytes })
	if b.Cover(total/2-2*bytes) != nil {
		t.Error("a guest is refused memory that idle code has")
	}
	until(t, "one more leaves for it", func() bool { return r.Memory().Code == 2*bytes })
	if b.Cover(total/2+1) == nil {
		t.Error("a guest is given memory that is in use")
	}

	var engines []*engine
	get := func(m *Module) (*engine, error) {
		return r.acquire(t.Context(), m.code, time.Time{})
	}
	for _, m := range modules[:2] { // in the places of those that are left
		e, err := get(m)
		if err != nil {
			t.Fatal(err)
		}
		engines = append(engines, e)
	}
	third := make(chan *engine)
	go func() {
		e, err := get(modules[2])
		if err != nil {
			t.Error(err)
		}
		third <- e
	}()
	until(t, "a third module waits", func() bool { return r.Memory().Waiting == 1 })
	r.release(engines[0])
	if e := <-third; e != nil {
		r.release(e)
	}
	r.release(engines[1])
}

// Of those that wait, the one goes first that is due first; a wait that is given up
// takes no place.
func TestLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLane(1)
		if err := l.enter(t.Context(), time.Time{}); err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		order := make(chan string, 9)
		enter := func(ctx context.Context, name string, due time.Time) {
			go func() {
				if err := l.enter(ctx, due); err != nil {
					order <- name + ": " + err.Error()
					return
				}
				order <- name
				l.leave()
			}()
			synctest.Wait()
		}
		enter(t.Context(), "unknown", time.Time{})
		enter(t.Context(), "late", now.Add(time.Hour))
		enter(t.Context(), "late too", now.Add(time.Hour))
		given, cancel := context.WithCancel(t.Context())
		enter(given, "given up", now)
		enter(t.Context(), "first", now.Add(time.Second))
		enter(t.Context(), "unknown too", time.Time{})
		cancel()
		synctest.Wait()
		l.leave()
		synctest.Wait()
		close(order)
		var got []string
		for name := range order {
			got = append(got, name)
		}
		if want := []string{"given up: context canceled", "first", "late", "late too", "unknown", "unknown too"}; !slices.Equal(got, want) {
			t.Errorf("in the order %q, want %q", got, want)
		}
		if l.free != 1 || len(l.waiting) != 0 {
			t.Errorf("%d places are free, %d wait", l.free, len(l.waiting))
		}
	})
}

// A module's bytes lie in a file without a name, or in memory where that cannot be.
func TestSpill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, c := range map[string]struct {
		dir    string
		inFile bool
	}{
		"a directory":     {dir, true},
		"no directory":    {"", false},
		"it is not there": {filepath.Join(dir, "none"), false},
	} {
		s := spill(c.dir, []byte("the module"))
		got, err := s.read()
		if err != nil || string(got) != "the module" || s.size != len("the module") {
			t.Errorf("%s: %q of %d bytes: %v", name, got, s.size, err)
		}
		if inFile := s.file != nil && s.bytes == nil; inFile != c.inFile {
			t.Errorf("%s: in a file %t, want %t", name, inFile, c.inFile)
		}
		s.close()
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 0 {
		t.Errorf("in the directory is %s: %v", fmt.Sprint(left), err)
	}
}
