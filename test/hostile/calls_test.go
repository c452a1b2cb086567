package hostile

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/config/grants"
	"github.com/wasmjob/wasmjob/host/sandbox/capability/dir"
	"github.com/wasmjob/wasmjob/host/sandbox/capability/offer"
	"github.com/wasmjob/wasmjob/host/sandbox/plugin"
	"github.com/wasmjob/wasmjob/host/sandbox/wasm"
)

// What calls of imports may cost, whatever their arguments are. It is the host's memory that is meant: the
// guest's own is counted by its memoryLimit.
const (
	// mostAllocated bounds what a call allocates, with the instance in which it runs.
	mostAllocated = 4 << 20 * slower
	// mostHeld bounds what the host holds for a guest after it has called thousands of times, and
	// mostKept what is left of it when the guest is gone.
	mostHeld = 1 << 20 * slower
	mostKept = 512 << 10 * slower
	// mostResident bounds what the process has had at most beside what it began with and the guest's memory.
	mostResident = 64 << 20 * slower
	// mostData is what a process of the test may take: the system refuses it more, and it ends. The race detector
	// takes more.
	mostData = 1 << 30
	// manyTimes is how often a function is called to see what adds up.
	manyTimes = 3000
)

// roleCalls calls imports.
const roleCalls = "calls"

// randomPrefix begins the names of random sequences.
const randomPrefix = "random/"

// offeredFunctions are all that a guest may import.
func offeredFunctions() []Function {
	var list []Function
	offered := wasm.Offered()
	for _, module := range slices.Sorted(maps.Keys(offered)) {
		for _, name := range slices.Sorted(maps.Keys(offered[module])) {
			list = append(list, Function{module, name, offered[module][name]})
		}
	}
	return list
}

// finding is a line of what a process that calls imports says.
type finding struct {
	// Begun is what the process does from now on, Wrong what was wrong with it. Ran counts what was done.
	Begun, Wrong string
	Ran          int
	// Most of all that was done: bytes, and how long it went on after its time.
	Allocated, Held, Kept, Resident int64
	Late                            time.Duration
	Done                            bool
}

// callServer calls imports in a process of its own.
type callServer struct {
	r       *plugin.Runtime
	grant   *grants.Grant
	faults  *faultLog
	out     *json.Encoder
	sum     finding
	started int64 // what the process had resident when it began
	failed  error // of the writer
}

// faultLog takes what the runtime logs as the host's own fault.
type faultLog struct {
	slog.Handler
	text string
}

func (l *faultLog) Handle(_ context.Context, r slog.Record) error {
	if r.Level >= slog.LevelError {
		l.text = r.Message
		r.Attrs(func(a slog.Attr) bool { l.text += " " + a.String(); return true })
	}
	return nil
}

// serveCalls reads names of functions, or seeds of random jobs, and carries out the calls.
func serveCalls(in io.Reader, out io.Writer) (err error) {
	if slower == 1 {
		if err := limitData(mostData); err != nil {
			return err
		}
	}
	at, err := os.MkdirTemp("", "calls-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(at)) }()
	s := &callServer{faults: &faultLog{Handler: slog.DiscardHandler}, out: json.NewEncoder(out)}
	if s.r, err = plugin.NewRuntime(context.Background(), plugin.Options{Logger: slog.New(enabled{s.faults})}); err != nil {
		return err
	}
	s.grant = everything(at)
	s.grant.Quotas = grants.Quotas{} // the usual ones
	functions := offeredFunctions()
	byName := map[string]Function{}
	for _, f := range functions {
		byName[f.String()] = f
	}
	for lines := bufio.NewScanner(in); lines.Scan(); {
		s.sum = finding{}
		if f, ok := byName[lines.Text()]; ok {
			cases := f.Cases(manyTimes)
			granted := []*grants.Grant{s.grant}
			if !abi.IsCapability(f.Module) {
				granted = append(granted, &grants.Grant{})
			}
			s.run(f.String(), Calls(f, cases), cases, granted...)
		} else if seed, err := strconv.ParseUint(strings.TrimPrefix(lines.Text(), randomPrefix), 10, 64); err == nil {
			grant, some := s.grant, functions
			if seed%2 == 1 {
				grant = &grants.Grant{}
				some = slices.DeleteFunc(slices.Clone(functions), func(f Function) bool { return abi.IsCapability(f.Module) })
			}
			s.run(lines.Text(), RandomCalls(seed, some), []Case{{Times: 2}}, grant)
		} else {
			return fmt.Errorf("no function %q", lines.Text())
		}
		s.sum.Done = true
		s.say(s.sum)
		if s.failed != nil {
			return s.failed
		}
	}
	return s.r.Close(context.Background())
}

// enabled is a handler that takes every line.
type enabled struct{ *faultLog }

func (enabled) Enabled(context.Context, slog.Level) bool { return true }
func (e enabled) WithAttrs([]slog.Attr) slog.Handler     { return e }
func (e enabled) WithGroup(string) slog.Handler          { return e }

func (s *callServer) say(f finding) {
	if err := s.out.Encode(f); err != nil && s.failed == nil {
		s.failed = err
	}
}

func (s *callServer) wrong(what, format string, args ...any) {
	s.say(finding{Begun: what, Wrong: fmt.Sprintf(format, args...)})
}

// run carries out the cases of a module as a job that has each of the grants, and looks at what they cost.
func (s *callServer) run(name string, module []byte, cases []Case, granted ...*grants.Grant) {
	before := live()
	s.started = status("VmRSS")
	resetPeak()
	for _, grant := range granted {
		s.loaded(name, module, cases, grant)
	}
	if kept := live() - before; kept > mostKept {
		s.wrong(name, "%d bytes are left when the guest is gone, expected at most %d", kept, mostKept)
	} else {
		s.sum.Kept = max(s.sum.Kept, kept)
	}
	resident := status("VmHWM") - s.started - callMemory
	if s.sum.Resident = max(s.sum.Resident, resident); resident > mostResident {
		s.wrong(name, "the process had %d bytes at most besides the guest's, expected at most %d", resident, mostResident)
	}
}

// loaded runs the module as a job that has the grant, a case for each item.
func (s *callServer) loaded(name string, module []byte, cases []Case, grant *grants.Grant) {
	m, err := s.r.Load(context.Background(), "calls.wasm", module, time.Time{})
	if s.judgeFault(name); err != nil {
		if !strings.HasPrefix(name, randomPrefix) {
			s.wrong(name, "it is refused: %v", err)
		}
		return
	}
	defer m.Close()
	x, err := m.Executor(offer.Settings(plugin.Settings{}, grant))
	if err != nil {
		s.wrong(name, "it is refused: %v", err)
		return
	}
	x = offer.Wrap(x, grant, "", dir.NewQuotas())
	defer x.Release()
	before := live()
	part := slower // with the race detector a part of them: it has little to see here
	for item, c := range cases {
		if item%part != 0 {
			continue
		}
		what := name
		if len(c.Args) > 0 {
			what += " of " + c.String()
		}
		s.say(finding{Begun: what})
		s.call(what, x, item, c, before)
	}
}

// call carries out one case in an instance of its own. The heap held so much before all of them.
func (s *callServer) call(what string, x abi.Executor, item int, c Case, before int64) {
	const late = limit + slack
	worker, err := x.NewWorker(context.Background())
	if err != nil {
		s.wrong(what, "it has no worker: %v", err)
		return
	}
	defer worker.Close()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	elsewhere, busy, allocated, began := others(), threadTime(), allocatedBytes(), time.Now()
	got := worker.Execute(ctx, &abi.Invocation{Host: &quiet{ctx: ctx}, Context: abi.ShardingContext{
		JobName: "hostile", ShardingTotalCount: 1 << 20, ShardingItem: item, Attempt: 1, FireTime: began}})
	ran := time.Since(began)
	allocated, busy = allocatedBytes()-allocated, threadTime()-busy
	s.sum.Ran++
	s.sum.Late = max(s.sum.Late, busy-limit)
	switch waited := min(max(others()-elsewhere, 0), mostOthers); {
	case busy > late:
		s.wrong(what, "it computed for %s", busy)
	case ran > late+waited:
		s.wrong(what, "it ran for %s, while others had the processors for %s", ran, waited)
	}
	if c.Times > 1 {
		held := live() - before
		if s.sum.Held = max(s.sum.Held, held); held > mostHeld {
			s.wrong(what, "the host holds %d bytes for it, expected at most %d", held, mostHeld)
		}
	} else if s.sum.Allocated = max(s.sum.Allocated, allocated); allocated > mostAllocated {
		s.wrong(what, "%d bytes were allocated, expected at most %d", allocated, mostAllocated)
	}
	if e, ok := errors.AsType[*plugin.Error](got.Err); ok && e.Kind == plugin.KindHost {
		s.wrong(what, "it is the host's fault: %s", got.Message)
	}
	s.judgeFault(what)
}

// judgeFault says what was logged as the host's fault.
func (s *callServer) judgeFault(what string) {
	if s.faults.text != "" {
		s.wrong(what, "the host logged: %.500s", s.faults.text)
		s.faults.text = ""
	}
}

// live is what the heap holds.
func live() int64 {
	runtime.GC()
	runtime.GC() // what the first one has found to be swept, and what finalizers held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// allocatedBytes is what the process has allocated so far.
func allocatedBytes() int64 {
	samples := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(samples)
	return int64(samples[0].Value.Uint64())
}

// status is a figure of /proc/self/status in bytes; 0 where there is no such file.
func status(name string) int64 {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), name+":")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	n, _ := strconv.ParseInt(fields[0], 10, 64)
	return n << 10
}

// resetPeak has VmHWM begin anew. Where that is not allowed, VmHWM is that of the whole life of the
// process, which is larger.
func resetPeak() { _ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) }

// callsPatience is for all cases of a function together, and for a random job.
const callsPatience = 3 * time.Minute * slower

// calling has processes carry out what is asked for, and reports what is wrong.
func calling(t *testing.T, names <-chan string) (sum finding) {
	t.Helper()
	var mu sync.Mutex
	var processes sync.WaitGroup
	for range runtime.NumCPU() {
		processes.Go(func() {
			for name := range names {
				f := ask(t, name)
				mu.Lock()
				sum.Ran += f.Ran
				sum.Allocated, sum.Held, sum.Kept = max(sum.Allocated, f.Allocated), max(sum.Held, f.Held), max(sum.Kept, f.Kept)
				sum.Resident, sum.Late = max(sum.Resident, f.Resident), max(sum.Late, f.Late)
				mu.Unlock()
			}
		})
	}
	processes.Wait()
	return sum
}

// ask has a process of its own carry out what the name says: what a call left behind is not blamed on another one.
func ask(t *testing.T, name string) finding {
	ctx, cancel := context.WithTimeout(context.Background(), callsPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], roleCalls)
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
	cmd.Stdin = strings.NewReader(name + "\n")
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Error(err)
		return finding{}
	}
	var last, sum finding
	wrong := 0
	for lines := json.NewDecoder(out); ; {
		var f finding
		if lines.Decode(&f) != nil {
			break
		}
		switch {
		case f.Done:
			sum = f
		case f.Wrong != "":
			if wrong++; wrong <= 5 {
				t.Errorf("%s: %s", f.Begun, f.Wrong)
			}
		default:
			last = f
		}
	}
	if wrong > 5 {
		t.Errorf("%s: %d calls are wrong", name, wrong)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%s: the process ended: %v %.600s", last.Begun, err, complaint.String())
	} else if !sum.Done {
		t.Errorf("%s: the process said nothing of its end", name)
	}
	return sum
}

// Every function that a guest may import is called with every argument at its edges. None takes
// time or memory that nothing bounds, and none is a fault of the host.
func TestCalls(t *testing.T) {
	names := make(chan string)
	go func() {
		defer close(names)
		for _, f := range offeredFunctions() {
			if strings.Contains(f.String(), *only) {
				names <- f.String()
			}
		}
	}()
	sum := calling(t, names)
	t.Logf("%d calls; at most %d KiB allocated by one, %d KiB held, %d KiB kept, %d MiB resident, %s after the time was up",
		sum.Ran, sum.Allocated>>10, sum.Held>>10, sum.Kept>>10, sum.Resident>>20, sum.Late)
	if sum.Ran == 0 {
		t.Error("nothing was called")
	}
}

// Nor do any calls one after another. A seed is repeated by -hostile.seed, more are run by -hostile.time.
func TestRandomCalls(t *testing.T) {
	const few = 40 / slower
	first := *seed
	if first == 0 && *seconds > 0 {
		first = uint64(time.Now().UnixNano()) >> 10
	}
	names := make(chan string)
	go func() {
		defer close(names)
		var end <-chan time.Time
		if *seconds > 0 {
			end = time.After(*seconds)
		}
		for n := first; end != nil || n < first+few; n++ {
			select {
			case names <- fmt.Sprint(randomPrefix, n):
			case <-end:
				return
			}
		}
	}()
	sum := calling(t, names)
	t.Logf("%d runs from seed %d on; at most %d KiB held, %d KiB kept, %d MiB resident, %s after the time was up",
		sum.Ran, first, sum.Held>>10, sum.Kept>>10, sum.Resident>>20, sum.Late)
}
