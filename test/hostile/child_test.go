package hostile

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/host/config/grants"
	"github.com/wasmjob/wasmjob/host/sandbox/capability/dir"
	"github.com/wasmjob/wasmjob/host/sandbox/capability/offer"
	"github.com/wasmjob/wasmjob/host/sandbox/plugin"
	"github.com/wasmjob/wasmjob/host/sandbox/process"
	"github.com/wasmjob/wasmjob/host/sandbox/wasm"
)

// A hostile module may never come back, and may keep the whole process from
// doing anything, its time-outs included. So the test program runs modules in
// processes of its own, which it kills. Each of them is this program, with one of
// these words as its first argument, and what it has to know after it.
const (
	wordStop    = "stop"           // runs the module by itself; isolation
	wordHost    = "host"           // has a host run it beside another job; isolation
	wordStart   = "start"          // starts a host that has it already; isolation, directory
	wordLag     = "lag"            // has a host run several beside an honest job; isolation, fires, file, budget
	wordGreedy  = "take"           // takes what it is asked for
	wordCompile = "compile-module" // compiles for one of these
	wordGuests  = "run-guests"     // runs guests for one of these; job
)

func TestMain(m *testing.M) {
	word := ""
	if len(os.Args) > 1 {
		word = os.Args[1]
	}
	var err error
	switch word {
	case wordStop, wordHost, wordStart, wordLag, wordGreedy:
		err = errors.Join(limitMemory(), serve(word, os.Args[2:]))
	case roleCalls:
		err = serveCalls(os.Stdin, os.Stdout)
	case wordCompile, wordGuests:
		if slices.Contains(os.Args[2:], greedyWord) {
			err = takeAndStay()
			break
		}
		err = serveHost(word)
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// serveHost is what a host's own program does for it.
func serveHost(word string) error {
	if word == wordCompile {
		return plugin.ServeCompile(os.Stdin, os.Stdout)
	}
	return process.Serve(os.Stdin, os.Stdout)
}

// serve does what a word says, and answers on standard output.
func serve(word string, args []string) error {
	switch word {
	case wordStop:
		return answer(os.Stdin, os.Stdout, func() (tester, error) { return newStopper(args[0]) })
	case wordHost:
		return answer(os.Stdin, os.Stdout, func() (tester, error) { return newBeside(args[0], budget) })
	case wordStart:
		return answer(os.Stdin, os.Stdout, func() (tester, error) { return &starter{args[0], args[1]}, nil })
	case wordGreedy:
		return answer(os.Stdin, os.Stdout, func() (tester, error) { return &greedy{}, nil })
	}
	return answer(os.Stdin, os.Stdout, func() (tester, error) { return newBesides(args[0], args[1], args[2], args[3]) })
}

// again starts this program once more.
func again(args ...string) func(string) *exec.Cmd {
	return func(job string) *exec.Cmd {
		path, err := os.Executable()
		if err != nil {
			path = os.Args[0]
		}
		if job != "" {
			args = append(slices.Clone(args), job)
		}
		return exec.Command(path, args...)
	}
}

// Isolations are what definitions call them: the host's own process, a worker process that
// jobs share, and one of the job's own.
const (
	isolationHost   = string(jobconfig.IsolationHost)
	isolationShared = string(jobconfig.IsolationFire)
)

// newRuntime makes what runs modules: as a host has it, with a process that
// compiles, and worker processes.
func newRuntime(cache string, budget int64) (*plugin.Runtime, *process.Workers, error) {
	rt, err := plugin.NewRuntime(context.Background(), plugin.Options{
		CacheDir: cache, MemoryBudget: budget,
		Compiler: func() *exec.Cmd { return again(wordCompile)("") },
	})
	if err != nil {
		return nil, nil, err
	}
	return rt, process.New(process.Options{Runtime: rt, Command: again(wordGuests)}), nil
}

// request has a process run a module, whose bytes are in a file.
type request struct {
	Module
	File string
}

// report is what became of a module.
type report struct {
	// Refused says why it was not loaded, Outcome what the execution ended with,
	// and Text the rest. They are cut short; Said is how many bytes were said at most.
	Refused string
	Outcome abi.Outcome
	Text    string
	Said    int
	// Loading is how long it took until the module was loaded or refused, Ready how
	// long until the honest job of a host that started with it had run.
	Loading, Ready time.Duration
	phases
	// Ran is how long the execution took, and Others the processor time that
	// other processes had meanwhile: what a busy machine may have added to Ran.
	Ran, Others time.Duration
	// Busy is the processor time that the thread had which executed it: what it
	// took on any machine, but for waits. It is 0 if another process did.
	Busy time.Duration
	// Pause is the collector's longest pause meanwhile.
	Pause time.Duration
	// Late is how late the job beside began at most, Left what the process had
	// more after the module was gone, Next how long the next module took to load.
	Late, Next time.Duration
	Left       left
	// Alone and Beside are those of an honest job without and with others.
	Alone, Beside lags

	// Memory is what was seen from outside, also of a process that died.
	Memory memory
	// Dead says how the process ended that ran it; it has no other figures then.
	Dead string
}

// say keeps the beginning of a text.
func (r *report) say(to *string, text string) {
	r.Said = max(r.Said, len(text))
	*to = text[:min(len(text), 300)]
}

// tester runs one module after another.
type tester interface {
	run(m Module) report
	close() error
}

// answer serves a process that is asked to run modules.
func answer(in io.Reader, out io.Writer, begin func() (tester, error)) error {
	with, err := begin()
	if err != nil {
		return err
	}
	for lines := bufio.NewReader(in); ; {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return with.close()
		}
		var q request
		if err == nil {
			err = json.Unmarshal(line, &q)
		}
		if err == nil {
			q.Wasm, err = os.ReadFile(q.File)
		}
		if err == nil {
			err = json.NewEncoder(out).Encode(with.run(q.Module))
		}
		if err != nil {
			return err
		}
	}
}

// tries is how often a module is run that seems to take too long: one that does, does
// it each time, and a machine that is busy with other things does not. What takes too
// much memory, or ends the process, gets no second try: no other program is why.
const tries = 3

// verdict is what of a report is not as it has to be.
type verdict struct {
	firm  []string
	times []string // another try may be better
}

func (v *verdict) check(bad bool, format string, args ...any) {
	if bad {
		v.firm = append(v.firm, fmt.Sprintf(format, args...))
	}
}

func (v *verdict) time(bad bool, format string, args ...any) {
	if bad {
		v.times = append(v.times, fmt.Sprintf(format, args...))
	}
}

func (v *verdict) String() string { return strings.Join(slices.Concat(v.firm, v.times), "; ") }

// judged has each module run by one of n processes of the command. A process has
// patience for each, and is killed then. wrong says what of a report is not as
// it has to be; see gets a report of every module, the first of its tries that is
// not wrong, or the last one, and what is wrong of it. Both are called one at a time.
func judged(t *testing.T, command []string, n int, patience func(m Module) time.Duration, modules <-chan Module,
	wrong func(m Module, r report) *verdict, see func(m Module, r report, wrong string)) {
	t.Helper()
	var mu sync.Mutex
	var workers sync.WaitGroup
	for range n {
		workers.Go(func() {
			var p *child
			defer func() {
				if p != nil {
					p.end()
				}
			}()
			for m := range modules {
				for try := 1; ; try++ {
					var err error
					if p == nil {
						if p, err = newChild(command...); err != nil {
							t.Error(err)
							return
						}
					}
					r, alive := p.ask(m, patience(m))
					if !alive {
						p = nil
					}
					mu.Lock()
					v := wrong(m, r)
					last := len(v.firm) > 0 || len(v.times) == 0 || try == tries
					if last {
						see(m, r, v.String())
					} else {
						t.Logf("%s: %s; once more", m.Name, v)
					}
					mu.Unlock()
					if last {
						break
					}
				}
			}
		})
	}
	workers.Wait()
}

// each sends modules.
func each(list []Module) <-chan Module {
	modules := make(chan Module)
	go func() {
		defer close(modules)
		for _, m := range list {
			modules <- m
		}
	}()
	return modules
}

// child is another process of this program.
type child struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	lines  chan []byte
	stderr bytes.Buffer
	dir    string // its own, for temporary files
	most   int64  // bytes that it and its children may have together
}

func newChild(command ...string) (*child, error) {
	dir, err := os.MkdirTemp("", "wasmjob-hostile-")
	if err != nil {
		return nil, err
	}
	p := &child{cmd: again(command...)(""), lines: make(chan []byte), dir: dir, most: tooMuch}
	p.cmd.Env = append(os.Environ(), "TMPDIR="+dir, "GORACE=atexit_sleep_ms=0") // or each process would sleep for a second
	p.cmd.Stderr = &p.stderr
	p.in, err = p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { // ends with the process
		defer close(p.lines)
		for r := bufio.NewReader(out); ; {
			line, err := r.ReadBytes('\n')
			if err != nil {
				return
			}
			p.lines <- line
		}
	}()
	return p, nil
}

// ask has the process run a module. If it does not answer, the process is gone.
func (p *child) ask(m Module, patience time.Duration) (r report, alive bool) {
	q := request{m, filepath.Join(p.dir, "module.wasm")}
	q.Wasm = nil
	line, err := json.Marshal(q)
	if err == nil {
		err = os.WriteFile(q.File, m.Wasm, 0o600)
	}
	seen := watch(p.cmd.Process.Pid, p.most)
	began := time.Now()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	if err == nil {
		_, err = p.in.Write(append(line, '\n'))
	}
	for err == nil {
		select {
		case line, ok := <-p.lines:
			if !ok {
				err = errors.New("it ended")
				break
			}
			if json.Unmarshal(line, &r) == nil {
				r.Memory = seen.end()
				return r, true
			}
		case <-timer.C:
			err = fmt.Errorf("not stopped after %s", patience)
		}
	}
	r = report{Memory: seen.end()}
	if end := p.end(); end != nil && time.Since(began) < patience {
		err = fmt.Errorf("%w: %w", err, end)
	}
	text := p.stderr.String()
	r.Dead = err.Error() + " " + text[:min(len(text), 300)]
	return r, false
}

// end kills the process and waits for it.
func (p *child) end() error {
	p.in.Close()
	_ = p.cmd.Process.Kill()
	for range p.lines {
	}
	return errors.Join(p.cmd.Wait(), os.RemoveAll(p.dir))
}

// collect has the collector at work until the end: it stops the world, and a
// guest that cannot be stopped then stops it for ever.
func collect() (end func()) {
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			timer := time.NewTimer(5 * time.Millisecond)
			select {
			case <-timer.C:
				runtime.GC()
			case <-stop:
				return
			}
		}
	}()
	return func() { close(stop); <-ended }
}

// pauses begins to look at the collector's pauses. The result is the longest
// one since.
func pauses() func() time.Duration {
	read := func() *metrics.Float64Histogram {
		s := []metrics.Sample{{Name: "/sched/pauses/total/gc:seconds"}}
		metrics.Read(s)
		h := s[0].Value.Float64Histogram()
		return &metrics.Float64Histogram{Counts: append([]uint64(nil), h.Counts...), Buckets: h.Buckets}
	}
	before := read()
	return func() time.Duration {
		after := read()
		for i := len(after.Counts) - 1; i >= 0; i-- {
			if after.Counts[i] > before.Counts[i] {
				return time.Duration(max(after.Buckets[i], 0) * float64(time.Second))
			}
		}
		return 0
	}
}

// others is the processor time that everything else on this machine has had, in
// steps of 10 ms; what a hypervisor gave to others is part of it. It is 0 where
// the system does not count it.
func others() time.Duration {
	const tick = 10 * time.Millisecond // USER_HZ is 100 on all that Go runs on
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(stat), "\n")
	var sum time.Duration
	for i, field := range strings.Fields(line) { // cpu user nice system idle iowait irq softirq steal guest…
		if n, _ := strconv.ParseInt(field, 10, 64); i > 0 && i != 4 && i != 5 && i < 9 {
			sum += time.Duration(n) * tick
		}
	}
	own, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(own[bytes.LastIndexByte(own, ')')+1:])) // from the state, the third field, on
	for _, i := range []int{13, 14} {                                       // utime, stime
		if n, _ := strconv.ParseInt(fields[i-2], 10, 64); n > 0 {
			sum -= time.Duration(n) * tick
		}
	}
	return sum
}

// stopper runs modules with the limit of a test, and nothing else.
type stopper struct {
	isolation string
	runtime   *plugin.Runtime
	workers   *process.Workers
	cache     string
}

// limit is how long a module may run in a test, and slack how soon it has to
// have ended then. longestPause bounds those of the collector. mostOthers is
// what is believed of a busy machine: more is the module's fault.
const (
	limit        = 100 * time.Millisecond
	slack        = 200 * time.Millisecond * slower
	longestPause = 100 * time.Millisecond
	mostOthers   = 3 * time.Second
)

func newStopper(isolation string) (tester, error) {
	cache, err := os.MkdirTemp("", "cache-")
	if err != nil {
		return nil, err
	}
	rt, workers, err := newRuntime(cache, budget)
	return &stopper{isolation, rt, workers, cache}, err
}

// share names the worker process that guests share; empty: each has its own.
func (s *stopper) share() string {
	if s.isolation == isolationShared {
		return "guests"
	}
	return ""
}

func (s *stopper) close() error {
	s.workers.Close()
	return errors.Join(s.runtime.Close(context.Background()), os.RemoveAll(s.cache))
}

func (s *stopper) run(m Module) (r report) {
	defer runtime.KeepAlive(m.Wasm) // it is there before and after
	before := settled(left{})
	s.live(m, &r)
	r.Left = settled(before).since(before)
	return r
}

// live is a module's whole life.
func (s *stopper) live(m Module, r *report) {
	ctx := context.Background()
	took := func(d *time.Duration) func() {
		began := time.Now()
		return func() { *d += time.Since(began) }
	}
	// What Open does, in its parts.
	done := took(&r.Scan)
	read := wasm.Read(m.Wasm)
	done()
	if len(read.Info.Problems) == 0 {
		done = took(&r.Meter)
		_, _ = read.Meter() // Open says what is wrong
		done()
	}

	done = took(&r.Load)
	loaded, err := s.runtime.Open("hostile.wasm", m.Wasm)
	if err != nil {
		done()
		r.say(&r.Refused, err.Error())
		return
	}
	defer func() {
		defer took(&r.Close)()
		loaded.Close()
	}()
	grant := &grants.Grant{}
	if m.Granted {
		at, err := os.MkdirTemp("", "hostile-")
		if err != nil {
			r.Dead = err.Error()
			return
		}
		defer os.RemoveAll(at)
		grant = everything(at)
	}
	settings := offer.Settings(plugin.Settings{Type: m.Type, Streaming: m.Streaming, MemoryLimit: m.Memory}, grant)
	var x abi.Executor
	if s.isolation == isolationHost {
		x, err = loaded.Executor(settings)
	} else {
		x, err = s.workers.Module(loaded).Executor(ctx, settings, s.share())
	}
	done()
	r.Loading = r.Load
	if err != nil {
		r.say(&r.Refused, err.Error())
		return
	}
	x = offer.Wrap(x, grant, "", dir.NewQuotas())
	defer func() {
		defer took(&r.Close)()
		x.Release()
	}()
	worker, err := x.NewWorker(ctx)
	if err != nil {
		r.say(&r.Refused, err.Error())
		return
	}
	defer func() {
		defer took(&r.Close)()
		if err := worker.Close(); err != nil {
			r.Dead = err.Error()
		}
	}()
	s.execute(m, worker, r)
}

func (s *stopper) execute(m Module, worker abi.Worker, r *report) {
	if m.Runs == 0 { // at work all the time, the collector leaves a guest little time to take memory
		defer collect()()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	longest, elsewhere, busy, began := pauses(), others(), threadTime(), time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), max(limit, m.Runs))
	defer cancel()
	inv := &abi.Invocation{Host: &quiet{ctx: ctx}, Context: abi.ShardingContext{
		JobName: "hostile", ShardingTotalCount: 1, Attempt: 1, FireTime: began}}
	var got abi.Result
	if m.Listener != "" {
		got = worker.Listen(ctx, m.Listener, inv)
	} else {
		got = worker.Execute(ctx, inv)
	}
	r.Ran, r.Others, r.Busy, r.Pause = time.Since(began), max(others()-elsewhere, 0), threadTime()-busy, longest()
	r.Outcome = got.Outcome
	r.say(&r.Text, got.Message)
}

// everything is a grant of all capabilities. Nothing listens at its address.
func everything(at string) *grants.Grant {
	return &grants.Grant{
		HTTP: []grants.HTTP{{Scheme: "http", Host: "127.0.0.1", Port: 1, Path: "/", Private: true}},
		Net:  []grants.Net{{Scheme: "tcp", Host: "127.0.0.1", Port: 1, Private: true}},
		Dirs: []grants.Dir{{Host: at, Guest: "/", Write: true, Bytes: 256 << 20, Files: 1000}},
		KV:   true, Env: map[string]string{"k": "v"}, Secrets: map[string]grants.Secret{"k": {File: "/proc/version", Readable: true}},
		Quotas: grants.Quotas{Requests: 1 << 30, Connections: 1 << 30, Sent: 1 << 40, Received: 1 << 40},
	}
}

// quiet is a host that takes everything.
type quiet struct{ ctx context.Context }

func (*quiet) Log(int, string, []string)                     {}
func (*quiet) LogEnabled(int) bool                           { return true }
func (*quiet) Progress(int64, int64)                         {}
func (*quiet) Metric(int, string, int64) abi.Code            { return abi.OK }
func (*quiet) CommitOffset(context.Context, []byte) abi.Code { return abi.OK }
func (*quiet) StageOffset(context.Context, []byte) abi.Code  { return abi.OK }
func (*quiet) Pause(context.Context)                         {}
func (*quiet) Cancelled() abi.Cancel                         { return abi.CancelNone }
