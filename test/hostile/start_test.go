package hostile

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/event"
)

// mostReady is how soon an honest job has run on a host that starts with a hostile
// file: the quick lane, a trial, and the second that the job waits for.
const mostReady = 4*time.Second + abi.InitializeTimeout + time.Second + more

// starter starts a host with a module in its plugins directory, and ends it.
type starter struct{ isolation, root string }

func (s *starter) close() error { return nil }

func (s *starter) run(m Module) report {
	r, err := s.start(m)
	if err != nil {
		r.Dead = err.Error()
	}
	return r
}

func (s *starter) start(m Module) (r report, err error) {
	defer runtime.KeepAlive(m.Wasm) // it is there before and after
	before, began := settled(left{}), time.Now()
	files := &aside{isolation: s.isolation, dir: s.root + "/plugins"}
	if _, err := os.Stat(files.dir); err != nil { // the first start
		if err := os.Mkdir(files.dir, 0o700); err != nil {
			return r, err
		}
		if err := files.putHonest(); err != nil {
			return r, err
		}
		if err := files.putHostile("hostile", m, ""); err != nil {
			return r, err
		}
	}
	b, err := newAside(s.isolation, s.root, budget)
	if err != nil {
		return r, err
	}
	b.wait(func() bool {
		ran := b.find(0, honest, event.FireEnded)
		if ran != nil {
			r.Ready = ran.Time.Sub(began)
		}
		return ran != nil
	})
	b.wait(func() bool {
		r.say(&r.Refused, b.refusal("hostile"))
		return r.Refused != "" || b.find(0, "hostile", event.Assigned) != nil
	})
	r.Loading = time.Since(began)
	ended := time.Now()
	err = b.end()
	r.Close = time.Since(ended)
	r.Left = settled(before).since(before)
	return r, err
}

// wrongStart says what of a start is not as it has to be.
func wrongStart(m Module, r report, isolation string) *verdict {
	v := &verdict{}
	r.Memory.wrong(v, isolation, m)
	if v.check(r.Dead != "", "%s", r.Dead); r.Dead != "" {
		return v
	}
	v.time(r.Ready > mostReady, "the honest job had run after %s", r.Ready)
	v.time(r.Close > more, "the host ended within %s", r.Close)
	v.check(r.Said > mostReason, "%d bytes were said about it", r.Said)
	v.check(m.End == Stopped && r.Refused != "", "it was refused: %s", r.Refused)
	v.check(m.End == Refused && r.Refused == "", "it was loaded")
	return v
}

// startGroups are the modules that can do harm before they run. Of the others a start does
// not differ from an arrival.
func startGroups(m Module) bool {
	return slices.ContainsFunc([]string{"attack/", "entry/", "section/", "encoding/", "compile/", "foreign/", "memory/", "definition/"}, func(group string) bool {
		return strings.HasPrefix(m.Name, group)
	})
}

// A host starts that finds a hostile file in its plugins directory, and so does the
// next one, which finds what the first one has compiled.
func TestHostileStart(t *testing.T) {
	if !*beside {
		t.Skip("make hostile runs it")
	}
	list := chosen(slices.DeleteFunc(append(corpus(t), Definitions()...), func(m Module) bool { return !startGroups(m) }))
	everywhere(t, func(t *testing.T, isolation string) {
		result := &table{}
		result.head("A host that starts with a hostile module, guests in: "+isolation, "Module", "Start", "Honest job had run after:", "Loaded or refused after:", "Compiled:", "Ended within:",
			"Host's peak, MiB:", "Worker's:", "Compiler's:", "Wrong")
		bad := 0
		for _, m := range list {
			root := t.TempDir()
			for _, which := range []string{"first", "second"} {
				p, err := newChild(wordStart, isolation, root)
				if err != nil {
					t.Fatal(err)
				}
				r, alive := p.ask(m, besidePatienceFor(m))
				if alive {
					p.end()
				}
				wrong := wrongStart(m, r, isolation).String()
				if wrong != "" {
					bad++
					t.Errorf("%s, %s start: %s", m.Name, which, wrong)
				}
				result.row(m.Name, which, r.Ready, r.Loading, r.Memory.Compile, r.Close, r.Memory.Host>>20, r.Memory.Worker>>20, r.Memory.Compiler>>20, wrong)
			}
		}
		fmt.Fprintf(result, "\n%d of %d starts were harmed.\n", bad, 2*len(list))
		result.publish(t)
	})
}
