package hostile

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/abi"
)

// What a host and its processes may have of memory at most, in bytes. See "What a
// guest may take of a host" in docs/security.md.
const (
	// addressSpace is what each process may have, so that running out of memory
	// is a finding and not the end of the machine.
	addressSpace = 8_000_000 << 10
	// tooMuch is what they may have together before all of them are killed.
	tooMuch = 8 << 30
	// budget is the hosts' memoryBudget.
	budget = 256 << 20
	// stacks are a guest's native stack, and the one that it is copied from when it grows.
	stacks = 2 * abi.MaxStack
	// hostBase is a host besides its guests and the module at hand, of which it
	// may have several forms, and what the collector has not yet freed.
	hostBase   = 64 << 20
	hostFactor = 16
	// textFactor times the size of a definition are what it takes to read it.
	textFactor = 64
	// workerBase is a worker process besides its guest.
	workerBase = 512 << 20
	// compilerBase and compilerFactor times the module's size are a process that
	// compiles. Metering makes modules larger, by half at most if they are large.
	compilerBase   = 320 << 20
	compilerFactor = 96
)

// What may stay when a module is gone. The collector keeps some for the next one.
const (
	mostHeapLeft       = 16 << 20
	mostFilesLeft      = 4
	mostGoroutinesLeft = 4
	mostThreadsLeft    = 16
	mostReason         = 64 << 10 // bytes of what is said about a module
)

// memory is what was seen of a process and its children from outside.
type memory struct {
	// Host, Worker and Compiler are the most bytes that the process, one of its worker
	// processes and one that compiled for it had in memory.
	Host, Worker, Compiler int64
	// Workers is how many bytes the worker processes had in the end, less what
	// they had before.
	Workers int64
	// Compile is how long processes compiled.
	Compile time.Duration
	// Killed is set if all were killed, because together they had too much.
	Killed bool
}

// wrong says where the peaks are above what is allowed.
func (m memory) wrong(v *verdict, isolation string, of Module) {
	file, guest := len(of.Wasm), cmp.Or(of.Memory, abi.DefaultMemory)
	host := int64(hostBase + hostFactor*file + textFactor*len(of.Definition))
	if isolation == isolationHost {
		host += int64(max(of.Items, 1)) * (guest + stacks)
	}
	check := func(who string, has, most int64) {
		v.check(has > most*raced, "%s had %d MiB of memory, of at most %d", who, has>>20, most>>20)
	}
	check("the host", m.Host, host)
	check("a worker process", m.Worker, int64(max(of.Items, 1))*guest+workerBase)
	check("the process that compiles", m.Compiler, int64(compilerBase+compilerFactor*file))
	check("the worker processes that are left", m.Workers, mostGrown)
	v.check(m.Killed, "its processes had too much memory together, and were killed")
}

// watcher looks at a process and its children.
type watcher struct {
	root       int
	most       int64 // bytes that all may have
	before     int64 // bytes of worker processes
	seen       memory
	compilers  map[int]*[2]time.Time // first and last seen
	stop, done chan struct{}
}

// watch begins to look at a process. The kernel keeps the peak of each process,
// but no one is told when it ends, so its children are looked at again and again.
func watch(root int, most int64) *watcher {
	v := &watcher{root: root, most: most, compilers: map[int]*[2]time.Time{}, stop: make(chan struct{}), done: make(chan struct{})}
	// The peak begins anew. Where that cannot be, it is that of the process's life.
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", root), []byte("5"), 0)
	v.before = v.look()
	go func() { // end waits for it
		defer close(v.done)
		ticker := time.NewTicker(10 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				v.look()
			case <-v.stop:
				return
			}
		}
	}()
	return v
}

// end is what was seen. It gives worker processes that were killed a moment to be gone.
func (v *watcher) end() memory {
	close(v.stop)
	<-v.done
	now := v.look()
	for end := time.Now().Add(2 * time.Second); now > v.before && time.Now().Before(end); now = v.look() {
		time.Sleep(10 * time.Millisecond)
	}
	v.seen.Workers = max(now-v.before, 0)
	for _, times := range v.compilers {
		v.seen.Compile += times[1].Sub(times[0])
	}
	return v.seen
}

// look looks once, and is the bytes that worker processes have.
func (v *watcher) look() (workers int64) {
	now := time.Now()
	has, most := memoryOf(v.root)
	v.seen.Host = max(v.seen.Host, most)
	all := has
	for _, pid := range descendants(v.root) {
		command, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil {
			continue
		}
		has, most := memoryOf(pid)
		switch words := strings.Split(string(command), "\x00"); {
		case len(words) < 2: // not yet another program
			continue
		case words[1] == wordGuests:
			v.seen.Worker = max(v.seen.Worker, most)
			workers += has
		case words[1] == wordCompile:
			v.seen.Compiler = max(v.seen.Compiler, most)
			if v.compilers[pid] == nil {
				v.compilers[pid] = &[2]time.Time{now}
			}
			v.compilers[pid][1] = now
		}
		all += has
	}
	if all > v.most {
		v.seen.Killed = true
		if p, err := os.FindProcess(v.root); err == nil {
			_ = p.Kill() // its children end with it
		}
	}
	return workers
}

// memoryOf is what a process has in memory, and the most that it has had. It is 0 where the
// system does not say.
func memoryOf(pid int) (now, peak int64) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0
	}
	return statusOf(text, "VmRSS") << 10, statusOf(text, "VmHWM") << 10
}

// statusOf is a number of /proc/PID/status.
func statusOf(text []byte, field string) int64 {
	_, rest, _ := bytes.Cut(text, []byte("\n"+field+":"))
	words := bytes.Fields(rest[:min(len(rest), 40)])
	if len(words) == 0 {
		return 0
	}
	n, _ := strconv.ParseInt(string(words[0]), 10, 64)
	return n
}

// descendants are the processes that a process has started, and theirs.
func descendants(pid int) (list []int) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // the pattern is sound
	for _, f := range files {
		text, _ := os.ReadFile(f) // the thread may have ended
		for _, word := range strings.Fields(string(text)) {
			if child, err := strconv.Atoi(word); err == nil {
				list = append(append(list, child), descendants(child)...)
			}
		}
	}
	return list
}

// left is what this process has while no module is there, or what it has more.
type left struct {
	Resident, Heap             int64 // bytes
	Files, Goroutines, Threads int
}

// settled is what this process has, once it has given back what it can. If it has
// more goroutines than before, these get a moment to end.
func settled(before left) left {
	runtime.GC() // finds code unreachable, which a finalizer frees
	runtime.GC()
	for end := time.Now().Add(time.Second); before.Goroutines > 0 && runtime.NumGoroutine() > before.Goroutines && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
	debug.FreeOSMemory()
	l := left{Goroutines: runtime.NumGoroutine()}
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	l.Heap = int64(sample[0].Value.Uint64())
	if text, err := os.ReadFile("/proc/self/status"); err == nil {
		l.Resident, l.Threads = statusOf(text, "VmRSS")<<10, int(statusOf(text, "Threads"))
	}
	if files, err := os.ReadDir("/proc/self/fd"); err == nil {
		l.Files = len(files)
	}
	return l
}

// since is what there is more than before.
func (l left) since(before left) left {
	return left{l.Resident - before.Resident, l.Heap - before.Heap, l.Files - before.Files,
		l.Goroutines - before.Goroutines, l.Threads - before.Threads}
}

// wrong says what should not have been left. What ends a moment later is not.
func (l left) wrong(v *verdict) {
	check := func(what string, has, most int64) {
		v.time(has > most, "%d %s are left, of at most %d", has, what, most)
	}
	check("MiB of memory", l.Resident>>20, mostGrown>>20)
	check("MiB of live heap", l.Heap>>20, mostHeapLeft>>20)
	check("descriptors", int64(l.Files), mostFilesLeft)
	check("goroutines", int64(l.Goroutines), mostGoroutinesLeft)
	check("threads", int64(l.Threads), mostThreadsLeft)
}

// phases are the parts of a module's life, but for its run.
type phases struct {
	Scan, Meter time.Duration
	// Load is until it may run, or is refused: with what compiles it, and its trial.
	Load  time.Duration
	Close time.Duration
}

// more is what a phase may take beyond its limit.
const more = 3 * time.Second

// wrong says which phase took too long.
func (p phases) wrong(v *verdict, m memory, file int) {
	compiling := 2*time.Minute + time.Duration(file>>10)*15*time.Millisecond // as host/sandbox/plugin has it, metered
	start := p.Load - m.Compile
	check := func(what string, took, most time.Duration) {
		v.time(took > most+more, "%s took %s, of at most %s", what, took.Round(time.Millisecond), most+more)
	}
	check("the scan", p.Scan, 0)
	check("metering", p.Meter, 0)
	check("compiling", m.Compile, compiling)
	check("the start", start, abi.InitializeTimeout)
	check("the close", p.Close, 0)
}
