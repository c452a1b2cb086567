package engine_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/registry"
)

func TestListeners_hostsWaitForTheOneThatRunsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.wrap = func(n int, l *lease) registry.Center {
			return &slow{lease: l, call: time.Duration(n) * 100 * time.Millisecond, news: time.Second}
		}
		var mu sync.Mutex
		var calls []string
		note := func(what string) {
			mu.Lock()
			defer mu.Unlock()
			calls = append(calls, what)
		}
		g := &guest{digest: "listens", run: func(context.Context, *abi.Invocation) abi.Result {
			note("item")
			return ok
		}, listeners: map[string]func(*abi.Invocation) abi.Result{
			abi.ExportBeforeOnce: func(*abi.Invocation) abi.Result { note("first"); return ok },
			abi.ExportAfterOnce:  func(*abi.Invocation) abi.Result { note("last"); return ok },
		}}
		d := definition("listen", "*/20 * * * * ?", 4)
		for i := range 2 {
			c.start(1+i, job(d, g))
		}
		time.Sleep(41 * time.Second) // they share now
		mu.Lock()
		calls = nil
		mu.Unlock()
		time.Sleep(60 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		got := strings.Join(calls, " ")
		if want := strings.Repeat("first item item item item last ", 3); got+" " != want {
			t.Errorf("calls: %s\nwant:  %s\n%s", got, want, c.all())
		}
	})
}

func TestListeners_misfireDoesNotWaitForHostsWithout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var mu sync.Mutex
		g := &guest{digest: "listens", run: func(_ context.Context, inv *abi.Invocation) abi.Result {
			if inv.Context.ShardingItem == 0 && inv.Context.Source == abi.SourceSchedule {
				time.Sleep(70 * time.Second)
			}
			return ok
		}, listeners: map[string]func(*abi.Invocation) abi.Result{
			abi.ExportBeforeOnce: func(*abi.Invocation) abi.Result { mu.Lock(); defer mu.Unlock(); return ok },
		}}
		c.start(1, job(definition("j", "0 * * * * ?", 2), g))
		time.Sleep(145 * time.Second)
		want := []string{"01:00 schedule for 01:00", "02:10 misfire for 02:00"}
		if got := c.starts(0); !slices.Equal(got, want) {
			t.Errorf("item 0 started %q, want %q\n%s", got, want, c.all())
		}
		want = []string{"01:00 schedule for 01:00", "02:00 schedule for 02:00"}
		if got := c.starts(1); !slices.Equal(got, want) {
			t.Errorf("item 1 started %q, want %q: a slow item must not delay it\n%s", got, want, c.all())
		}
	})
}
