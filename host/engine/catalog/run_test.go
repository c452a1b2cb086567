package catalog

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/wasmjob/wasmjob/host/config/ceiling"
	"github.com/wasmjob/wasmjob/host/config/definition"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/sandbox/plugin"
)

// rig runs a catalog on a real directory with real events, on modules that are
// texts; see fakeLoader.
type rig struct {
	t      *testing.T
	dir    string
	loader *fakeLoader
	c      *Catalog
	logs   *observer.ObservedLogs
	states chan plan // what was applied, in order
	last   plan
	parsed atomic.Int64 // definitions
	stop   context.CancelFunc
	ended  chan error
}

// newRig starts on a directory with these files. The timer never comes unless
// an option says so: what is noticed is noticed by events.
func newRig(t *testing.T, options func(*Options), files ...string) *rig {
	t.Helper()
	r := &rig{t: t, dir: filepath.Join(t.TempDir(), "plugins"), loader: newFakeLoader(t), states: make(chan plan, 10_000), ended: make(chan error, 1)}
	if err := os.Mkdir(r.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	r.write(files...)
	old := time.Now().Add(-time.Minute) // they are at rest, all of them at the first look
	for _, f := range files {
		name, _, _ := strings.Cut(f, ": ")
		r.must(os.Chtimes(r.path(name), old, old))
	}
	core, logs := observer.New(zapcore.InfoLevel)
	r.logs = logs
	o := Options{Dir: r.dir, Logger: zap.New(core), Rescan: time.Hour, Debounce: 10 * time.Millisecond}
	if options != nil {
		options(&o)
	}
	c, err := newCatalog(o, r.loader, func(file string, data []byte, shared []*definition.Shared) ([]definition.Definition, complaints) {
		r.parsed.Add(1)
		return fakeParse(file, data, shared)
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	r.c, r.stop = c, stop
	go func() {
		r.ended <- c.Run(ctx, func(jobs []engine.Job, refused []engine.Refusal) {
			p := plan{refused: refused}
			for _, j := range jobs {
				p.jobs = append(p.jobs, &binding{digest: j.Module.Digest(), job: j})
			}
			r.states <- p
		})
	}()
	t.Cleanup(func() {
		stop()
		if err := <-r.ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return r
}

func (r *rig) path(name string) string { return filepath.Join(r.dir, name) }

// write puts files there by renaming, each "NAME: TEXT".
func (r *rig) write(files ...string) {
	r.t.Helper()
	for _, f := range files {
		name, text, _ := strings.Cut(f, ": ")
		put(r.t, r.dir, name, text)
	}
}

// must is for one-line file operations.
func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// await waits until a state is applied that says just this; see plan.String.
// In the lines, @TEXT stands for the digest. States in between are passed over,
// unless never says that they must not be.
func (r *rig) await(lines ...string) { r.t.Helper(); r.awaitNever("", lines...) }

// awaitNever is await, and fails if a state before it contains the text.
func (r *rig) awaitNever(never string, lines ...string) {
	r.t.Helper()
	var b strings.Builder
	for _, line := range lines {
		if before, text, ok := strings.Cut(line, "@"); ok {
			line = before + digestOf(text)[:4]
		}
		b.WriteString(strings.ReplaceAll(line, "DIR", r.dir) + "\n")
	}
	want := b.String()
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	for {
		select {
		case p := <-r.states:
			r.last = p
			got := p.String()
			if got == want {
				return
			}
			if never != "" && strings.Contains(got, never) {
				r.t.Fatalf("applied:\n%s\nwhich must not have come before:\n%s", got, want)
			}
		case err := <-r.ended:
			r.t.Fatalf("Run ended: %v", err)
		case <-limit.C:
			r.t.Fatalf("never applied:\n%s\nlast was:\n%s", want, r.last)
		}
	}
}

func TestFirstScan(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, "a.yaml: job a", "a.wasm: one.", "b.yaml: job b", "README.md: hello", "notes.yaml~: job c", ".hidden.yaml: job d", "c.tmp: x")
	r.must(os.MkdirAll(r.path("a/sub"), 0o755))
	r.await(`a "" a.yaml a.wasm @one.`, `refused b.yaml: line 1: job "b": module "b.wasm": there is no such file beside the definition`)
}

func TestEmptyDirectory(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	if p := <-r.states; len(p.jobs) != 0 || len(p.refused) != 0 {
		t.Errorf("applied at first: %v, want nothing", p)
	}
	r.write("a.wasm: one.", "a.yaml: job a")
	r.await(`a "" a.yaml a.wasm @one.`)
}

func TestHotReplace(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, "a.yaml: job a", "a.wasm: one.", "z.yaml: job z", "z.wasm: zed.")
	r.await(`a "" a.yaml a.wasm @one.`, `z "" z.yaml z.wasm @zed.`)
	first := r.last.jobs[1].job.Module
	// At no time is there a state without the job.
	r.write("a.wasm: two..")
	r.awaitNever("refused", `a "" a.yaml a.wasm @two..`, `z "" z.yaml z.wasm @zed.`)
	if r.last.jobs[1].job.Module != first {
		t.Error("the other job got another module value, though nothing of it changed")
	}
	r.write("a.wasm: bad.")
	r.await(`a "" a.yaml a.wasm @two..`, `z "" z.yaml z.wasm @zed.`, `refused (kept) a.wasm: first problem; second problem`)
	r.write("a.yaml: job a a.wasm p")
	r.await(`a "p" a.yaml a.wasm @two..`, `z "" z.yaml z.wasm @zed.`, `refused (kept) a.wasm: first problem; second problem`)
	r.write("a.wasm: three...")
	r.await(`a "p" a.yaml a.wasm @three...`, `z "" z.yaml z.wasm @zed.`)
	r.must(os.Remove(r.path("a.yaml")))
	r.await(`z "" z.yaml z.wasm @zed.`, `refused a.wasm: no definition names it, expected one such as a.yaml beside it`)
	r.must(os.Remove(r.path("a.wasm")))
	r.await(`z "" z.yaml z.wasm @zed.`)
	if n := r.loader.times("zed."); n != 1 {
		t.Errorf("the module that never changed was compiled %d times", n)
	}
}

func TestSlowWriteInPlace(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, "a.yaml: job a", "a.wasm: one.")
	r.await(`a "" a.yaml a.wasm @one.`)
	f, err := os.OpenFile(r.path("a.wasm"), os.O_WRONLY|os.O_TRUNC, 0)
	r.must(err)
	defer f.Close()
	_, err = f.WriteString("half of")
	r.must(err)
	r.await(`a "" a.yaml a.wasm @one.`, `refused (kept) a.wasm: is truncated`)
	_, err = f.WriteString(" the new one.")
	r.must(err)
	r.await(`a "" a.yaml a.wasm @half of the new one.`)
	// Truncated and left: the disk was full.
	r.must(os.Truncate(r.path("a.wasm"), 0))
	r.await(`a "" a.yaml a.wasm @half of the new one.`, `refused (kept) a.wasm: is empty`)
	r.must(os.WriteFile(r.path("a.yaml"), nil, 0o644))
	r.await(`a "" a.yaml a.wasm @half of the new one.`, `refused (kept) a.wasm: is empty`, `refused (kept) a.yaml: is empty`)
}

func TestWriteWithoutEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *Options) { o.Debounce = 100 * time.Millisecond }, "a.yaml: job a", "a.wasm: one.")
	r.await(`a "" a.yaml a.wasm @one.`)
	f, err := os.OpenFile(r.path("a.wasm"), os.O_WRONLY, 0)
	r.must(err)
	defer f.Close()
	// Should the writer be held up for so long that the file counts as being
	// at rest, then it is found truncated, and never taken.
	var stop atomic.Bool
	ended := make(chan error)
	go func() {
		for i := 0; !stop.Load(); i++ {
			if _, err := fmt.Fprintf(f, "%04d", i%10000); err != nil {
				ended <- err
				return
			}
			if _, err := f.Seek(0, 0); err != nil {
				ended <- err
				return
			}
		}
		_, err := f.WriteString("end.")
		ended <- err
	}()
	r.await(`a "" a.yaml a.wasm @one.`, `refused (kept) a.wasm: is still being written`)
	stop.Store(true)
	r.must(<-ended)
	r.await(`a "" a.yaml a.wasm @end.`)
}

// TestVolumeSwap does what Kubernetes does with a mounted ConfigMap.
func TestVolumeSwap(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	version := func(n int, files ...string) {
		t.Helper()
		dir := fmt.Sprintf("..2026_03_0%d", n)
		r.must(os.Mkdir(r.path(dir), 0o755))
		for _, f := range files {
			name, text, _ := strings.Cut(f, ": ")
			r.must(os.WriteFile(r.path(dir+"/"+name), []byte(text), 0o644))
		}
		r.must(os.Symlink(dir, r.path("..data_tmp")))
		r.must(os.Rename(r.path("..data_tmp"), r.path("..data")))
	}
	version(1, "a.yaml: job a", "a.wasm: one.", "b.yaml: job b a.wasm")
	for _, name := range []string{"a.yaml", "a.wasm", "b.yaml"} {
		r.must(os.Symlink("..data/"+name, r.path(name)))
	}
	r.await(`a "" a.yaml a.wasm @one.`, `b "" b.yaml a.wasm @one.`)
	version(2, "a.yaml: job a a.wasm new", "a.wasm: two..", "b.yaml: job b a.wasm")
	r.must(os.RemoveAll(r.path("..2026_03_01")))
	// What was swapped together takes effect together.
	r.awaitNever("refused", `a "new" a.yaml a.wasm @two..`, `b "" b.yaml a.wasm @two..`)
	// A link that leads nowhere is not a deletion.
	version(3, "a.yaml: job a a.wasm new", "a.wasm: two..")
	r.await(`a "new" a.yaml a.wasm @two..`, `b "" b.yaml a.wasm @two..`,
		`refused (kept) b.yaml: is a symbolic link to ..data/b.yaml, which does not exist`)
	r.must(os.Remove(r.path("b.yaml")))
	r.await(`a "new" a.yaml a.wasm @two..`)
}

func TestSpecialFiles(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, "a.yaml: job a", "a.wasm: one.")
	r.await(`a "" a.yaml a.wasm @one.`)
	r.must(os.Remove(r.path("a.wasm")))
	r.must(syscall.Mkfifo(r.path("a.wasm"), 0o644))
	r.must(os.Mkdir(r.path("b.yaml"), 0o755))
	r.must(os.Symlink("c.wasm", r.path("c.wasm")))
	r.await(`a "" a.yaml a.wasm @one.`, `refused (kept) a.wasm: is a named pipe, expected a regular file`,
		`refused b.yaml: is a directory, expected a regular file`, `refused c.wasm: cannot be read: too many levels of symbolic links`)
}

func TestTooLarge(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, "a.yaml: job a", "a.wasm: one.")
	r.await(`a "" a.yaml a.wasm @one.`)
	r.write("a.wasm: x", "a.yaml: x")
	r.must(os.Truncate(r.path("a.wasm"), 32<<20+1))
	r.must(os.Truncate(r.path("a.yaml"), 1<<20+1))
	r.await(`a "" a.yaml a.wasm @one.`, `refused (kept) a.wasm: is 33554433 bytes long, the limit is 33554432`,
		`refused (kept) a.yaml: is 1048577 bytes long, the limit is 1048576`)
}

func TestDirectoryComesBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, "a.yaml: job a", "a.wasm: one.")
	r.await(`a "" a.yaml a.wasm @one.`)
	away := r.dir + ".away"
	r.must(os.Rename(r.dir, away))
	gone := `refused (kept) DIR: cannot be read: no such file or directory`
	r.await(`a "" a.yaml a.wasm @one.`, gone)
	// Back, and changes in it are noticed.
	r.must(os.Rename(away, r.dir))
	r.await(`a "" a.yaml a.wasm @one.`)
	r.write("a.wasm: two..")
	r.await(`a "" a.yaml a.wasm @two..`)
	// Another directory of the name, and changes in that.
	r.must(os.Rename(r.dir, away))
	r.await(`a "" a.yaml a.wasm @two..`, gone)
	r.must(os.Mkdir(r.dir, 0o755))
	r.await()
	r.write("b.wasm: bee.", "b.yaml: job b")
	r.await(`b "" b.yaml b.wasm @bee.`)
}

// TestDirectoryIsALink: the plugins directory itself is a link that is turned.
func TestDirectoryIsALink(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	r := newRig(t, func(o *Options) {
		for n, files := range map[string][]string{"1": {"job a", "one."}, "2": {"job a a.wasm p", "two.."}} {
			dir := filepath.Join(base, n)
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			for i, name := range []string{"a.yaml", "a.wasm"} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(files[i]), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
		o.Dir = filepath.Join(base, "current")
		if err := os.Symlink("1", o.Dir); err != nil {
			t.Fatal(err)
		}
	})
	r.await(`a "" a.yaml a.wasm @one.`)
	r.must(os.Symlink("2", filepath.Join(base, "next")))
	r.must(os.Rename(filepath.Join(base, "next"), filepath.Join(base, "current")))
	r.awaitNever("refused", `a "p" a.yaml a.wasm @two..`)
	r.dir = filepath.Join(base, "2")
	r.write("a.wasm: three.")
	r.await(`a "p" a.yaml a.wasm @three.`)
}

// TestTimer: a change that no event told of, and that neither size nor time
// show.
func TestTimer(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *Options) { o.Rescan = 20 * time.Millisecond }, "a.yaml: job a")
	r.must(os.Mkdir(r.path(".below"), 0o755))
	below := r.path(".below/elsewhere") // no watch is on it
	old := time.Now().Add(-time.Hour)
	r.must(os.WriteFile(below, []byte("one."), 0o644))
	r.must(os.Chtimes(below, old, old))
	r.must(os.Symlink(".below/elsewhere", r.path("a.wasm")))
	r.await(`a "" a.yaml a.wasm @one.`)
	f, err := os.OpenFile(below, os.O_WRONLY, 0)
	r.must(err)
	_, err = f.WriteString("two.")
	r.must(err)
	r.must(f.Close())
	r.must(os.Chtimes(below, old, old))
	r.await(`a "" a.yaml a.wasm @two.`)
	if n := r.parsed.Load(); n != 1 {
		t.Errorf("a definition that did not change was parsed %d times", n)
	}
}

// TestLinksOut: no link is followed out of the directory, however it gets
// there, and nothing of what it leads to is shown.
func TestLinksOut(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, "a.yaml: job a", "a.wasm: one.")
	r.await(`a "" a.yaml a.wasm @one.`)
	outside := filepath.Join(t.TempDir(), "secret")
	r.must(os.WriteFile(outside, []byte("job secret a.wasm hunter2"), 0o644))
	r.must(os.Symlink(filepath.Dir(outside), r.path("..elsewhere")))
	r.must(os.Symlink(outside, r.path("b.yaml")))
	r.must(os.Symlink("..elsewhere/secret", r.path("c.yaml")))
	relative, err := filepath.Rel(r.dir, outside)
	r.must(err)
	r.must(os.Symlink(relative, r.path("d.wasm")))
	r.await(`a "" a.yaml a.wasm @one.`, `refused b.yaml: `+leadsOut, `refused c.yaml: `+leadsOut, `refused d.wasm: `+leadsOut)
	// A file that such a link takes the place of stays in force.
	r.must(os.Symlink(outside, r.path("..next")))
	r.must(os.Rename(r.path("..next"), r.path("a.wasm")))
	r.await(`a "" a.yaml a.wasm @one.`, `refused (kept) a.wasm: `+leadsOut, `refused b.yaml: `+leadsOut, `refused c.yaml: `+leadsOut, `refused d.wasm: `+leadsOut)
}

// TestTooManyJobs: the jobs in force stay, of the others those are taken whose
// names come first.
func TestTooManyJobs(t *testing.T) {
	t.Parallel()
	most, err := ceiling.Parse("team-*:maxJobs=2")
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, func(o *Options) { o.Ceilings = ceiling.List{most} }, "b.yaml: job team-b a.wasm", "a.wasm: one.", "x.yaml: job x a.wasm")
	r.await(`team-b "" b.yaml a.wasm @one.`, `x "" x.yaml a.wasm @one.`)
	r.write("a.yaml: job team-a a.wasm\njob team-c a.wasm\njob other a.wasm")
	const beyond = `refused a.yaml: line 2: job "team-c": is one too many, the host's ceiling maxJobs for jobs "team-*" is 2; --ceiling 'team-*:maxJobs=N' raises it`
	r.await(`other "" a.yaml a.wasm @one.`, `team-a "" a.yaml a.wasm @one.`, `team-b "" b.yaml a.wasm @one.`, `x "" x.yaml a.wasm @one.`, beyond)
	r.must(os.Remove(r.path("b.yaml")))
	r.await(`other "" a.yaml a.wasm @one.`, `team-a "" a.yaml a.wasm @one.`, `team-c "" a.yaml a.wasm @one.`, `x "" x.yaml a.wasm @one.`)
}

// TestOthersDoNotWait: while a module is being compiled, everything else takes
// effect.
func TestOthersDoNotWait(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, "a.yaml: job a", "a.wasm: one.", "b.yaml: job b", "b.wasm: bee.", "c.yaml: job c", "c.wasm: sea.")
	r.await(`a "" a.yaml a.wasm @one.`, `b "" b.yaml b.wasm @bee.`, `c "" c.yaml c.wasm @sea.`)
	r.write("a.wasm: slow one.", "a.yaml: job a a.wasm new")
	r.write("b.yaml: job b b.wasm new")
	r.await(`a "" a.yaml a.wasm @one.`, `b "new" b.yaml b.wasm @bee.`, `c "" c.yaml c.wasm @sea.`)
	r.must(os.Remove(r.path("c.yaml")))
	orphan := `refused c.wasm: no definition names it, expected one such as c.yaml beside it`
	r.await(`a "" a.yaml a.wasm @one.`, `b "new" b.yaml b.wasm @bee.`, orphan)
	r.loader.slow <- struct{}{}
	r.await(`a "new" a.yaml a.wasm @slow one.`, `b "new" b.yaml b.wasm @bee.`, orphan)
	// A compilation that nobody wants any more is given up.
	r.write("a.wasm: slow two.")
	r.write("b.yaml: job b b.wasm newer")
	r.await(`a "new" a.yaml a.wasm @slow one.`, `b "newer" b.yaml b.wasm @bee.`, orphan)
	r.write("a.wasm: quick.")
	r.await(`a "new" a.yaml a.wasm @quick.`, `b "newer" b.yaml b.wasm @bee.`, orphan)
}

// TestStopWhileCompiling: Run ends all the same, and nothing is left open; the
// rig looks after that.
func TestStopWhileCompiling(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, "a.yaml: job a", "a.wasm: one.", "b.yaml: job b", "b.wasm: slow.")
	r.await(`a "" a.yaml a.wasm @one.`)
	r.stop()
}

// TestDefinitionsBeforeTheirModules: at the start that is no mistake yet, and one
// line; later each is a warning.
func TestDefinitionsBeforeTheirModules(t *testing.T) {
	t.Parallel()
	core, logged := observer.New(zapcore.InfoLevel)
	r := newRig(t, func(o *Options) { o.Logger = zap.New(core) }, "a.yaml: job a", "a.wasm: one.", "b.yaml: job b", "c.yaml: job c")
	gone := func(name string) string {
		return fmt.Sprintf("refused %s.yaml: line 1: job %q: module %q: there is no such file beside the definition", name, name, name+".wasm")
	}
	r.await(`a "" a.yaml a.wasm @one.`, gone("b"), gone("c"))
	waiting := logged.FilterMessage("definitions wait for their modules, which are not there yet").All()
	if len(waiting) != 1 || waiting[0].ContextMap()["files"] != "b.yaml, c.yaml" || logged.FilterMessage("file is refused").Len() != 0 {
		t.Errorf("at the start: %+v", logged.All())
	}
	r.write("d.yaml: job d")
	r.await(`a "" a.yaml a.wasm @one.`, gone("b"), gone("c"), gone("d"))
	if n := logged.FilterMessage("file is refused").FilterLevelExact(zapcore.WarnLevel).Len(); n != 1 {
		t.Errorf("later: %d warnings", n)
	}
}

// TestProgress: what is told while modules are compiled, and when the catalog
// counts as settled.
func TestProgress(t *testing.T) {
	t.Parallel()
	notices := make(chan string, 10)
	r := newRig(t, func(o *Options) {
		o.Cache = "/cache"
		core := zapcore.NewCore(zapcore.NewJSONEncoder(zapcore.EncoderConfig{}), zapcore.AddSync(io.Discard), zapcore.InfoLevel)
		o.Notices = zap.New(zapcore.RegisterHooks(core, func(e zapcore.Entry) error {
			notices <- e.Message
			return nil
		}))
	}, "a.yaml: job a\njob other", "a.wasm: slow a.", "b.yaml: job b", "b.wasm: slow b.", "c.yaml: job c b.wasm")
	want := func(text string) {
		t.Helper()
		limit := time.NewTimer(time.Minute)
		defer limit.Stop()
		select {
		case got := <-notices:
			if !strings.HasPrefix(got, text) {
				t.Fatalf("told %q, want %q", got, text)
			}
		case <-limit.C:
			t.Fatalf("never told: %s", text)
		}
	}
	want("compiling 2 modules, once: compiled code is kept in /cache")
	p := r.c.Progress()
	if p.Settled || len(p.Compiling) != 2 || p.Compiling[0].Module != "a.wasm" || p.Compiling[0].Since.IsZero() ||
		!slices.Equal(p.Compiling[0].Jobs, []string{"a", "other"}) || p.Compiling[1].Module != "b.wasm" ||
		p.Compiling[1].Since.IsZero() || !slices.Equal(p.Compiling[1].Jobs, []string{"b", "c"}) {
		t.Errorf("while both are compiled: %+v", p)
	}
	r.loader.slow <- struct{}{}
	want("compiled ") // one of them, and then the other
	r.loader.slow <- struct{}{}
	want("compiled ")
	all := func(a string) []string {
		return []string{`a "" a.yaml a.wasm @` + a, `b "" b.yaml b.wasm @slow b.`, `c "" c.yaml b.wasm @slow b.`, `other "" a.yaml a.wasm @` + a}
	}
	r.await(all("slow a.")...)
	// Another version: the jobs run meanwhile, and the host is as ready as before.
	r.write("a.wasm: slow again.")
	want("compiling a.wasm, once: ")
	p = r.c.Progress()
	if !p.Settled || len(p.Compiling) != 1 || len(p.Compiling[0].Jobs) != 0 {
		t.Errorf("while another a.wasm is compiled: %+v", p)
	}
	r.loader.slow <- struct{}{}
	want("compiled a.wasm in ")
	r.await(all("slow again.")...)
}

// TestCachedModules: no notice names modules whose compiled code is kept, however
// long it takes to read them.
func TestCachedModules(t *testing.T) {
	t.Parallel()
	notices := make(chan string, 10)
	r := newRig(t, func(o *Options) {
		o.Cache = "/cache"
		core := zapcore.NewCore(zapcore.NewJSONEncoder(zapcore.EncoderConfig{}), zapcore.AddSync(io.Discard), zapcore.InfoLevel)
		o.Notices = zap.New(zapcore.RegisterHooks(core, func(e zapcore.Entry) error {
			notices <- e.Message
			return nil
		}))
	}, "a.yaml: job a", "a.wasm: cached a.", "b.yaml: job b", "b.wasm: slow b.", "c.yaml: job c", "c.wasm: cached c.")
	if got, want := <-notices, "compiling b.wasm, once: compiled code is kept in /cache"; got != want {
		t.Errorf("told %q, want %q", got, want)
	}
	for range 3 {
		r.loader.slow <- struct{}{}
	}
	r.await(`a "" a.yaml a.wasm @cached a.`, `b "" b.yaml b.wasm @slow b.`, `c "" c.yaml c.wasm @cached c.`)
	if got := <-notices; !strings.HasPrefix(got, "compiled b.wasm in ") {
		t.Errorf("told %q of a module that was compiled", got)
	}
	if len(notices) > 0 {
		t.Errorf("told %q as well", <-notices)
	}
}

// TestPassingFailure: what may have been bad luck is tried again, though the
// file is the same; what is the module's own fault is not.
func TestPassingFailure(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *Options) { o.Rescan = time.Millisecond }, "a.yaml: job a", "a.wasm: fail.", "b.yaml: job b", "b.wasm: bad.")
	lines := []string{
		`refused a.wasm: out of luck`, `refused a.yaml: line 1: job "a": module "a.wasm": the file is refused`,
		`refused b.wasm: first problem; second problem`, `refused b.yaml: line 1: job "b": module "b.wasm": the file is refused`,
	}
	r.await(lines...)
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	for i := 0; r.loader.times("fail.") < 3; i++ {
		r.write(fmt.Sprintf("c%d.yaml: !x", i)) // so that there is something to wait for
		select {
		case p := <-r.states:
			if !strings.HasPrefix(p.String(), strings.Join(lines, "\n")+"\n") {
				t.Fatalf("in between:\n%s", p)
			}
		case <-limit.C:
			t.Fatal("not tried again")
		}
	}
	if n := r.loader.times("bad."); n != 1 {
		t.Errorf("a bad module was compiled %d times", n)
	}
}

// TestModulesAreClosed: after many versions only those in use and a few idle
// ones are open, and each was compiled once.
func TestModulesAreClosed(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, "a.yaml: job a", "a.wasm: 0.")
	r.await(`a "" a.yaml a.wasm @0.`)
	for i := 1; i <= 20; i++ {
		text := fmt.Sprintf("%d.", i)
		r.write("a.wasm: " + text)
		r.await(`a "" a.yaml a.wasm @` + text)
		if n := r.loader.times(text); n != 1 {
			t.Errorf("version %d was compiled %d times", i, n)
		}
	}
	// Closing comes right after applying: ask for one more state.
	r.write("b.yaml: !x")
	r.await(`a "" a.yaml a.wasm @20.`, `refused b.yaml: line 1: !x`)
	if n := r.loader.opened(); n > 1+keepIdle {
		t.Errorf("%d modules are open, want at most %d", n, 1+keepIdle)
	}
}

// TestLoggedOnce: looks that find nothing new are silent.
func TestLoggedOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *Options) { o.Rescan = time.Millisecond }, "a.yaml: job a", "a.wasm: one.", "b.yaml: !x")
	r.await(`a "" a.yaml a.wasm @one.`, `refused b.yaml: line 1: !x`)
	for i := range 10 {
		r.write(fmt.Sprintf("c.yaml: !%d", i))
		r.await(`a "" a.yaml a.wasm @one.`, `refused b.yaml: line 1: !x`, fmt.Sprintf(`refused c.yaml: line 1: !%d`, i))
	}
	count := make(map[string]int)
	for _, e := range r.logs.All() {
		count[fmt.Sprint(e.Message, e.ContextMap()["file"], e.ContextMap()["module"])]++
	}
	for key, want := range map[string]int{
		"module is ready<nil>a.wasm": 1, "job is defineda.yamla.wasm": 1, "file is refusedb.yaml<nil>": 1, "file is refusedc.yaml<nil>": 10,
	} {
		if count[key] != want {
			t.Errorf("logged %q %d times, want %d; all: %v", key, count[key], want, count)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]Options{
		"no such file or directory": {Dir: filepath.Join(dir, "nowhere")},
		"not a directory":           {Dir: file},
		"expected 0 or more":        {Dir: dir, Rescan: -1},
	} {
		if _, err := newCatalog(o, newFakeLoader(t), fakeParse); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("New(%+v): %v, want an error with %q", o, err, name)
		}
	}
	if _, err := New(Options{Dir: dir}); err == nil {
		t.Error("New without a runtime: no error")
	}
}

// TestMountOfNoJob: a mount whose job is not there is named once, a refused job's is not.
func TestMountOfNoJob(t *testing.T) {
	t.Parallel()
	mounts := map[string][]plugin.Mount{"import": nil, "improt": nil, "b": nil}
	r := newRig(t, func(o *Options) { o.Mounts = mounts }, "import.yaml: job import", "import.wasm: one.", "b.yaml: job b")
	r.await(`import "" import.yaml import.wasm @one.`, `refused b.yaml: line 1: job "b": module "b.wasm": there is no such file beside the definition`)
	r.stop()
	r.ended <- <-r.ended
	if got := r.c.Progress().UnusedMounts; !slices.Equal(got, []string{"improt"}) {
		t.Errorf("unused mounts %q, want improt", got)
	}
	if n := r.logs.FilterMessage("a directory is mounted for a job that is not there").FilterField(zap.String("job", "improt")).Len(); n != 1 || r.logs.FilterMessageSnippet("mounted").Len() != 1 {
		t.Errorf("log: %v", r.logs.All())
	}
}

// TestCase: names that end as a module's or a definition's, but for the case, are refused.
func TestCase(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, "a.yaml: job a", "a.wasm: one.", "My.YAML: job my", "my.Wasm: two.")
	r.await(`a "" a.yaml a.wasm @one.`, "refused My.YAML: ends in .YAML, expected .yaml: rename it", "refused my.Wasm: ends in .Wasm, expected .wasm: rename it")
}

// TestWait: what is more urgent goes first, before each file is read.
func TestWait(t *testing.T) {
	t.Parallel()
	waits := make(chan bool)
	r := newRig(t, func(o *Options) {
		o.Wait = func(ctx context.Context) {
			select {
			case <-waits:
			case <-ctx.Done():
			}
		}
	}, "a.wasm: one.", "a.yaml: job a")
	for range 2 {
		waits <- true
	}
	r.await(`a "" a.yaml a.wasm @one.`)
}
