package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history/verify"
)

// away are the ways in which the registry goes from a host, and comes back.
var away = map[string]func(r *rig, m *machine){
	// It is in doubt, and then: what runs is told to stop.
	"a moment without answers": func(_ *rig, m *machine) {
		m.sever()
		time.Sleep(sessionTimeout/3 + time.Second)
		m.heal()
	},
	"a while without answers": func(_ *rig, m *machine) {
		m.sever()
		time.Sleep(5*sessionTimeout/8 + 200*time.Millisecond)
		m.heal()
	},
	"one host is cut off": func(_ *rig, m *machine) {
		m.sever()
		time.Sleep(sessionTimeout + 5*time.Second)
		m.heal()
	},
	"all hosts are cut off": func(r *rig, _ *machine) {
		for _, m := range r.living() {
			m.sever()
		}
		time.Sleep(sessionTimeout + 5*time.Second)
		for _, m := range r.living() {
			m.heal()
		}
	},
	"the host halts": func(_ *rig, m *machine) {
		m.halt()
		time.Sleep(sessionTimeout + 5*time.Second)
		m.goOn(sessionTimeout + 5*time.Second)
	},
	"the session ends": func(_ *rig, m *machine) { m.expire() },
}

// TestNoJobFallsSilentAtWhateverStepTheRegistryGoes (T1 of docs/complaints.md, too): only some
// of a process's jobs die with its session, since each notices by itself, at
// whatever it is doing. Here the registry goes at each operation of a host with
// several jobs, in each way. When it is back, the first instant after one
// session timeout finds every item of every job.
func TestNoJobFallsSilentAtWhateverStepTheRegistryGoes(t *testing.T) {
	t.Parallel()
	var ran atomic.Int64
	t.Cleanup(func() { t.Logf("%d cases (stride %d)", ran.Load(), *crashStride) })
	for way := range away {
		t.Run(strings.ReplaceAll(way, " ", "_"), func(t *testing.T) {
			t.Parallel()
			for k := 1 + len(way)%*crashStride; goesAt(t, way, k) && !t.Failed(); k += *crashStride {
				ran.Add(1)
			}
		})
	}
}

// goesAt reports false if the host makes fewer than k operations.
func goesAt(t *testing.T, way string, k int) (happened bool) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		jobs := []engine.Job{job(r.def, r.guest)}
		for n := range 4 {
			d := definition(fmt.Sprint("other", n), "0/10 * * * * ?", 2)
			d.Failover = n%2 == 0
			jobs = append(jobs, job(d, sleeper(time.Duration(n+1)*time.Second)))
		}
		goes, back := make(chan struct{}), make(chan struct{})
		r.meddle = func(m *machine, _ string) meddling {
			if m.n == 1 && m.calls == k {
				happened = true
				close(goes)
			}
			return letBe
		}
		start := func() *machine {
			m := r.start()
			m.host.Apply(jobs, nil)
			return m
		}
		m := start()
		over, cancel := context.WithCancel(context.Background())
		go func() { // joined by back
			defer close(back)
			select {
			case <-goes:
				away[way](r, m)
			case <-over.Done():
			}
		}()
		start()
		time.Sleep(35 * time.Second)
		cancel()
		<-back
		due := time.Now().Add(sessionTimeout).Truncate(10 * time.Second).Add(10 * time.Second)
		time.Sleep(time.Until(due.Add(9 * time.Second)))
		r.mu.Lock()
		ends := make(map[string]int)
		for _, e := range r.events {
			if e.e.Kind == event.ItemCompleted && e.e.Outcome == abi.OutcomeOK && e.e.Instant.Equal(due) {
				ends[e.e.Job]++
			}
			if e.e.Kind == event.JobStopped || e.e.Kind == event.JobRemoved {
				t.Errorf("%s at operation %d: nobody did it, and: %s", way, k, lines([]event.Event{e.e}))
			}
		}
		r.mu.Unlock()
		for _, j := range jobs {
			if n := ends[j.Definition.JobName]; n != j.Definition.ShardingTotalCount {
				t.Errorf("%s at operation %d: of %s %d of %d items ran at %s", way, k, j.Definition.JobName, n, j.Definition.ShardingTotalCount, due.UTC().Format(time.TimeOnly))
			}
		}
		r.rest(10 * time.Second)
		// Of the other jobs there is no journal that tells what took effect.
		r.faults = slices.DeleteFunc(r.faults, func(f string) bool {
			return strings.Contains(f, ", "+string(verify.Unproven)+":")
		})
		if len(r.faults) > 0 {
			t.Errorf("%s at operation %d: %s", way, k, strings.Join(r.faults, "\n"))
		}
		if t.Failed() {
			t.Log("\n" + r.timeline())
		}
	})
	return happened
}
