package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/admin/operate"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/embedded"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
)

// completed counts completions by item.
func completed(events []event.Event) map[int]int {
	n := make(map[int]int)
	for _, e := range events {
		n[*e.Item]++
	}
	return n
}

func TestOneHostRunsEveryItemOfEveryFire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.start(1, job(definition("tick", "*/5 * * * * ?", 3), sleeper(100*time.Millisecond)))
		time.Sleep(time.Minute + time.Second)
		done := completed(c.list(event.ItemCompleted))
		if len(done) != 3 {
			t.Fatalf("items %v, want 3\n%s", done, c.all())
		}
		for item, n := range done {
			if n != 12 {
				t.Errorf("item %d: %d completions in a minute, want 12\n%s", item, n, c.all())
			}
		}
	})
}

func TestThreeHostsShareAndTakeOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		d := definition("share", "*/10 * * * * ?", 6)
		d.Failover = true
		g := sleeper(3 * time.Second)
		c.start(1, job(d, g))
		c.start(2, job(d, g))
		third := c.start(3, job(d, g))
		time.Sleep(21 * time.Second) // a fire is running
		c.expire(third)
		time.Sleep(40 * time.Second)
		over := 0
		for _, e := range c.list(event.ItemCompleted) {
			if e.Source == abi.SourceFailover {
				over++
			}
		}
		if over != 2 {
			t.Errorf("%d items failed over, want 2\n%s", over, c.all())
		}
	})
}

// It kills the mutant "misfire never made up".
func TestAnItemThatStillRunsIsMadeUpForRightAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.start(1, job(definition("slow", "0 * * * * ?", 2), &guest{digest: "slow", run: func(_ context.Context, inv *abi.Invocation) abi.Result {
			if inv.Context.ShardingItem == 0 {
				time.Sleep(150 * time.Second) // over two instants
			}
			return ok
		}}))
		time.Sleep(5*time.Minute + 30*time.Second)
		var sources []string
		for _, e := range c.list(event.ItemStarted) {
			if *e.Item == 0 {
				sources = append(sources, fmt.Sprintf("%s %s for %s", e.Time.UTC().Format("04:05"), e.Source, e.Instant.UTC().Format("04:05")))
			}
		}
		// Begun at 1:00 it runs until 3:30; 2:00 and 3:00 are one catch-up.
		want := []string{"01:00 schedule for 01:00", "03:30 misfire for 03:00"}
		if !slices.Equal(sources, want) {
			t.Errorf("item 0 started %q, want %q\n%s", sources, want, c.all())
		}
		if n := completed(c.list(event.ItemCompleted))[1]; n != 5 {
			t.Errorf("item 1 was completed %d times in five minutes: a slow item must not delay it", n)
		}
		if skipped := c.list(event.ItemSkipped); len(skipped) != 4 {
			t.Errorf("%d items skipped, want one each at 2:00, 3:00, 4:00 and 5:00\n%s", len(skipped), lines(skipped))
		}
	})
}

func TestATriggerWhileTheJobRunsIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		n := c.start(1, job(definition("one-off", "", 2), sleeper(10*time.Second)))
		synctest.Wait()
		for range 3 { // the second is kept, the third is queued behind it
			if err := n.operator().Trigger(t.Context(), "one-off"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		time.Sleep(time.Minute)
		fires := c.list(event.FireEnded)
		if len(fires) != 3 || fires[0].Trigger == fires[1].Trigger || fires[1].Trigger == fires[2].Trigger || fires[0].Source != abi.SourceTrigger {
			t.Errorf("fires %s, want three of different rounds", lines(fires))
		}
		if err := n.operator().Trigger(t.Context(), "none"); !errors.Is(err, engine.ErrNoJob) {
			t.Errorf("triggering an unknown job: %v", err)
		}
	})
}

func TestDisabledJobsAndItemsDoNotRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		n := c.start(1, job(definition("d", "0 * * * * ?", 2), sleeper(time.Second)))
		do := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(90 * time.Second)
		do(n.operator().DisableItem(t.Context(), "d", 1))
		if s := n.host.Status().Jobs[0]; s.Items[1].Disabled || len(s.Hosts) > 0 {
			t.Errorf("what is only asked of the registry is in %+v", s)
		}
		if s := n.host.FullStatus().Jobs[0]; s.Items[0].Disabled || !s.Items[1].Disabled || len(s.Hosts) != 1 {
			t.Errorf("items %+v, hosts %+v, want item 1 disabled and one host", s.Items, s.Hosts)
		}
		time.Sleep(2 * time.Minute)
		do(n.operator().EnableItem(t.Context(), "d", 1))
		do(n.operator().Disable(t.Context(), "d"))
		time.Sleep(time.Second)
		if s := n.host.Status().Jobs[0]; s.State != engine.JobDisabled {
			t.Errorf("state %s, want disabled", s.State)
		}
		time.Sleep(3 * time.Minute)
		do(n.operator().Enable(t.Context(), "d"))
		time.Sleep(10 * time.Second)
		if done := completed(c.list(event.ItemCompleted)); done[0] != 3 || done[1] != 1 {
			t.Errorf("completions %v, want 3 of item 0 and 1 of item 1; enabling makes up for nothing\n%s", done, c.all())
		}
		time.Sleep(time.Minute)
		if done := completed(c.list(event.ItemCompleted)); done[0] != 4 || done[1] != 2 {
			t.Errorf("completions %v after enabling, want 4 and 2\n%s", done, c.all())
		}
		if err := n.operator().DisableItem(t.Context(), "d", 7); err == nil {
			t.Error("an item that does not exist was disabled")
		}
	})
}

func TestAModuleIsReplacedBetweenFires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		d := definition("m", "0 * * * * ?", 1)
		one, two := sleeper(30*time.Second), sleeper(2*time.Second)
		n := c.start(1, job(d, one))
		time.Sleep(70 * time.Second) // the first fire runs
		n.host.Apply([]engine.Job{job(d, two)}, nil)
		time.Sleep(10 * time.Second)
		if one.inUse() != 1 {
			t.Errorf("the old module has %d uses while its item runs, want 1", one.inUse())
		}
		time.Sleep(time.Minute)
		if one.inUse() != 0 {
			t.Errorf("the old module has %d uses after its last item", one.inUse())
		}
		var digests []string
		for _, e := range c.list(event.ItemCompleted) {
			digests = append(digests, e.Digest)
		}
		if want := []string{one.digest, two.digest}; !slices.Equal(digests, want) {
			t.Errorf("items ran in %v, want %v", digests, want)
		}
		n.stop()
		<-n.done
		if two.inUse() != 0 {
			t.Errorf("the module has %d uses after the host has stopped", two.inUse())
		}
	})
}

func TestABadModuleLeavesTheOneThatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		d := definition("m", "0 * * * * ?", 1)
		n := c.start(1, job(d, sleeper(time.Second)))
		time.Sleep(time.Minute + 10*time.Second)
		n.host.Apply([]engine.Job{job(d, &guest{digest: "bad", bad: errors.New("job_execute is missing")})}, nil)
		time.Sleep(time.Minute)
		s := n.host.Status().Jobs[0]
		if s.State != engine.JobError || !strings.Contains(s.Reason, "job_execute is missing") || s.Digest != "sleeper-1s" {
			t.Errorf("status %+v, want the reason and the digest that runs", s)
		}
		if done := completed(c.list(event.ItemCompleted))[0]; done != 2 {
			t.Errorf("%d completions, want 2: the good module goes on", done)
		}
	})
}

func TestDraining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		d := definition("drain", "0 * * * * ?", 4)
		d.Props["wasm.maxConcurrency"] = "2"
		first := c.start(1, job(d, sleeper(10*time.Second)))
		time.Sleep(61 * time.Second) // two items run, two wait for a worker
		first.stop()
		if err := <-first.done; err != nil {
			t.Fatal(err)
		}
		if done := len(c.list(event.ItemCompleted)); done != 2 {
			t.Errorf("%d items completed in the drain, want the 2 that ran\n%s", done, c.all())
		}
		// The next host makes up for the two that were handed back.
		c.start(2, job(d, sleeper(10*time.Second)))
		time.Sleep(30 * time.Second)
		if done := completed(c.list(event.ItemCompleted)); len(done) != 4 {
			t.Errorf("completions %v, want every item once\n%s", done, c.all())
		}
	})
}

// TestQueuedItemsAreHandedBackAtOnce: not when the items that run have ended.
func TestQueuedItemsAreHandedBackAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		d := definition("queue", "0 * * * * ?", 5)
		d.Props["wasm.maxConcurrency"] = "2"
		n := c.start(1, job(d, sleeper(20*time.Second)))
		time.Sleep(61 * time.Second)
		stopped := time.Now()
		n.stop()
		time.Sleep(time.Second)
		back := c.list(event.ItemSkipped)
		if len(back) != 3 || len(c.list(event.ItemEnded)) != 0 {
			t.Fatalf("while two items run, %d were handed back, want 3\n%s", len(back), c.all())
		}
		for _, e := range back {
			if late := e.Time.Sub(stopped); late > 100*time.Millisecond {
				t.Errorf("item %d was handed back after %s", *e.Item, late)
			}
		}
		if err := <-n.done; err != nil {
			t.Fatal(err)
		}
		if done := completed(c.list(event.ItemCompleted)); len(done) != 2 {
			t.Errorf("completions %v, want those of the two that ran\n%s", done, c.all())
		}
	})
}

// TestALeavingThatIsTakenBack: the definition went and came back while an item
// ran; what was handed back is made up for here.
func TestALeavingThatIsTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		d := definition("queue", "0 * * * * ?", 3)
		d.Props["wasm.maxConcurrency"] = "1"
		wanted := job(d, sleeper(10*time.Second))
		n := c.start(1, wanted)
		time.Sleep(61 * time.Second)
		n.host.Apply(nil, nil)
		time.Sleep(2 * time.Second)
		n.host.Apply([]engine.Job{wanted}, nil)
		time.Sleep(40 * time.Second)
		if done := completed(c.list(event.ItemCompleted)); len(done) != 3 || done[0] != 1 || done[1] != 1 || done[2] != 1 {
			t.Errorf("completions %v, want every item once\n%s", done, c.all())
		}
	})
}

// TestLeavingForWhatIsGone: a job leaves without its module as without its
// definition, and the reason says which it is.
func TestLeavingForWhatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		n := c.start(1, job(definition("a", "", 1), sleeper(time.Second)), job(definition("b", "", 1), sleeper(time.Second)))
		time.Sleep(5 * time.Second)
		n.host.Apply(nil, []engine.Refusal{
			{File: "a.yaml", Reasons: []string{`line 1: job "a": module "a.wasm": there is no such file beside the definition`}, Modules: map[string]string{"a": `"a.wasm": there is no such file beside the definition`}},
			{File: "b.wasm", Reasons: []string{"no definition names it, expected one such as b.yaml beside it"}},
		})
		time.Sleep(5 * time.Second)
		reasons := make(map[string]string)
		for _, e := range c.list(event.JobRemoved) {
			reasons[e.Job] = e.Reason
		}
		if want := map[string]string{"a": `its module "a.wasm": there is no such file beside the definition`, "b": "its definition is gone"}; !maps.Equal(reasons, want) {
			t.Errorf("the jobs left for %q, want %q", reasons, want)
		}
	})
}

func TestADrainThatTakesTooLongOwesTheItem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		d := definition("drain", "", 1)
		d.Failover = true
		first := c.start(1, job(d, sleeper(time.Hour)))
		synctest.Wait()
		if err := first.operator().Trigger(t.Context(), "drain"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		asked := time.Now()
		first.stop()
		<-first.done
		if took := time.Since(asked); took != 30*time.Second {
			t.Errorf("the drain took %s, want its time-out of 30s", took)
		}
		c.start(2, job(d, sleeper(time.Second)))
		time.Sleep(10 * time.Second)
		done := c.list(event.ItemCompleted)
		if len(done) != 1 || done[0].Source != abi.SourceFailover {
			t.Errorf("completed: %s, want the unfinished item, by failover\n%s", lines(done), c.all())
		}
	})
}

func TestAnOperatorRemovesAJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		d := definition("gone", "*/5 * * * * ?", 2)
		a := c.start(1, job(d, sleeper(time.Second)))
		b := c.start(2, job(d, sleeper(time.Second)))
		time.Sleep(11 * time.Second)
		if err := a.operator().Remove(t.Context(), "gone", true); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		before := len(c.list(event.ItemCompleted))
		time.Sleep(time.Minute)
		if after := len(c.list(event.ItemCompleted)); after != before {
			t.Errorf("%d items ran after the job was removed\n%s", after-before, c.all())
		}
		for _, n := range []*node{a, b} {
			if s := n.host.Status().Jobs[0]; s.State != engine.JobRemoved {
				t.Errorf("state %s, want removed", s.State)
			}
		}
		r, err := c.server.Connect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		nodes, err := r.Read(t.Context(), registry.Children("/test"), registry.Children("/test.wasmjob/gone"))
		if err != nil || len(nodes[0].Names) > 0 || !slices.Equal(nodes[1].Names, []string{"wanted"}) {
			t.Errorf("the registry holds %v %v after a purge, %v; want only that it is removed", nodes[0].Names, nodes[1].Names, err)
		}
		// News of other jobs do not bring it back, a change of its own does.
		a.host.Apply([]engine.Job{job(d, sleeper(time.Second)), job(definition("other", "", 1), sleeper(time.Second))}, nil)
		time.Sleep(time.Second)
		if s := a.host.Status().Jobs[0]; s.State != engine.JobRemoved {
			t.Errorf("state %s after another job was added, want removed", s.State)
		}
		d.Description = "wanted back"
		a.host.Apply([]engine.Job{job(d, sleeper(time.Second))}, nil)
		time.Sleep(7 * time.Second)
		if s := a.host.Status().Jobs[0]; s.State == engine.JobRemoved || len(s.Items) != 1 {
			t.Errorf("after its definition was changed: %+v\n%s", s, c.all())
		}
	})
}

func TestListenersRunOncePerFireOverAllHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var mu sync.Mutex
		var calls []string
		note := func(what string) {
			mu.Lock()
			defer mu.Unlock()
			calls = append(calls, what)
		}
		listener := func(name string) func(*abi.Invocation) abi.Result {
			return func(*abi.Invocation) abi.Result { note(name); return ok }
		}
		g := &guest{digest: "listens", run: func(context.Context, *abi.Invocation) abi.Result {
			note("item")
			time.Sleep(time.Second)
			return ok
		}, listeners: map[string]func(*abi.Invocation) abi.Result{
			abi.ExportBeforeOnce: listener("first"), abi.ExportAfterOnce: listener("last"),
			abi.ExportBefore: listener("before"), abi.ExportAfter: listener("after"),
		}}
		d := definition("listen", "0 * * * * ?", 4)
		for i := range 2 {
			c.start(1+i, job(d, g))
		}
		time.Sleep(90 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		got := strings.Join(calls, " ")
		count := func(w string) int { return strings.Count(got, w) }
		if len(calls) == 0 || calls[0] != "first" || calls[len(calls)-1] != "last" || count("first") != 1 || count("last") != 1 ||
			count("before") != 2 || count("after") != 2 || count("item") != 4 {
			t.Errorf("calls: %s\n%s", got, c.all())
		}
	})
}

func TestRetriesAndOffsets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		d := definition("retry", "0 * * * * ?", 1)
		var mu sync.Mutex
		var seen []string
		g := &guest{digest: "r", run: func(_ context.Context, inv *abi.Invocation) abi.Result {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, fmt.Sprintf("%s#%d", inv.Offset, inv.Context.Attempt))
			if inv.Context.Attempt < 3 {
				return abi.Result{Outcome: abi.OutcomeRetry, Message: "later"}
			}
			return abi.Result{Outcome: abi.OutcomeOK, Offset: fmt.Appendf(nil, "after-%d", len(seen)), Staged: true}
		}}
		c.start(1, job(d, g))
		time.Sleep(2*time.Minute + 30*time.Second)
		mu.Lock()
		defer mu.Unlock()
		want := []string{"#1", "#2", "#3", "after-3#1", "after-3#2", "after-3#3"}
		if !slices.Equal(seen, want) {
			t.Errorf("attempts %q, want %q", seen, want)
		}
		var fences []int64
		for _, e := range c.list(event.ItemCompleted) {
			fences = append(fences, e.Fence)
		}
		if len(fences) != 2 || fences[1] <= fences[0] {
			t.Errorf("fence tokens %v must grow", fences)
		}
	})
}

func TestChangesToTheDefinitionTakeEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		g := sleeper(time.Second)
		d := definition("change", "0 * * * * ?", 1)
		n := c.start(1, job(d, g))
		time.Sleep(65 * time.Second)
		d.Cron, d.ShardingTotalCount = "*/10 * * * * ?", 3
		n.host.Apply([]engine.Job{job(d, g)}, nil)
		time.Sleep(20 * time.Second)
		if done := completed(c.list(event.ItemCompleted)); done[0] != 3 || done[1] != 2 || done[2] != 2 {
			t.Errorf("completions %v, want 3, 2, 2\n%s", done, c.all())
		}
		n.host.Apply(nil, nil)
		time.Sleep(5 * time.Second)
		if jobs := n.host.Status().Jobs; len(jobs) != 0 {
			t.Errorf("jobs %+v after the definition is gone", jobs)
		}
		if g.inUse() != 0 {
			t.Errorf("the module has %d uses after its job has gone", g.inUse())
		}
	})
}

func TestARestartedHostFailsOverToItself(t *testing.T) {
	dir := t.TempDir()
	d := definition("resume", "", 1)
	d.Failover = true
	begun := make(chan abi.Source, 2)
	run := func(crash bool) {
		server, err := embedded.Open(embedded.Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		over, joined := make(chan struct{}, 1), make(chan struct{})
		h, err := engine.New(engine.Config{Dial: server.Connect, Namespace: "n", ServerIP: "127.0.0.1", OnEvent: func(e event.Event) {
			switch e.Kind {
			case event.ItemCompleted:
				over <- struct{}{}
			case event.JobAdded:
				close(joined)
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		g := &guest{digest: "g", run: func(ctx context.Context, inv *abi.Invocation) abi.Result {
			begun <- inv.Context.Source
			if crash {
				<-ctx.Done()
				return abi.Result{Outcome: abi.OutcomeCancelled}
			}
			return ok
		}}
		h.Apply([]engine.Job{job(d, g)}, nil)
		kill, killNow := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- h.Run(t.Context(), kill) }()
		if crash {
			<-joined
			if err := operator(h, "n").Trigger(t.Context(), "resume"); err != nil {
				t.Fatal(err)
			}
			if source := <-begun; source != abi.SourceTrigger {
				t.Errorf("source %s", source)
			}
		} else {
			if source := <-begun; source != abi.SourceFailover {
				t.Errorf("source %s, want failover", source)
			}
			<-over
		}
		killNow()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	run(true)
	run(false)
}

func TestNewRefusesWhatCannotWork(t *testing.T) {
	_, err := engine.New(engine.Config{Namespace: "/", ServerIP: "::1", MaxConcurrency: -1})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"Dial", "namespace", "server IP", "max concurrency"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v: does not name %s", err, want)
		}
	}
}

func TestADefinitionDisablesItsJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		g := sleeper(time.Second)
		d := definition("off", "0 * * * * ?", 1)
		n := c.start(1, job(d, g))
		time.Sleep(65 * time.Second)
		d.Disabled = true
		n.host.Apply([]engine.Job{job(d, g)}, nil)
		time.Sleep(2 * time.Minute)
		if done := completed(c.list(event.ItemCompleted))[0]; done != 1 {
			t.Errorf("%d completions, want the one before it was disabled\n%s", done, c.all())
		}
		// The operator's word is newer than the file's.
		if err := n.operator().Enable(t.Context(), "off"); err != nil {
			t.Fatal(err)
		}
		d.Description = "something else is changed"
		n.host.Apply([]engine.Job{job(d, g)}, nil)
		time.Sleep(time.Minute)
		if done := completed(c.list(event.ItemCompleted))[0]; done != 2 {
			t.Errorf("%d completions, want another after it was enabled\n%s", done, c.all())
		}
		// The file's next word is newer still.
		if err := n.operator().Disable(t.Context(), "off"); err != nil {
			t.Fatal(err)
		}
		d.Disabled = false
		n.host.Apply([]engine.Job{job(d, g)}, nil)
		time.Sleep(time.Minute)
		if done := completed(c.list(event.ItemCompleted))[0]; done != 3 {
			t.Errorf("%d completions, want another after the definition enabled it\n%s", done, c.all())
		}
		// What others write into the field, as a Java host with overwrite does at
		// its start, is nobody's word on servers that are there.
		if err := n.operator().Disable(t.Context(), "off"); err != nil {
			t.Fatal(err)
		}
		for _, d.Disabled = range []bool{true, false} {
			c.edit(d)
			time.Sleep(time.Minute)
		}
		d.Disabled = true
		n.host.Apply([]engine.Job{job(d, g)}, nil)
		time.Sleep(time.Minute)
		d.Description = "changed while another writes"
		by := d
		by.Disabled = false
		c.commit(registry.Set("/test/off/config", by.YAML(), registry.AnyVersion),
			registry.Set("/test.wasmjob/off/definition", d.YAML(), registry.AnyVersion))
		time.Sleep(2 * time.Minute)
		if done := completed(c.list(event.ItemCompleted))[0]; done != 3 {
			t.Errorf("%d completions: another's write into the configuration enabled the job\n%s", done, c.all())
		}
	})
}

// fiveSteps is the guest of a streaming job with five batches of 700 ms, each a letter
// of its offset. kind says what it does when it is to stop. began lists its runs.
func fiveSteps(kind string) (g *guest, began func() []string) {
	var mu sync.Mutex
	var runs []string
	g = &guest{digest: "s", run: func(ctx context.Context, inv *abi.Invocation) abi.Result {
		mu.Lock()
		runs = append(runs, fmt.Sprintf("%s at %q", inv.Context.Source, inv.Offset))
		mu.Unlock()
		at := len(inv.Offset)
		for at < 5 {
			time.Sleep(700 * time.Millisecond)
			at++
			if code := inv.Host.StageOffset(ctx, bytes.Repeat([]byte("x"), at)); code != abi.OK {
				return abi.Result{Outcome: abi.OutcomeCancelled}
			}
			if why := inv.Host.Cancelled(); why == abi.CancelYield && kind == "yields between batches" {
				return abi.Result{Outcome: abi.OutcomeOK, Yielded: true}
			} else if why != abi.CancelNone {
				return abi.Result{Outcome: abi.OutcomeCancelled, Status: abi.StatusCancelled}
			}
		}
		return ok
	}}
	return g, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(runs)
	}
}

// A guest that does as it is told when the host drains must not lose by it
// against one that was killed.
func TestAGuestThatStopsInADrainGoesOnLater(t *testing.T) {
	for _, kind := range []string{"yields between batches", "returns cancelled"} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				d := definition("stream", "", 1)
				d.Failover = true
				d.Props["streaming.process"] = "true"
				g, began := fiveSteps(kind)
				first := c.start(1, job(d, g))
				synctest.Wait()
				if err := first.operator().Trigger(t.Context(), "stream"); err != nil {
					t.Fatal(err)
				}
				time.Sleep(1500 * time.Millisecond)
				first.stop()
				<-first.done
				if ends := c.list(event.FireEnded); len(ends) != 1 || ends[0].Outcome != abi.OutcomeCancelled {
					t.Errorf("fires %s, want one that was cut short", lines(ends))
				}
				c.start(2, job(d, g))
				time.Sleep(10 * time.Second)
				if began, want := began(), []string{`trigger at ""`, `failover at "xxx"`}; !slices.Equal(began, want) {
					t.Errorf("began %q, want %q\n%s", began, want, c.all())
				}
				if done := c.list(event.ItemCompleted); len(done) != 1 || done[0].Outcome != abi.OutcomeOK {
					t.Errorf("completed %s, want the one that went on", lines(done))
				}
			})
		})
	}
}

// A streaming run whose item moves goes on at the next owner, wherever it was, and is
// neither over nor a failure before that.
func TestAStreamWhoseItemMovesGoesOnThere(t *testing.T) {
	for _, kind := range []string{"yields between batches", "returns cancelled"} {
		for _, by := range []string{"trigger", "schedule"} {
			t.Run(kind+", "+by, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := newCluster(t)
					d := definition("stream", "", 1)
					if by == "schedule" {
						d.Cron = "0 0 * * * ?"
					}
					d.Props["streaming.process"] = "true"
					g, began := fiveSteps(kind)
					first := c.start(1, job(d, g))
					c.start(2, job(d, g))
					time.Sleep(10 * time.Second)
					if by == "trigger" {
						if err := first.operator().Trigger(t.Context(), "stream"); err != nil {
							t.Fatal(err)
						}
					} else {
						time.Sleep(time.Hour - 10*time.Second)
					}
					time.Sleep(1500 * time.Millisecond)
					owner, _, _ := strings.Cut(string(c.nodes(registry.Data("/test/stream/sharding/0/instance"))[0].Data), "@")
					if err := c.operate(func(ctx context.Context, r registry.Center) error {
						_, err := operate.SetServers(ctx, r, tree.NewLayout("test", "stream"), tree.Word{}, false, owner)
						return err
					}); err != nil {
						t.Fatal(err)
					}
					time.Sleep(10 * time.Second)
					source := map[string]string{"trigger": "trigger", "schedule": "catch-up"}[by]
					if began, want := began(), []string{by + ` at ""`, source + ` at "xxx"`}; !slices.Equal(began, want) {
						t.Errorf("began %q, want %q\n%s", began, want, c.all())
					}
					if done := c.list(event.ItemCompleted); len(done) != 1 || done[0].Outcome != abi.OutcomeOK {
						t.Errorf("completed %s, want the one that went on", lines(done))
					}
					if ends := c.list(event.FireEnded); len(ends) != 2 || ends[0].Outcome != abi.OutcomeCancelled || ends[1].Outcome != abi.OutcomeOK {
						t.Errorf("fires %s, want one that was cut short and one that is OK", lines(ends))
					}
				})
			})
		}
	}
}

// A streaming item that is to move because a host has come does not begin again where
// it was: it would never be idle, and never move.
func TestAStreamMovesToAHostThatComes(t *testing.T) {
	for _, misfire := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			const items, batches = 4, 40
			c := newCluster(t)
			d := definition("stream", "0/10 * * * * ?", items)
			d.Misfire = misfire
			d.Props["streaming.process"] = "true"
			g := &guest{digest: "s", run: func(ctx context.Context, inv *abi.Invocation) abi.Result {
				for at := len(inv.Offset); at < batches; {
					time.Sleep(time.Second)
					at++
					if code := inv.Host.StageOffset(ctx, bytes.Repeat([]byte("x"), at)); code != abi.OK {
						return abi.Result{Outcome: abi.OutcomeCancelled}
					}
					if inv.Host.Cancelled() == abi.CancelYield {
						return abi.Result{Outcome: abi.OutcomeOK, Yielded: true}
					}
				}
				return ok
			}}
			c.start(1, job(d, g))
			time.Sleep(25 * time.Second) // instants come due while they run
			c.start(2, job(d, g))
			time.Sleep(30 * time.Second)
			starts := make(map[int]int) // of the instants from before the second host came
			for _, e := range c.list(event.ItemStarted) {
				if e.Instant.Second() <= 20 {
					starts[*e.Item]++
				}
				// The next owner keeps the promise that a missed instant is caught up on.
				if want := map[bool]int{false: 10, true: 20}[misfire]; e.Source == abi.SourceCatchUp && e.Instant.Second() != want {
					t.Errorf("misfire %v: item %d goes on for %s, want second %d", misfire, *e.Item, e.Instant, want)
				}
			}
			moved := 0
			for i := range items {
				moved += starts[i] - 1
			}
			if moved != items/2 {
				t.Errorf("misfire %v: items started %v times, want each once and two of them once more where they went\n%s", misfire, starts, c.all())
			}
			if done := completed(c.list(event.ItemCompleted)); len(done) != items {
				t.Errorf("misfire %v: completed %v, want all\n%s", misfire, done, c.all())
			}
		})
	}
}

// The admin address refuses triggers by this state.
func TestAHostThatDrainsSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		n := c.start(1, job(definition("long", "0/10 * * * * ?", 1), sleeper(20*time.Second)))
		time.Sleep(11 * time.Second)
		if err := n.operator().Trigger(t.Context(), "long"); err != nil {
			t.Fatalf("before the drain: %v", err)
		}
		n.stop()
		synctest.Wait()
		if s := n.host.Status(); s.State != engine.HostDraining {
			t.Errorf("while it drains: %v, want %v", s.State, engine.HostDraining)
		}
		<-n.done
		if err := n.operator().Trigger(t.Context(), "long"); !errors.Is(err, engine.ErrNotLive) {
			t.Errorf("when it has stopped: %v, want %v", err, engine.ErrNotLive)
		}
	})
}
