package hostile

import (
	"flag"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
)

var (
	seconds = flag.Duration("hostile.time", 0, "how long random modules are made and run")
	seed    = flag.Uint64("hostile.seed", 0, "the first of them; 0: another one each time")
	only    = flag.String("hostile.only", "", "the modules of the corpus whose name has this")
)

// patience is for a module that should be stopped after a second at most.
const patience = 15 * time.Second

// processes is how many run modules at once, each of which needs a processor to
// run and one to collect.
func processes() int { return max(runtime.NumCPU()/2, 1) }

// wrong says what of a report is not as it has to be.
func wrong(m Module, r report) string {
	switch others := min(r.Others, mostOthers); {
	case r.Dead != "":
		return r.Dead
	case r.Busy > limit+slack:
		return fmt.Sprintf("it computed for %s", r.Busy)
	case r.Ran > limit+slack+others:
		return fmt.Sprintf("it ran for %s, while others had the processors for %s", r.Ran, r.Others)
	case r.Pause > longestPause+others:
		return fmt.Sprintf("the collector had to wait for it for %s, while others had the processors for %s", r.Pause, r.Others)
	case r.Loading > patience/2:
		return fmt.Sprintf("it was loaded for %s", r.Loading)
	case m.End == Stopped && r.Refused != "":
		return "it was refused: " + r.Refused
	case m.End == Refused && r.Refused == "":
		return fmt.Sprintf("it was loaded, and ended with %s", r.Outcome)
	case m.End == Stopped && r.Outcome != abi.OutcomeTimeout:
		return fmt.Sprintf("it ended after %s with %s: %s", r.Ran, r.Outcome, r.Text)
	}
	return ""
}

// Each hostile module is refused or stopped soon after its time is up, whatever
// the collector does meanwhile.
func TestCorpusIsStopped(t *testing.T) {
	byName := map[string]Module{}
	names := make(chan string)
	var list []string
	for _, m := range corpus(t) {
		switch {
		case strings.HasPrefix(m.Name, "compile/"): // a matter of the process that compiles
			continue
		case !strings.Contains(m.Name, *only):
			continue
		}
		byName[m.Name] = m
		list = append(list, m.Name)
	}
	go func() {
		defer close(names)
		for _, n := range list {
			names <- n
		}
	}()
	judged(t, roleStop, processes(), func(string) time.Duration { return patience }, names, func(name string, r report) string {
		return wrong(byName[name], r)
	}, func(name string, r report, wrong string) {
		t.Logf("%-55s %v", name, r)
		if wrong != "" {
			t.Errorf("%s: %s", name, wrong)
		}
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
	names := make(chan string)
	go func() {
		defer close(names)
		for n, end := first, time.After(*seconds); ; n++ {
			select {
			case names <- fmt.Sprint(seedPrefix, n):
			case <-end:
				return
			}
		}
	}()
	ran, stopped := 0, 0
	var longest time.Duration
	judged(t, roleStop, processes(), func(string) time.Duration { return patience }, names, func(_ string, r report) string {
		if r.Refused != "" {
			return "it was refused: " + r.Refused
		}
		return wrong(Module{End: Ended}, r)
	}, func(name string, r report, wrong string) {
		ran++
		if r.Outcome == abi.OutcomeTimeout {
			stopped++
		}
		if longest = max(longest, r.Busy); r.Busy > limit+slack {
			t.Logf("%s: %+v", name, r)
		}
		if wrong != "" {
			t.Errorf("%s: %s", name, wrong)
		}
	})
	t.Logf("%d modules from seed %d on, %d stopped because their time was up, after %s of computing at most", ran, first, stopped, longest)
	if stopped < ran/4 {
		t.Errorf("of %d modules %d had to be stopped: the others show nothing", ran, stopped)
	}
}
