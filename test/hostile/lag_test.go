package hostile

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/host/event"
)

var fires = flag.Int("hostile.fires", 40, "how many fires of the honest job are measured, alone and again beside hostile ones")

// neighbours are the hostile modules that run beside an honest job, all at once: one for each
// thing that they can take from it.
func neighbours() []string {
	return []string{
		"loop/empty", "loop/far stores", "loop/long body", "calls/itself twice", "bulk/memory.fill", "bulk/table.copy",
		"memory/grown page by page", "wasi/random_get", "wasi/path_open of much", "host/log", "attack/phi-storm",
	}
}

// lagAllowed times the start lag of the honest job alone is what it may have beside them.
// A lag of leastLag or less is as good as none.
const (
	lagAllowed = 3
	leastLag   = 10 * time.Millisecond
	// lagBudget is the hosts' memoryBudget in MiB: there is room for all of them, so
	// that nothing waits for memory.
	lagBudget = 4 << 10
	// neighbourRuns is how long each of them runs: it is in the midst of it at most
	// of the seconds at which the honest job begins.
	neighbourRuns = 2500 * time.Millisecond
)

// lags are how late an honest job was: until it began, and until a guest had run that does
// nothing.
type lags struct {
	Fires, Skipped           int
	Begun50, Begun95, Begun  time.Duration
	Ended50, Ended95, Latest time.Duration
}

// besides is a tester that measures an honest job alone, and beside hostile ones.
type besides struct {
	*aside
	fires   int
	hostile []Module
}

// newBesides reads the hostile ones from a file. The budget is in MiB.
func newBesides(isolation, fires, file, budget string) (tester, error) {
	b := &besides{}
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &b.hostile)
	}
	if err == nil {
		b.fires, err = strconv.Atoi(fires)
	}
	var mebibytes int64
	if err == nil {
		mebibytes, err = strconv.ParseInt(budget, 10, 64)
	}
	if err == nil {
		b.aside, err = newBeside(isolation, mebibytes<<20)
	}
	return b, err
}

// run takes no module: it has those that it needs.
func (b *besides) run(Module) report {
	var r report
	if err := b.measure(&r); err != nil {
		r.Dead = err.Error()
	}
	return r
}

func (b *besides) measure(r *report) error {
	r.Alone = b.lags()
	mark := b.mark()
	for i, m := range b.hostile {
		if err := b.putHostile(fmt.Sprint("hostile", i), m, "cron: '* * * * * ?'\n"); err != nil {
			return err
		}
	}
	for i := range b.hostile { // each has run
		b.wait(func() bool {
			job := fmt.Sprint("hostile", i)
			return b.refusal(job) != "" || b.find(mark, job, event.FireEnded) != nil
		})
	}
	for i, m := range b.hostile {
		if refused := b.refusal(fmt.Sprint("hostile", i)); refused != "" {
			return fmt.Errorf("%s was refused: %s", m.Name, refused)
		}
	}
	elsewhere := others()
	r.Beside = b.lags()
	r.Others = max(others()-elsewhere, 0)
	return nil
}

// lags waits for the honest job's next fires.
func (b *besides) lags() lags {
	mark := b.mark()
	var begun, ended []time.Duration
	var skipped int
	b.wait(func() bool {
		begun, ended, skipped = nil, nil, 0
		for _, e := range b.events[mark:] {
			if e.Job != honest || e.Instant.Before(b.events[mark-1].Time) {
				continue // it was under way
			}
			switch e.Kind {
			case event.FireStarted:
				begun = append(begun, e.Lag)
			case event.ItemEnded:
				ended = append(ended, e.Time.Sub(e.Instant))
			case event.FireSkipped: // it did not run in its second
				begun, ended = append(begun, time.Second), append(ended, time.Second)
				skipped++
			}
		}
		return len(begun) >= b.fires && len(ended) >= len(begun)
	})
	slices.Sort(begun)
	slices.Sort(ended)
	at := func(list []time.Duration, percent int) time.Duration { return list[(len(list)-1)*percent/100] }
	return lags{len(begun), skipped, at(begun, 50), at(begun, 95), at(begun, 100), at(ended, 50), at(ended, 95), at(ended, 100)}
}

// writeNeighbours writes modules of the corpus to a file for newBesides.
func writeNeighbours(t *testing.T, names []string) string {
	t.Helper()
	all := corpus(t)
	var hostile []Module
	for _, name := range names {
		at := slices.IndexFunc(all, func(m Module) bool { return m.Name == name })
		if at < 0 {
			t.Fatalf("no module %s", name)
		}
		all[at].Runs = neighbourRuns
		hostile = append(hostile, all[at])
	}
	text, err := json.Marshal(hostile)
	file := filepath.Join(t.TempDir(), "neighbours.json")
	if err := errors.Join(err, os.WriteFile(file, text, 0o600)); err != nil {
		t.Fatal(err)
	}
	return file
}

// An honest job begins about as soon beside eleven hostile ones as it does alone, unless the
// operator lets them run in the host's own process.
func TestLagBeside(t *testing.T) {
	if !*beside {
		t.Skip("make hostile runs it")
	}
	file := writeNeighbours(t, neighbours())
	result := &table{}
	result.head(fmt.Sprintf("An honest job beside %d hostile ones", len(neighbours())), "Guests in", "Beside", "Fires:", "Skipped:",
		"Begun late, median:", "95 of 100:", "Worst:", "Ended late, median:", "95 of 100:", "Worst:", "Host's peak, MiB:", "Worker's:")
	everywhere(t, func(t *testing.T, isolation string) {
		r := besideThem(t, isolation, file, lagBudget)
		if r.Dead != "" {
			result.row(isolation, r.Dead)
			t.Fatal(r.Dead)
		}
		for _, l := range []struct {
			beside string
			lags
		}{{"nothing", r.Alone}, {fmt.Sprint(len(neighbours()), " hostile ones"), r.Beside}} {
			result.row(isolation, l.beside, l.Fires, l.Skipped, l.Begun50, l.Begun95, l.Begun, l.Ended50, l.Ended95, l.Latest, r.Memory.Host>>20, r.Memory.Worker>>20)
		}
		// What runs in the host's own process its operator trusts: it shares the scheduler of
		// the host, and its figures stand in the table alone.
		if most := lagAllowed * max(r.Alone.Begun95, leastLag); isolation != "host" && r.Beside.Begun95 > most {
			t.Errorf("the honest job began after %s in 95 of 100 fires, alone after %s: of at most %s (others had the processors for %s)", r.Beside.Begun95, r.Alone.Begun95, most, r.Others)
		}
	})
	fmt.Fprintf(result, "\nThe hostile ones: %s.\n", strings.Join(neighbours(), ", "))
	result.publish(t)
}

// besideThem measures an honest job alone, and beside the modules of the file, in a host with a
// budget of so many MiB.
func besideThem(t *testing.T, isolation, file string, budget int) report {
	t.Helper()
	p, err := newChild(wordLag, isolation, fmt.Sprint(*fires), file, fmt.Sprint(budget))
	if err != nil {
		t.Fatal(err)
	}
	r, alive := p.ask(Module{Name: "lag"}, 2*time.Minute+4*time.Duration(*fires)*time.Second)
	if alive {
		p.end()
	}
	return r
}

// An honest job loses no instant beside five jobs whose items all recurse at once, where memory
// is scarce: their guests trap, and no process ends.
func TestRecursionBeside(t *testing.T) {
	if !*beside {
		t.Skip("make hostile runs it")
	}
	file := writeNeighbours(t, slices.Repeat([]string{manyRecursions}, 5))
	everywhere(t, func(t *testing.T, isolation string) {
		r := besideThem(t, isolation, file, budget>>20)
		if r.Dead != "" {
			t.Fatal(r.Dead)
		}
		t.Logf("%+v, a worker's peak: %d MiB", r.Beside, r.Memory.Worker>>20)
		if r.Beside.Skipped > 0 {
			t.Errorf("of %d instants %d were lost", r.Beside.Fires, r.Beside.Skipped)
		}
	})
}
