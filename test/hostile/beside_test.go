package hostile

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/embedded"
	"github.com/wasmjob/wasmjob/coordination/operate"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host"
	"github.com/wasmjob/wasmjob/host/catalog"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/grants"
	"github.com/wasmjob/wasmjob/host/plugin"
)

var (
	beside = flag.Bool("hostile.beside", false, "have a host run each module of the corpus beside an honest job")
	every  = flag.Int("hostile.every", 1, "of the corpus every so manieth module only, another one each day")
	output = flag.String("hostile.output", "", "a file for the table")
)

// What a host keeps to while it runs a hostile module for a second.
const (
	besideLimit = time.Second
	mostRan     = 1200 * time.Millisecond
	mostLate    = 200 * time.Millisecond
	mostGrown   = 64 << 20 // of which the memories kept for the next instance are half
	mostNext    = 20 * time.Second

	// besidePatience is for a module, its load, and all that is waited for. A
	// compiler may take compilePatience, if it does so by itself.
	besidePatience  = time.Minute
	compilePatience = 4 * time.Minute
)

// aside is a host with an honest job that fires each second, and to which
// hostile modules come.
type aside struct {
	dir      string
	operator registry.Center
	count    int // of modules so far

	mu     sync.Mutex
	events []event.Event
	bad    []host.Refusal
	news   chan struct{} // closed when there is something new

	end func() error
}

// honest is the name of the job beside.
const honest = "honest"

func newBeside() (tester, error) {
	root, err := os.MkdirTemp("", "wasmjob-beside-")
	if err != nil {
		return nil, err
	}
	b := &aside{dir: filepath.Join(root, "plugins"), news: make(chan struct{})}
	if err := os.Mkdir(b.dir, 0o700); err != nil {
		return nil, err
	}
	server, err := embedded.Open(embedded.Options{})
	if err != nil {
		return nil, err
	}
	rt, err := plugin.NewRuntime(context.Background(), plugin.Options{
		CacheDir: filepath.Join(root, "cache"),
		Compiler: func() *exec.Cmd {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), roleVariable+"="+roleCompile)
			return cmd
		},
	})
	if err != nil {
		return nil, err
	}
	granted, err := grantsAt(root)
	if err != nil {
		return nil, err
	}
	files, err := catalog.New(catalog.Options{Dir: b.dir, Runtime: rt, Grants: granted})
	if err != nil {
		return nil, err
	}
	h, err := host.New(host.Config{
		Dial:      func(ctx context.Context) (registry.Center, error) { return server.Connect(ctx) },
		Namespace: "hostile", ServerIP: "10.0.0.1",
		OnEvent: func(e event.Event) {
			b.mu.Lock()
			defer b.mu.Unlock()
			e.Item, e.Previous = nil, nil // which may keep what they point into
			b.events = append(b.events, e)
			b.wake()
		},
	})
	if err != nil {
		return nil, err
	}
	if b.operator, err = server.Connect(context.Background()); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	var parts sync.WaitGroup
	var failed [2]error
	parts.Go(func() {
		failed[0] = files.Run(ctx, func(jobs []host.Job, bad []host.Refusal) {
			b.mu.Lock()
			b.bad = slices.Clone(bad)
			b.wake()
			b.mu.Unlock()
			h.Apply(jobs, bad)
		})
	})
	parts.Go(func() { failed[1] = h.Run(ctx, ctx) })
	b.end = func() error {
		stop()
		parts.Wait()
		return errors.Join(failed[0], failed[1], server.Close(), rt.Close(context.Background()), os.RemoveAll(root))
	}

	noop := newJob(1).execute("")
	if err := b.put(honest, noop, "cron: '* * * * * ?'\n"); err != nil {
		return nil, err
	}
	b.wait(func() bool { return b.find(0, honest, event.FireEnded) != nil })
	return b, nil
}

// grantsAt is a file with what everything grants, for the hostile jobs.
func grantsAt(root string) (*grants.Set, error) {
	file, at := filepath.Join(root, "grants.yaml"), filepath.Join(root, "files")
	text := fmt.Sprintf(`grants:
  - jobs: hostile*
    http: [{url: "http://127.0.0.1:1/", private: true}]
    net: [{to: "tcp://127.0.0.1:1", private: true}]
    dirs: [{host: %q, guest: /, write: true, quota: 256MiB, files: 1000}]
    kv: true
    env: {k: v}
    secrets: {k: {file: /proc/version, readable: true}}
    quotas: {requests: 1000000, connections: 256, sent: 1024GiB, received: 1024GiB}
`, at)
	if err := errors.Join(os.Mkdir(at, 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
		return nil, err
	}
	return grants.Read(file)
}

func (b *aside) close() error { return b.end() }

// wake says that there is news. The caller has the lock.
func (b *aside) wake() {
	close(b.news)
	b.news = make(chan struct{})
}

// put writes a module and its job's definition, each at once.
func (b *aside) put(job string, wasm []byte, definition string) error {
	for _, f := range []struct {
		name string
		data []byte
	}{{job + ".wasm", wasm}, {job + ".yaml", []byte("shardingTotalCount: 1\n" + definition)}} {
		path := filepath.Join(b.dir, f.name)
		if err := os.WriteFile(path+".tmp", f.data, 0o600); err != nil {
			return err
		}
		if err := os.Rename(path+".tmp", path); err != nil {
			return err
		}
	}
	return nil
}

func (b *aside) remove(job string) error {
	return errors.Join(os.Remove(filepath.Join(b.dir, job+".yaml")), os.Remove(filepath.Join(b.dir, job+".wasm")))
}

// wait waits until something is so, which is asked again at each event. Whoever
// started this process bounds the wait.
func (b *aside) wait(so func() bool) {
	for {
		b.mu.Lock()
		ok, news := so(), b.news
		b.mu.Unlock()
		if ok {
			return
		}
		<-news
	}
}

// find is the first event of a job of a kind, among those from mark on; nil if
// there is none. The caller has the lock.
func (b *aside) find(mark int, job string, kind event.Kind) *event.Event {
	for i, e := range b.events[mark:] {
		if e.Job == job && e.Kind == kind {
			return &b.events[mark+i]
		}
	}
	return nil
}

// refusal is why the module of a job is not loaded. The caller has the lock.
func (b *aside) refusal(job string) string {
	for _, r := range b.bad {
		if strings.HasPrefix(filepath.Base(r.File), job+".") {
			return strings.Join(r.Reasons, "; ")
		}
	}
	return ""
}

// mark is where the events end so far.
func (b *aside) mark() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.events)
}

func (b *aside) run(m Module) report {
	r, err := b.attack(m)
	if err != nil {
		r.Dead = err.Error()
	}
	return r
}

func (b *aside) attack(m Module) (r report, err error) {
	b.count++
	hostile, next := fmt.Sprint("hostile", b.count), fmt.Sprint("next", b.count)
	before := resident()
	stopCollecting := collect()
	elsewhere, longest := others(), pauses()
	mark, began := b.mark(), time.Now()

	definition := fmt.Sprintf("timeout: %s\n", besideLimit)
	if m.Type != "" {
		definition += "type: " + m.Type + "\n"
	}
	if m.Streaming {
		definition += "streamingProcess: true\n"
	}
	if err := b.put(hostile, m.Wasm, definition); err != nil {
		return r, err
	}
	other := newJob(1)
	other.Custom("edition", []byte(next)) // so that it has to be compiled
	if err := b.put(next, other.execute(""), ""); err != nil {
		return r, err
	}
	b.wait(func() bool {
		ready := b.find(mark, next, event.Assigned)
		if ready != nil {
			r.Next = ready.Time.Sub(began)
		}
		return ready != nil
	})
	b.wait(func() bool {
		r.Refused = b.refusal(hostile)
		return r.Refused != "" || b.find(mark, hostile, event.Assigned) != nil
	})
	r.Loading = time.Since(began)
	if r.Refused == "" {
		if err := operate.TriggerJob(context.Background(), b.operator, tree.NewLayout("hostile", hostile)); err != nil {
			return r, err
		}
		b.wait(func() bool {
			ended := b.find(mark, hostile, event.ItemEnded)
			if ended != nil {
				r.Ran, r.Outcome, r.Text = ended.Duration, ended.Outcome, ended.Reason
			}
			return ended != nil && b.find(mark, hostile, event.FireEnded) != nil
		})
	}
	// What the honest job did meanwhile, and once more after that.
	last := b.mark()
	b.wait(func() bool { return b.find(last, honest, event.FireStarted) != nil })
	b.mu.Lock()
	for _, e := range b.events[mark:] {
		switch {
		case e.Job == honest && e.Kind == event.FireStarted:
			r.Late = max(r.Late, e.Lag)
		case e.Job == honest && e.Kind == event.FireSkipped:
			r.Late = max(r.Late, time.Second)
		}
	}
	b.mu.Unlock()
	r.Others, r.Pause = max(others()-elsewhere, 0), longest()
	stopCollecting()

	if err := errors.Join(b.remove(hostile), b.remove(next)); err != nil {
		return r, err
	}
	b.wait(func() bool {
		gone := b.find(mark, hostile, event.JobRemoved) != nil || r.Refused != ""
		return gone && b.refusal(hostile) == "" && b.find(mark, next, event.JobRemoved) != nil
	})
	r.Grown = resident() - before
	return r, nil
}

// resident is the memory that this process has, once it has given back what it
// can. It is 0 where the system does not say.
func resident() int64 {
	runtime.GC() // finds code unreachable, which a finalizer frees
	runtime.GC()
	debug.FreeOSMemory()
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(b))
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize())
}

// wrongBeside says what of a report is not as it has to be.
func wrongBeside(m Module, r report) []string {
	if r.Dead != "" {
		return []string{r.Dead}
	}
	var list []string
	check := func(bad bool, format string, args ...any) {
		if bad {
			list = append(list, fmt.Sprintf(format, args...))
		}
	}
	others := min(r.Others, mostOthers)
	check(r.Ran > mostRan+others, "it ran for %s", r.Ran)
	check(r.Pause > longestPause+others, "the collector had to wait for %s", r.Pause)
	check(r.Late > mostLate+others, "the honest job was late by %s", r.Late)
	check(r.Next > mostNext+others, "the next module had to wait for %s", r.Next)
	check(r.Grown > mostGrown, "%d MiB of memory were not given back", r.Grown>>20)
	check(m.End == Stopped && r.Refused != "", "it was refused: %s", r.Refused)
	check(m.End == Refused && r.Refused == "", "it was loaded, and ended with %s", r.Outcome)
	check(m.End == Stopped && r.Refused == "" && r.Outcome != abi.OutcomeTimeout, "it ended with %s: %s", r.Outcome, r.Text)
	return list
}

// A host that runs a hostile module for a second stops it, fires its honest job
// in time, compiles the next module soon, and has its memory back.
func TestBeside(t *testing.T) {
	if !*beside {
		t.Skip("make hostile runs it")
	}
	byName := map[string]Module{}
	var list []string
	day := int(time.Now().Unix() / (24 * 60 * 60))
	for i, m := range corpus(t) {
		if m.Listener != "" || m.Streaming {
			continue // the job's limit is not for these
		}
		if strings.Contains(m.Name, *only) && (i+day)%*every == 0 {
			byName[m.Name] = m
			list = append(list, m.Name)
		}
	}
	names := make(chan string)
	go func() {
		defer close(names)
		for _, n := range list {
			names <- n
		}
	}()
	table := &strings.Builder{}
	fmt.Fprintln(table, "| Module | End | Ran | Longest pause | Honest job late | Next module after | Memory | |")
	fmt.Fprintln(table, "| --- | --- | --: | --: | --: | --: | --: | --- |")
	milliseconds := func(d time.Duration) string { return fmt.Sprintf("%d ms", d.Milliseconds()) }
	bad := 0
	patience := func(name string) time.Duration {
		if strings.HasPrefix(name, "compile/") {
			return compilePatience
		}
		return besidePatience
	}
	judged(t, roleHost, 1, patience, names, func(name string, r report) string {
		return strings.Join(wrongBeside(byName[name], r), "; ")
	}, func(name string, r report, wrong string) {
		end := string(r.Outcome)
		if r.Refused != "" {
			end = "refused"
		}
		if wrong != "" {
			bad++
			t.Errorf("%s: %s (others had the processors for %s)", name, wrong, r.Others)
		}
		fmt.Fprintf(table, "| %s | %s | %s | %s | %s | %s | %d MiB | %s |\n", name, end, milliseconds(r.Ran), milliseconds(r.Pause),
			milliseconds(r.Late), milliseconds(r.Next), r.Grown>>20, strings.ReplaceAll(wrong, "\n", " "))
	})
	fmt.Fprintf(table, "\n%d of %d modules did harm.\n", bad, len(list))
	t.Log("\n" + table.String())
	if *output != "" {
		if err := os.WriteFile(*output, []byte(table.String()), 0o600); err != nil {
			t.Error(err)
		}
	}
}
