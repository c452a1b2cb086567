package hostile

import (
	"flag"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
)

var (
	seconds    = flag.Duration("hostile.time", 0, "how long random modules are made and run")
	seed       = flag.Uint64("hostile.seed", 0, "the first of them; 0: another one each time")
	only       = flag.String("hostile.only", "", "the modules of the corpus whose name has this")
	isolations = flag.String("hostile.isolation", isolationHost, "where guests run, one after the other: what definitions call it: host, fire (a worker process that jobs share) or process")
)

// patience is for a module that should be stopped after a second at most.
const patience = 30 * time.Second

// processes is how many run modules at once, each of which needs a processor to
// run and one to collect.
func processes() int { return max(runtime.NumCPU()/2, 1) }

// everywhere runs a test for each isolation. The race detector needs more memory than a process may
// have here, and takes it from what is measured: make test runs these tests without it.
func everywhere(t *testing.T, test func(t *testing.T, isolation string)) {
	if slower > 1 {
		t.Log("left to the run without the race detector")
		return
	}
	for isolation := range strings.SplitSeq(*isolations, ",") {
		t.Run(isolation, func(t *testing.T) { test(t, isolation) })
	}
}

// wrong says what of a report is not as it has to be.
func wrong(m Module, r report, isolation string) *verdict {
	v := &verdict{}
	r.Memory.wrong(v, isolation, m)
	if v.check(r.Dead != "", "%s", r.Dead); r.Dead != "" {
		return v
	}
	r.phases.wrong(v, r.Memory, len(m.Wasm))
	r.Left.wrong(v)
	most, others := max(limit, m.Runs), min(r.Others, mostOthers)
	v.time(r.Busy > most+slack, "it computed for %s", r.Busy)
	if isolation == isolationHost {
		v.time(r.Ran > most+slack+others, "it ran for %s, while others had the processors for %s", r.Ran, r.Others)
	} else {
		v.time(r.Ran > most+more, "it ran for %s", r.Ran)
	}
	v.time(r.Pause > longestPause+others, "the collector had to wait for it for %s, while others had the processors for %s", r.Pause, r.Others)
	v.check(r.Said > mostReason, "%d bytes were said about it", r.Said)
	v.check(r.Outcome == abi.OutcomeWorker, "it has ended its worker process: %s", r.Text)
	v.check(m.End == Stopped && r.Refused != "", "it was refused: %s", r.Refused)
	v.check(m.End == Refused && r.Refused == "", "it was loaded, and ended with %s", r.Outcome)
	v.check(m.End == Stopped && r.Refused == "" && r.Outcome != abi.OutcomeTimeout, "it ended after %s with %s: %s", r.Ran, r.Outcome, r.Text)
	return v
}

// line is a report for people.
func (r report) line() string {
	end := string(r.Outcome)
	if r.Refused != "" {
		end = "refused"
	}
	return fmt.Sprintf("%-9s scan %s, meter %s, load %s (compile %s), run %s, close %s; MiB: host %d, worker %d, compiler %d; left: %d MiB, heap %d KiB, %d files, %d goroutines, %d threads",
		end, ms(r.Scan), ms(r.Meter), ms(r.Load), ms(r.Memory.Compile), ms(r.Ran), ms(r.Close), r.Memory.Host>>20, r.Memory.Worker>>20, r.Memory.Compiler>>20,
		r.Left.Resident>>20, r.Left.Heap>>10, r.Left.Files, r.Left.Goroutines, r.Left.Threads)
}

// ms is a time in milliseconds.
func ms(d time.Duration) string { return fmt.Sprintf("%d ms", d.Milliseconds()) }

// Each hostile module is refused or stopped soon after its time is up, whatever
// the collector does meanwhile, and takes no more memory than it may.
func TestCorpusIsStopped(t *testing.T) {
	// Those that take a compiler minutes are a matter of TestBeside.
	list := chosen(slices.DeleteFunc(corpus(t), func(m Module) bool { return strings.HasPrefix(m.Name, "compile/") }))
	everywhere(t, func(t *testing.T, isolation string) {
		judged(t, []string{wordStop, isolation}, processes(), func(Module) time.Duration { return patience }, each(list), func(m Module, r report) *verdict {
			return wrong(m, r, isolation)
		}, func(m Module, r report, wrong string) {
			t.Logf("%-45s %s", m.Name, r.line())
			if wrong != "" {
				t.Errorf("%s: %s", m.Name, wrong)
			}
		})
	})
}

// So is each random one.
func TestRandomIsStopped(t *testing.T) {
	if *seconds == 0 {
		t.Skip("make fuzz-sandbox runs it")
	}
	first := *seed
	if first == 0 {
		first = uint64(time.Now().UnixNano()) >> 10
	}
	everywhere(t, func(t *testing.T, isolation string) {
		modules := make(chan Module)
		go func() {
			defer close(modules)
			for n, end := first, time.After(*seconds); ; n++ {
				select {
				case modules <- Random(n):
				case <-end:
					return
				}
			}
		}()
		ran, stopped, refused := 0, 0, 0
		var longest time.Duration
		var most memory
		judged(t, []string{wordStop, isolation}, processes(), func(Module) time.Duration { return patience }, modules, func(m Module, r report) *verdict {
			return wrong(m, r, isolation)
		}, func(m Module, r report, wrong string) {
			ran++
			if r.Outcome == abi.OutcomeTimeout {
				stopped++
			}
			if r.Refused != "" {
				refused++
			}
			longest = max(longest, r.Busy)
			most.Host, most.Worker, most.Compiler = max(most.Host, r.Memory.Host), max(most.Worker, r.Memory.Worker), max(most.Compiler, r.Memory.Compiler)
			if wrong != "" {
				t.Errorf("%s: %s\n\t%s", m.Name, wrong, r.line())
			}
		})
		t.Logf("%d modules from seed %d on, %d stopped because their time was up, %d refused, after %s of computing at most; the host had %d MiB at most, a worker process %d, one that compiles %d",
			ran, first, stopped, refused, longest, most.Host>>20, most.Worker>>20, most.Compiler>>20)
		if stopped < ran/4 || refused > ran/4 {
			t.Errorf("of %d modules %d had to be stopped, and %d were refused: the others show nothing", ran, stopped, refused)
		}
	})
}
