package hostile

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/admin/operate"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/embedded"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/config/grants"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/engine/catalog"
	"github.com/wasmjob/wasmjob/host/event"
)

var (
	beside = flag.Bool("hostile.beside", false, "have a host run each module of the corpus beside an honest job")
	every  = flag.Int("hostile.every", 1, "of the corpus every so manieth module only, another one each day")
	output = flag.String("hostile.output", "", "a file for the table")
)

// What a host keeps to while it runs a hostile module for a second.
const (
	besideLimit = time.Second
	mostOver    = 200 * time.Millisecond
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
	isolation string
	dir       string
	operator  registry.Center
	count     int // of modules so far

	mu     sync.Mutex
	events []event.Event
	bad    []engine.Refusal
	news   chan struct{} // closed when there is something new

	end func() error
}

// honest is the name of the job beside.
const honest = "honest"

// newBeside is a host that runs its honest job, in a directory of its own.
func newBeside(isolation string, budget int64) (*aside, error) {
	root, err := os.MkdirTemp("", "beside-") // below that of the process
	if err != nil {
		return nil, err
	}
	b, err := newAside(isolation, root, budget)
	if err == nil {
		err = b.putHonest()
	}
	if err != nil {
		return nil, err
	}
	b.wait(func() bool { return b.find(0, honest, event.FireEnded) != nil })
	return b, nil
}

// newAside is a host in a directory, with the jobs that are there: its plugins
// and the cache stay. After close, the directory can be used again.
func newAside(isolation, root string, budget int64) (*aside, error) {
	b := &aside{isolation: isolation, dir: filepath.Join(root, "plugins"), news: make(chan struct{})}
	if err := os.MkdirAll(b.dir, 0o700); err != nil {
		return nil, err
	}
	server, err := embedded.Open(embedded.Options{})
	if err != nil {
		return nil, err
	}
	rt, workers, err := newRuntime(filepath.Join(root, "cache"), budget)
	if err != nil {
		return nil, err
	}
	granted, err := grantsAt(root)
	if err != nil {
		return nil, err
	}
	files, err := catalog.New(catalog.Options{Dir: b.dir, Runtime: rt, Workers: workers, Placement: catalog.Placement{InProcess: []string{"*"}}, Grants: granted})
	if err != nil {
		return nil, err
	}
	h, err := engine.New(engine.Config{
		Dial:      func(ctx context.Context) (registry.Center, error) { return server.Connect(ctx) },
		Namespace: "hostile", ServerIP: "10.0.0.1",
		OnEvent: func(e event.Event) {
			b.mu.Lock()
			defer b.mu.Unlock()
			e.Item, e.Previous = nil, nil // which may keep what they point into
			e.Reason = strings.Clone(e.Reason[:min(len(e.Reason), mostReason+1)])
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
		failed[0] = files.Run(ctx, func(jobs []engine.Job, bad []engine.Refusal) {
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
		workers.Close()
		return errors.Join(failed[0], failed[1], server.Close(), rt.Close(context.Background()))
	}
	return b, nil
}

// putHonest adds the job that fires each second and does nothing.
func (b *aside) putHonest() error {
	return b.put(honest, newJob(1).execute(""), 1, "cron: '* * * * * ?'\n"+b.isolated())
}

// isolated is the line of a definition that says where guests run.
func (b *aside) isolated() string { return "isolation: " + b.isolation + "\n" }

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
	if err := errors.Join(os.MkdirAll(at, 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
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
func (b *aside) put(job string, wasm []byte, items int, definition string) error {
	definition = fmt.Sprintf("shardingTotalCount: %d\n", items) + definition
	return errors.Join(b.write(job+".wasm", wasm), b.write(job+".yaml", []byte(definition)))
}

// putHostile writes a module with a job that may run it for a second, or the definition that
// attacks.
func (b *aside) putHostile(job string, m Module, definition string) error {
	if m.Definition != "" {
		return b.write(job+".yaml", []byte(m.Definition))
	}
	definition += fmt.Sprintf("timeout: %s\n", max(besideLimit, m.Runs)) + b.isolated()
	if m.Memory != 0 {
		definition += fmt.Sprintf("memoryLimit: %dKiB\n", m.Memory>>10)
	}
	if m.Type != "" {
		definition += "type: " + m.Type + "\n"
	}
	if m.Streaming {
		definition += "streamingProcess: true\n"
	}
	if m.Items > 1 {
		definition += fmt.Sprintf("maxConcurrency: %d\n", m.Items)
	}
	return b.put(job, m.Wasm, max(m.Items, 1), definition)
}

func (b *aside) write(name string, data []byte) error {
	path := filepath.Join(b.dir, name)
	if err := os.WriteFile(path+".tmp", data, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}

// remove removes what there is of a job.
func (b *aside) remove(job string) error {
	for _, ext := range []string{".yaml", ".wasm"} {
		if err := os.Remove(filepath.Join(b.dir, job+ext)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
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
	defer runtime.KeepAlive(m.Wasm) // it is there before and after
	before := settled(left{})
	stopCollecting := func() {}
	if m.Runs == 0 { // at work all the time, the collector leaves a guest little time to take memory
		stopCollecting = collect()
	}
	elsewhere, longest := others(), pauses()
	mark, began := b.mark(), time.Now()

	if err := b.putHostile(hostile, m, ""); err != nil {
		return r, err
	}
	other := newJob(1)
	other.Custom("edition", []byte(next)) // so that it has to be compiled
	if err := b.put(next, other.execute(""), 1, b.isolated()); err != nil {
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
		r.say(&r.Refused, b.refusal(hostile))
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
				r.Ran, r.Outcome = ended.Duration, ended.Outcome
				r.say(&r.Text, ended.Reason)
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

	removed := time.Now()
	if err := errors.Join(b.remove(hostile), b.remove(next)); err != nil {
		return r, err
	}
	b.wait(func() bool {
		gone := b.find(mark, hostile, event.JobRemoved) != nil || r.Refused != ""
		return gone && b.refusal(hostile) == "" && b.find(mark, next, event.JobRemoved) != nil
	})
	r.Close = time.Since(removed)
	r.Left = settled(before).since(before)
	return r, nil
}

// wrongBeside says what of a report is not as it has to be.
func wrongBeside(m Module, r report, isolation string) *verdict {
	v := &verdict{}
	r.Memory.wrong(v, isolation, m)
	if v.check(r.Dead != "", "%s", r.Dead); r.Dead != "" {
		return v
	}
	r.Left.wrong(v)
	others, most := min(r.Others, mostOthers), max(besideLimit, m.Runs)
	if isolation == isolationHost {
		most += mostOver + others
	} else {
		most += more
	}
	v.time(r.Ran > most, "it ran for %s", r.Ran)
	v.time(r.Pause > longestPause+others, "the collector had to wait for %s", r.Pause)
	v.time(r.Late > mostLate+others, "the honest job was late by %s", r.Late)
	v.time(r.Next > mostNext+others, "the next module had to wait for %s", r.Next)
	v.time(r.Close > more+others, "it was gone after %s", r.Close)
	v.check(r.Said > mostReason, "%d bytes were said about it", r.Said)
	v.check(r.Outcome == abi.OutcomeWorker, "it has ended its worker process: %s", r.Text)
	v.check(m.End == Stopped && r.Refused != "", "it was refused: %s", r.Refused)
	v.check(m.End == Refused && r.Refused == "", "it was loaded, and ended with %s", r.Outcome)
	v.check(m.End == Stopped && r.Refused == "" && r.Outcome != abi.OutcomeTimeout, "it ended with %s: %s", r.Outcome, r.Text)
	return v
}

// table is a part of the result.
type table struct{ strings.Builder }

func (t *table) row(cells ...any) {
	t.WriteString("|")
	for _, c := range cells {
		if d, ok := c.(time.Duration); ok {
			c = ms(d)
		}
		text := strings.ReplaceAll(fmt.Sprint(c), "\n", " ")
		fmt.Fprintf(t, " %s |", strings.ReplaceAll(text, "|", "\\|"))
	}
	t.WriteString("\n")
}

// head begins a table; a column whose name ends with a colon has figures.
func (t *table) head(title string, columns ...string) {
	fmt.Fprintf(t, "## %s\n\n", title)
	names, lines := make([]any, len(columns)), make([]any, len(columns))
	for i, c := range columns {
		name, figures := strings.CutSuffix(c, ":")
		if names[i], lines[i] = name, "---"; figures {
			lines[i] = "--:"
		}
	}
	t.row(names...)
	t.row(lines...)
}

// publish shows the table, and appends it to the file of the results.
func (t *table) publish(test *testing.T) {
	test.Helper()
	test.Log("\n" + t.String())
	if *output == "" {
		return
	}
	f, err := os.OpenFile(*output, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		test.Fatal(err)
	}
	_, err = f.WriteString(t.String() + "\n")
	if err := errors.Join(err, f.Close()); err != nil {
		test.Error(err)
	}
}

// chosen is what of the list is run: today's part of it.
func chosen(list []Module) []Module {
	day := int(time.Now().Unix() / (24 * 60 * 60))
	var part []Module
	for i, m := range list {
		if strings.Contains(m.Name, *only) && (i+day)%*every == 0 {
			part = append(part, m)
		}
	}
	return part
}

func besidePatienceFor(m Module) time.Duration {
	if strings.HasPrefix(m.Name, "compile/") {
		return compilePatience
	}
	return besidePatience
}

// A host that runs a hostile module for a second stops it, fires its honest job
// in time, compiles the next module soon, and has its memory back.
func TestBeside(t *testing.T) {
	if !*beside {
		t.Skip("make hostile runs it")
	}
	list := chosen(slices.DeleteFunc(append(corpus(t), Definitions()...), func(m Module) bool {
		return m.Listener != "" || m.Streaming // the job's limit is not for these
	}))
	everywhere(t, func(t *testing.T, isolation string) {
		result := &table{}
		result.head("A host beside a hostile module, guests in: "+isolation, "Module", "End", "Loaded:", "Compiled:", "Ran:", "Gone:", "Longest pause:", "Honest job late:", "Next module after:",
			"Host's peak, MiB:", "Worker's:", "Compiler's:", "Left, MiB:", "Heap, KiB:", "Files:", "Goroutines:", "Threads:", "Wrong")
		bad := 0
		judged(t, []string{wordHost, isolation}, 1, besidePatienceFor, each(list), func(m Module, r report) *verdict {
			return wrongBeside(m, r, isolation)
		}, func(m Module, r report, wrong string) {
			end := string(r.Outcome)
			if r.Refused != "" {
				end = "refused"
			}
			if wrong != "" {
				bad++
				t.Errorf("%s: %s (others had the processors for %s)", m.Name, wrong, r.Others)
			}
			result.row(m.Name, end, r.Loading, r.Memory.Compile, r.Ran, r.Close, r.Pause, r.Late, r.Next, r.Memory.Host>>20, r.Memory.Worker>>20, r.Memory.Compiler>>20,
				r.Left.Resident>>20, r.Left.Heap>>10, r.Left.Files, r.Left.Goroutines, r.Left.Threads, wrong)
		})
		fmt.Fprintf(result, "\n%d of %d modules did harm.\n", bad, len(list))
		result.publish(t)
	})
}
