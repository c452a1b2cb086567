package engine_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/admin/inspect"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/event"
)

// TestRestless has somebody ask for a division whenever one was made, as
// another host would that takes each for wrong. The leader obeys, but not
// faster than a registry that others need can take, and says so; items still run.
func TestRestless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, logs := observer.New(zap.WarnLevel)
		c := newCluster(t)
		c.log = zap.New(log)
		g := sleeper(0)
		c.start(1, job(definition("restless", "0 * * * * ?", 2), g))
		time.Sleep(30 * time.Second)
		layout := tree.NewLayout("test", "restless")
		flag := layout.Root() + "/leader/sharding/necessary"
		r, err := c.server.Connect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		news, err := r.Watch(ctx, registry.Data(flag))
		if err != nil {
			t.Fatal(err)
		}
		asked := 0
		var wg sync.WaitGroup
		wg.Go(func() {
			for s := range news {
				if !s.Data(flag).Exists {
					asked++
					if _, err := r.Commit(t.Context(), registry.Create(flag, nil)); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
		const minutes = 2
		time.Sleep(minutes * time.Minute)
		cancel()
		wg.Wait()
		if most := 30 + 5*60*minutes; asked > most {
			t.Errorf("divided %d times in %d minutes; want %d at most", asked, minutes, most)
		}
		if least := 4 * 60 * minutes; asked < least {
			t.Errorf("divided only %d times in %d minutes, though it was asked %d times to", asked, minutes, least)
		}
		if n := logs.FilterMessageSnippet("not coming to rest").Len(); n < 1 || n > minutes+1 {
			t.Errorf("said %d times that it does not come to rest", n)
		}
		time.Sleep(90 * time.Second)
		if starts := c.starts(0); len(starts) == 0 {
			t.Error("no item ran any more")
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestAHostThatWaitsForASlowItemAsksTheRegistryForNothing (T6 of docs/complaints.md, too): a
// host that waits for a division asks the registry ten times a second and more
// for each job, until the next fire, and one slow item keeps it waiting. Here
// what is idle moves at once, and the host that waits asks for nothing.
func TestAHostThatWaitsForASlowItemAsksTheRegistryForNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var calls atomic.Int64
		c.wrap = func(_ int, l *lease) registry.Center { return &asked{l, &calls} }
		d := definition("slow", "0 0 * * * ?", 4)
		d.Failover = true
		// Of four items one is slow. A bubble's time begins at midnight.
		g := &guest{digest: "slow", run: func(_ context.Context, inv *abi.Invocation) abi.Result {
			if inv.Context.ShardingItem == 1 {
				time.Sleep(50 * time.Minute)
			}
			return ok
		}}
		c.start(1, job(d, g))
		time.Sleep(time.Hour + time.Minute)
		synctest.Wait()
		c.start(2, job(d, g))
		time.Sleep(time.Minute)
		synctest.Wait()
		owners := func() map[string][]int {
			list := make(map[string][]int)
			r, err := c.server.Connect(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			s, err := inspect.ReadShards(context.Background(), r, tree.NewLayout("test", "slow"))
			if err != nil {
				t.Fatal(err)
			}
			for _, i := range s.Items {
				ip, _, _ := strings.Cut(i.Owner, "@")
				list[ip] = append(list[ip], i.Item)
			}
			return list
		}
		if got := owners(); len(got["10.0.0.2"]) == 0 {
			t.Errorf("one item runs, and a host that came has none of the others: %v", got)
		}
		before := calls.Load()
		time.Sleep(40 * time.Minute)
		if n := calls.Load() - before; n > 60 {
			t.Errorf("two hosts made %d requests while they waited 40 minutes for an item", n)
		}
		time.Sleep(10 * time.Minute) // it has ended
		synctest.Wait()
		if got := owners(); len(got["10.0.0.1"]) != 2 || len(got["10.0.0.2"]) != 2 {
			t.Errorf("the item has ended, and the items belong to %v", got)
		}
		time.Sleep(time.Hour)
		if n := len(c.list(event.ItemCompleted)); n != 8 {
			t.Errorf("two fires of four items are %d\n%s", n, c.all())
		}
	})
}

// asked counts the requests to the registry.
type asked struct {
	*lease
	calls *atomic.Int64
}

func (a *asked) Commit(ctx context.Context, ops ...registry.Op) ([]registry.Result, error) {
	a.calls.Add(1)
	return a.lease.Commit(ctx, ops...)
}

func (a *asked) Read(ctx context.Context, queries ...registry.Query) ([]registry.Node, error) {
	a.calls.Add(1)
	return a.lease.Read(ctx, queries...)
}

func (a *asked) Watch(ctx context.Context, queries ...registry.Query) (<-chan registry.Snapshot, error) {
	a.calls.Add(1)
	return a.lease.Watch(ctx, queries...)
}
