package hostile

import (
	"bytes"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
)

// greedy is a tester that takes what its modules are named after, so that it is
// seen whether the tests would see it.
type greedy struct {
	heap  []byte
	files []*os.File
}

// greedyWord has a process of guests, or one that compiles, take memory.
const greedyWord = "greedy"

func (g *greedy) close() error { return nil }

func (g *greedy) run(m Module) report {
	var r report
	before := settled(left{})
	if err := g.take(m.Name); err != nil {
		r.Dead = err.Error()
	}
	r.Left = settled(before).since(before)
	return r
}

func (g *greedy) take(what string) error {
	const many = 20
	switch what {
	case "the host":
		touched(600 << 20)
	case "heap":
		g.heap = touched(100 << 20)
	case "descriptors":
		for range many {
			f, err := os.Open(os.DevNull)
			if err != nil {
				return err
			}
			g.files = append(g.files, f)
		}
	case "goroutines":
		for range many {
			go func() { select {} }()
		}
	case "threads":
		for range many {
			go func() {
				runtime.LockOSThread()
				select {}
			}()
		}
	case "addresses":
		touched(9 << 30)
	case wordGuests, wordCompile:
		cmd := again(what, greedyWord)("")
		in, err := cmd.StdinPipe()
		if err != nil {
			return err
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			return err
		}
		if err := cmd.Start(); err != nil {
			return err
		}
		if _, err := out.Read(make([]byte, 1)); err != nil { // it has taken the memory
			return err
		}
		time.Sleep(time.Second) // and has it for a while
		return in.Close()       // but it is not waited for: it is left
	}
	return nil
}

// takeAndStay takes memory until standard input ends, and some time more.
func takeAndStay() error {
	b := touched(800 << 20)
	if _, err := os.Stdout.Write([]byte("x")); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, os.Stdin)
	time.Sleep(5 * time.Second)
	runtime.KeepAlive(b)
	return err
}

// touched is memory that the process really has.
func touched(n int) []byte {
	b := make([]byte, n)
	for i := 0; i < n; i += 4096 {
		b[i] = 1
	}
	return b
}

// What is measured from outside and from inside is seen.
func TestOracleSees(t *testing.T) {
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Skip("this system does not say what processes have")
	}
	for what, expected := range map[string]string{
		"nothing":     "",
		"the host":    "the host had 6",
		"heap":        "MiB of live heap are left",
		"descriptors": "20 descriptors are left",
		"goroutines":  "20 goroutines are left",
		"threads":     "threads are left",
		"addresses":   "out of memory",
		wordGuests:    "a worker process had 8",
		wordCompile:   "the process that compiles had 8",
	} {
		t.Run(what, func(t *testing.T) {
			if slower > 1 && !strings.HasSuffix(expected, "are left") {
				return // it is judged by other bounds: see raced
			}
			p, err := newChild(wordGreedy)
			if err != nil {
				t.Fatal(err)
			}
			r, alive := p.ask(Module{Name: what}, time.Minute)
			if alive {
				defer p.end()
			}
			v := wrong(Module{End: Ended}, r, isolationHost)
			if got := v.String(); (expected == "") != (got == "") || !strings.Contains(got, expected) {
				t.Errorf("found %q, expected %q", got, expected)
			}
			if what == wordGuests && !strings.Contains(v.String(), "worker processes that are left had") {
				t.Errorf("found %q, expected one that is left", v)
			}
			if what == wordCompile && r.Memory.Compile < 500*time.Millisecond {
				t.Errorf("it compiled for %s", r.Memory.Compile)
			}
		})
	}
}

// Processes that together take more than the machine should give are killed.
func TestOracleKills(t *testing.T) {
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Skip("this system does not say what processes have")
	}
	if slower > 1 {
		return // see raced
	}
	p, err := newChild(wordGreedy)
	if err != nil {
		t.Fatal(err)
	}
	p.most = 300 << 20
	r, alive := p.ask(Module{Name: wordGuests}, time.Minute)
	if alive {
		p.end()
	}
	if v := wrong(Module{End: Ended}, r, isolationHost); !r.Memory.Killed || !strings.Contains(v.String(), "were killed") {
		t.Errorf("found %q, and %+v", v, r)
	}
}

// Each figure of a report is judged.
func TestOracleJudges(t *testing.T) {
	t.Parallel()
	const minutes = 10 * time.Minute
	for name, spoil := range map[string]func(r *report){
		"host":          func(r *report) { r.Memory.Host = 500 * raced << 20 },
		"worker":        func(r *report) { r.Memory.Worker = 700 * raced << 20 },
		"compiler":      func(r *report) { r.Memory.Compiler = 500 * raced << 20 },
		"workers left":  func(r *report) { r.Memory.Workers = 100 * raced << 20 },
		"killed":        func(r *report) { r.Memory.Killed = true },
		"resident":      func(r *report) { r.Left.Resident = 100 << 20 },
		"heap":          func(r *report) { r.Left.Heap = 20 << 20 },
		"files":         func(r *report) { r.Left.Files = 10 },
		"goroutines":    func(r *report) { r.Left.Goroutines = 10 },
		"threads":       func(r *report) { r.Left.Threads = 30 },
		"scan":          func(r *report) { r.Scan = minutes },
		"meter":         func(r *report) { r.Meter = minutes },
		"compile":       func(r *report) { r.Memory.Compile, r.Load = minutes, minutes },
		"start":         func(r *report) { r.Load = minutes },
		"run":           func(r *report) { r.Ran = minutes },
		"busy":          func(r *report) { r.Busy = minutes },
		"close":         func(r *report) { r.Close = minutes },
		"pause":         func(r *report) { r.Pause = minutes },
		"said":          func(r *report) { r.say(&r.Text, string(bytes.Repeat([]byte("x"), 100<<10))) },
		"dead":          func(r *report) { r.Dead = "it ended" },
		"late":          func(r *report) { r.Late = minutes },
		"next":          func(r *report) { r.Next = minutes },
		"ready":         func(r *report) { r.Ready = minutes },
		"not stopped":   func(r *report) { r.Outcome = abi.OutcomeOK },
		"refused":       func(r *report) { r.Refused = "because" },
		"nothing wrong": func(*report) {},
	} {
		for isolation, most := range map[string]int64{isolationHost: 200 << 20, "process": 60 << 20} {
			r := report{Outcome: abi.OutcomeTimeout, Memory: memory{Host: most}}
			spoil(&r)
			m := Module{End: Stopped}
			for judge, v := range map[string]*verdict{"alone": wrong(m, r, isolation), "beside": wrongBeside(m, r, isolation), "start": wrongStart(m, r, isolation)} {
				only := map[string]string{"scan": "alone", "meter": "alone", "compile": "alone", "start": "alone", "busy": "alone", "late": "beside", "next": "beside", "ready": "start"}[name]
				notStart := map[string]bool{"run": true, "pause": true, "not stopped": true, "resident": true, "heap": true, "files": true, "goroutines": true, "threads": true}[name]
				expected := name != "nothing wrong" && (only == "" || only == judge) && !(notStart && judge == "start")
				if got := v.String(); (got != "") != expected {
					t.Errorf("%s, %s, guests in %s: found %q, expected a complaint: %t", name, judge, isolation, got, expected)
				}
			}
		}
	}
}
