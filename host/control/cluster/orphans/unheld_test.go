package orphans

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap/zaptest"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/test/registries"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// counting counts what is asked of the registry.
type counting struct {
	registry.Center
	mu      sync.Mutex
	watched []string
}

func (c *counting) Watch(ctx context.Context, queries ...registry.Query) (<-chan registry.Snapshot, error) {
	c.mu.Lock()
	for _, q := range queries {
		c.watched = append(c.watched, q.Path)
	}
	c.mu.Unlock()
	return c.Center.Watch(ctx, queries...)
}

func (c *counting) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.watched)
}

const config = "cron: 0 0 3 * * ?\njobName: NAME\nshardingTotalCount: 4\ndescription: the bills\ntimeZone: Europe/Berlin\n"

// TestLook: what the registry has of jobs is known as it is now, and asked for once.
func TestLook(t *testing.T) {
	t.Parallel()
	registries.Each(t, func(t *testing.T, dial func() registry.Center) {
		other, own := dial(), &counting{Center: dial()}
		defer other.Close() //nolint:errcheck // the test is over
		defer own.Close()   //nolint:errcheck // the test is over
		commit := func(ops ...registry.Op) {
			t.Helper()
			if _, err := other.Commit(t.Context(), ops...); err != nil {
				t.Fatal(err)
			}
		}
		job := func(name string) tree.Layout { return tree.NewLayout("ns", name) }
		commit(registry.Ensure(job("pay").Instances()), registry.Ensure(job("empty").Root()), registry.Ensure(job("bad").Root()))
		commit(registry.Create(job("pay").Config(), []byte(config)), registry.Create(job("bad").Config(), []byte("cron: [")))

		jobs := New("ns", zaptest.NewLogger(t))
		ctx, stop := context.WithCancel(context.Background())
		var run sync.WaitGroup
		run.Go(func() {
			if err := jobs.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		defer run.Wait()
		defer stop()

		early, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if _, err := jobs.Look(early, []string{"pay"}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("without a session: %v", err)
		}
		jobs.Begun(own)
		eventually(t, "the list of jobs", func() bool { return slices.Equal(jobs.Names(), []string{"bad", "empty", "pay"}) })

		look := func(names ...string) []Job {
			t.Helper()
			list, err := jobs.Look(t.Context(), names)
			if err != nil {
				t.Fatal(err)
			}
			return list
		}
		list := look("bad", "empty", "pay")
		if len(list) != 2 || list[0].Name != "bad" || list[0].Problem == "" {
			t.Fatalf("found %+v, expected bad with its problem, and pay", list)
		}
		pay := Job{Name: "pay", Description: "the bills", Cron: "0 0 3 * * ?", TimeZone: "Europe/Berlin", ShardingTotalCount: 4}
		if !reflect.DeepEqual(list[1], pay) {
			t.Errorf("found %+v, expected %+v", list[1], pay)
		}
		asked := own.count()
		for range 10 {
			look("pay", "empty")
			look("bad", "pay")
		}
		if n := own.count(); n != asked {
			t.Errorf("jobs that are known were asked for %d times more", n-asked)
		}

		if list := look(); len(list) != 0 {
			t.Errorf("found %+v, expected nothing", list)
		}
		commit(registry.Create(job("pay").Instances()+"/10.0.0.1@-@1", nil))
		eventually(t, "an instance", func() bool { return look("pay")[0].Instances == 1 })
		commit(registry.Ensure(job("pay").Servers()), registry.Create(job("pay").Servers()+"/10.0.0.1", nil))
		eventually(t, "a server", func() bool { return slices.Equal(look("pay")[0].Servers, []string{"10.0.0.1"}) })
		commit(registry.Delete(job("pay").Config(), registry.AnyVersion))
		eventually(t, "the removal", func() bool { return len(look("pay")) == 0 })
		commit(registry.Ensure(job("new").Root()), registry.Create(job("new").Config(), []byte(config)))
		eventually(t, "a job more", func() bool { return slices.Contains(jobs.Names(), "new") })
		if list := look("new"); len(list) != 1 || list[0].Cron != pay.Cron {
			t.Errorf("found %+v, expected the new job", list)
		}
	})
}

// TestLook_ended: who asks a host that ends is told so.
func TestLook_ended(t *testing.T) {
	t.Parallel()
	jobs := New("ns", zaptest.NewLogger(t))
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := jobs.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := jobs.Look(t.Context(), []string{"pay"}); !errors.Is(err, ErrEnded) {
		t.Errorf("found %v, expected %v", err, ErrEnded)
	}
}

// eventually waits for what another session's commit brings about: the registry says when.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}
