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
	"runtime"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/capability/dir"
	"github.com/wasmjob/wasmjob/host/capability/offer"
	"github.com/wasmjob/wasmjob/host/grants"
	"github.com/wasmjob/wasmjob/host/plugin"
)

// A hostile module may never come back, and may keep the whole process from
// doing anything, its time-outs included. So the test program runs modules in
// processes of its own, which it kills, and each of which is this program, with
// a word in its environment.
const roleVariable = "WASMJOB_TEST_HOSTILE"

// roles are what such a process does: it reads names of modules, one a line, and
// writes a report of each.
const (
	roleStop    = "stop"    // runs the module by itself
	roleHost    = "host"    // has a host run it beside another job
	roleCompile = "compile" // is the process that compiles for roleHost
)

func TestMain(m *testing.M) {
	var err error
	switch os.Getenv(roleVariable) {
	case roleStop:
		err = answer(os.Stdin, os.Stdout, newStopper)
	case roleHost:
		err = answer(os.Stdin, os.Stdout, newBeside)
	case roleCompile:
		err = plugin.ServeCompile(os.Stdin, os.Stdout)
	case roleCalls:
		err = serveCalls(os.Stdin, os.Stdout)
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// report is what became of a module.
type report struct {
	// Refused says why it was not loaded, Outcome what the execution ended with,
	// and Text the rest.
	Refused string
	Outcome abi.Outcome
	Text    string
	// Loading is how long it took until the module was loaded or refused.
	Loading time.Duration
	// Ran is how long the execution took, and Others the processor time that
	// other processes had meanwhile: what a busy machine may have added to Ran.
	Ran, Others time.Duration
	// Busy is the processor time that the thread had which executed it: what it
	// took on any machine, but for waits.
	Busy time.Duration
	// Pause is the collector's longest pause meanwhile.
	Pause time.Duration
	// Late is how late the job beside began at most, Grown what the process had
	// more after the module was gone, Next how long the next module took to load.
	Late, Next time.Duration
	Grown      int64

	// Dead says how the process ended that ran it; it has no other figures then.
	Dead string
}

// tester runs one module after another.
type tester interface {
	run(m Module) report
	close() error
}

// answer serves a process that asks for modules by name.
func answer(in io.Reader, out io.Writer, begin func() (tester, error)) error {
	modules, err := Corpus()
	if err != nil {
		return err
	}
	byName := map[string]Module{}
	for _, m := range modules {
		byName[m.Name] = m
	}
	with, err := begin()
	if err != nil {
		return err
	}
	for lines := bufio.NewScanner(in); lines.Scan(); {
		m, ok := byName[lines.Text()]
		if seed, isSeed := strings.CutPrefix(lines.Text(), seedPrefix); isSeed {
			n, err := strconv.ParseUint(seed, 10, 64)
			if err != nil {
				return err
			}
			m, ok = Random(n), true
		}
		if !ok {
			return fmt.Errorf("no module %q", lines.Text())
		}
		if err := json.NewEncoder(out).Encode(with.run(m)); err != nil {
			return err
		}
	}
	return with.close()
}

// seedPrefix begins the name of a random module.
const seedPrefix = "random/"

// tries is how often a module is run that seems to do harm: one that does, does
// it each time, and a machine that is busy with other things does not. A process that
// ended because of a module is no matter of that.
const tries = 3

// judged has each module run by one of n processes of the role. A process has
// patience for each, and is killed then. wrong says what of a report is not as
// it has to be; see gets a report of every module, the first of its tries that is
// not wrong, or the last one, and what is wrong of it. Both are called one at a time.
func judged(t *testing.T, role string, n int, patience func(name string) time.Duration, names <-chan string,
	wrong func(name string, r report) string, see func(name string, r report, wrong string)) {
	t.Helper()
	var mu sync.Mutex
	var workers sync.WaitGroup
	for range n {
		workers.Go(func() {
			var p *process
			defer func() {
				if p != nil {
					p.end()
				}
			}()
			for name := range names {
				for try := 1; ; try++ {
					var err error
					if p == nil {
						if p, err = newProcess(role); err != nil {
							t.Error(err)
							return
						}
					}
					r, alive := p.ask(name, patience(name))
					if !alive {
						p = nil
					}
					mu.Lock()
					text := wrong(name, r)
					last := text == "" || try == tries || (r.Dead != "" && !strings.HasPrefix(r.Dead, notStopped))
					if last {
						see(name, r, text)
					} else {
						t.Logf("%s: %s; once more", name, text)
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

// process is another one of this program.
type process struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	lines  chan []byte
	stderr bytes.Buffer
	dir    string // its own, for temporary files
}

func newProcess(role string) (*process, error) {
	dir, err := os.MkdirTemp("", "wasmjob-hostile-")
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command(os.Args[0]), lines: make(chan []byte), dir: dir}
	p.cmd.Env = append(os.Environ(), roleVariable+"="+role, "TMPDIR="+dir)
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

// notStopped begins what is Dead of a process that did not answer.
const notStopped = "not stopped"

// ask has the process run a module. If it does not answer, the process is gone.
func (p *process) ask(name string, patience time.Duration) (r report, alive bool) {
	began := time.Now()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	_, err := fmt.Fprintln(p.in, name)
	for err == nil {
		select {
		case line, ok := <-p.lines:
			if !ok {
				err = errors.New("it ended")
				break
			}
			if json.Unmarshal(line, &r) == nil {
				return r, true
			}
		case <-timer.C:
			err = fmt.Errorf(notStopped+" after %s", patience)
		}
	}
	if end := p.end(); end != nil && time.Since(began) < patience {
		err = fmt.Errorf("%w: %w", err, end)
	}
	text := p.stderr.String()
	return report{Dead: err.Error() + " " + text[:min(len(text), 300)]}, false
}

// end kills the process and waits for it.
func (p *process) end() error {
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
type stopper struct{ r *plugin.Runtime }

// limit is how long a module may run in a test, and slack how soon it has to
// have ended then. longestPause bounds those of the collector. mostOthers is
// what is believed of a busy machine: more is the module's fault.
const (
	limit        = 100 * time.Millisecond
	slack        = 200 * time.Millisecond * slower
	longestPause = 100 * time.Millisecond
	mostOthers   = 3 * time.Second
)

func newStopper() (tester, error) {
	r, err := plugin.NewRuntime(context.Background(), plugin.Options{})
	return &stopper{r}, err
}

func (s *stopper) close() error { return s.r.Close(context.Background()) }

func (s *stopper) run(m Module) (r report) {
	began := time.Now()
	loaded, err := s.r.Load(context.Background(), "hostile.wasm", m.Wasm, time.Time{})
	r.Loading = time.Since(began)
	if err != nil {
		r.Refused = err.Error()
		return r
	}
	defer loaded.Close()
	grant := &grants.Grant{}
	if m.Granted {
		at, err := os.MkdirTemp("", "hostile-")
		if err != nil {
			r.Refused = err.Error()
			return r
		}
		defer os.RemoveAll(at)
		grant = everything(at)
	}
	x, err := loaded.Executor(offer.Settings(plugin.Settings{Type: m.Type, Streaming: m.Streaming}, grant))
	if err != nil {
		r.Refused = err.Error()
		return r
	}
	x = offer.Wrap(x, grant, "", dir.NewQuotas())
	defer x.Release()
	worker, err := x.NewWorker(context.Background())
	if err != nil {
		r.Refused = err.Error()
		return r
	}
	defer worker.Close()
	defer collect()()

	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	longest, elsewhere, busy := pauses(), others(), threadTime()
	began = time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
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
	r.Outcome, r.Text = got.Outcome, got.Message
	return r
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
