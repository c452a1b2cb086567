package changes

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap/zaptest"

	"github.com/wasmjob/wasmjob/coordination/admin/changelog"
	"github.com/wasmjob/wasmjob/coordination/fence"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/test/registries"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ledger is what recorders have taken.
type ledger struct {
	mu   sync.Mutex
	all  []string // what was done, and which host recorded it
	more chan struct{}
}

func (l *ledger) of(host string) func(history.Change) {
	return func(c history.Change) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.all = append(l.all, c.What+" by "+c.Who+" on "+host)
		close(l.more)
		l.more = make(chan struct{})
	}
}

// until waits for so many records.
func (l *ledger) until(t *testing.T, n int) []string {
	t.Helper()
	limit := time.After(30 * time.Second)
	for {
		l.mu.Lock()
		all, more := slices.Clone(l.all), l.more
		l.mu.Unlock()
		if len(all) >= n {
			return all
		}
		select {
		case <-more:
		case <-limit:
			t.Fatalf("%d records, want %d: %v", len(all), n, all)
		}
	}
}

// hostRun is a recorder in a session.
type hostRun struct {
	center registry.Center
	stop   func()
}

func begin(t *testing.T, l *ledger, name string, c registry.Center) *hostRun {
	return runs(t, New("ns", l.of(name), zaptest.NewLogger(t)), c)
}

// runs has a recorder run in a session.
func runs(t *testing.T, r *Recorder, c registry.Center) *hostRun {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	r.Begun(c)
	h := &hostRun{center: c, stop: sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})}
	t.Cleanup(h.stop)
	return h
}

// leave leaves a record as a command does.
func leave(t *testing.T, c registry.Center, what string) {
	t.Helper()
	l := tree.NewLayout("ns", "j")
	r := changelog.Leaving(c, l, func() changelog.Record { return changelog.Record{Who: "ann", What: what} })
	if _, err := r.Commit(t.Context(), registry.Ensure(l.Root())); err != nil {
		t.Fatal(err)
	}
}

// none waits until no record waits in the registry.
func none(t *testing.T, c registry.Center) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	q := registry.Children(tree.ClusterChanges("ns"))
	snapshots, err := c.Watch(ctx, q)
	if err != nil {
		t.Fatal(err)
	}
	for s := range snapshots { // it may not be there yet
		if n := s[q]; n.Exists && len(n.Names) == 0 {
			return
		}
	}
	t.Fatal("records wait in the registry")
}

// recorder is the host that takes the records.
func recorder(t *testing.T, c registry.Center) string {
	t.Helper()
	nodes, err := c.Read(t.Context(), registry.Data(tree.ClusterRecorder("ns")))
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		return string(n.Data)
	}
	return ""
}

// TestRecorder: of three hosts one takes each record, once and in the order of their nodes; when it is gone,
// another does.
func TestRecorder(t *testing.T) {
	t.Parallel()
	registries.Each(t, func(t *testing.T, dial func() registry.Center) {
		l := &ledger{more: make(chan struct{})}
		hosts := map[string]*hostRun{}
		for _, name := range []string{"a", "b", "c"} {
			hosts[name] = begin(t, l, name, dial())
		}
		c := dial()
		t.Cleanup(func() {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
		total := 0
		for len(hosts) > 0 {
			for n := range 5 {
				leave(t, c, fmt.Sprint("change ", total+n))
			}
			total += 5
			all := l.until(t, total)
			none(t, c)
			if len(l.until(t, total)) != total {
				t.Fatalf("%d records, want %d: %v", len(all), total, all)
			}
			by := all[total-1][len(all[total-1])-1:]
			for _, record := range all[total-5:] {
				if record[len(record)-1:] != by {
					t.Errorf("two hosts took records: %v", all[total-5:])
				}
			}
			hosts[by].stop()
			delete(hosts, by)
			if recorder(t, c) != "" && len(hosts) == 0 {
				t.Error("a host that is gone is the recorder")
			}
		}
		leave(t, c, "the last") // for the next host
		begin(t, l, "d", dial())
		if all := l.until(t, total+1); all[total] != "the last by ann on d" {
			t.Errorf("%q, want the record that waited", all[total])
		}
		none(t, c)
	})
}

// TestRecorder_garbage: a record that cannot be read is removed, and stands in the way of no other.
func TestRecorder_garbage(t *testing.T) {
	t.Parallel()
	registries.Each(t, func(t *testing.T, dial func() registry.Center) {
		l := &ledger{more: make(chan struct{})}
		h := begin(t, l, "a", dial())
		list := tree.ClusterChanges("ns")
		if _, err := h.center.Commit(t.Context(), registry.Ensure(list), registry.Create(list+"/0", []byte("{"))); err != nil {
			t.Fatal(err)
		}
		leave(t, h.center, "trigger")
		if all := l.until(t, 1); !slices.Equal(all, []string{"trigger by ann on a"}) {
			t.Errorf("%v", all)
		}
		none(t, h.center)
	})
}

// TestRecorder_trigger: the record of a command has the number that the fire has, also in a registry that was
// copied from another one; that of a host of an earlier version has none.
func TestRecorder_trigger(t *testing.T) {
	t.Parallel()
	registries.Each(t, func(t *testing.T, dial func() registry.Center) {
		c := dial()
		l := tree.NewLayout("ns", "j")
		record := changelog.Record{Who: "ann", What: "trigger", Trigger: changelog.OfThisCommit}
		if _, err := c.Commit(t.Context(), registry.Ensure(l.Root()), registry.Ensure(l.NamespaceNode()), registry.Set(l.NamespaceNode(), []byte(`{"base":1000000}`), registry.AnyVersion), registry.Ensure(l.Sibling())); err != nil {
			t.Fatal(err)
		}
		raised, err := fence.Raised(t.Context(), c, "ns")
		if err != nil {
			t.Fatal(err)
		}
		done, err := changelog.Leaving(raised, l, func() changelog.Record { return record }).Commit(t.Context(), registry.Set(l.Root(), nil, registry.AnyVersion))
		if err != nil {
			t.Fatal(err)
		}
		if err := changelog.Leave(t.Context(), raised, l, changelog.Wrote(7), changelog.Record{Who: "the registry", What: "trigger"}); err != nil {
			t.Fatal(err)
		}
		found, numbers := make(chan history.Change, 2), make(map[string]int64)
		recorder := New("ns", func(c history.Change) { found <- c }, zaptest.NewLogger(t))
		runs(t, recorder, c)
		for range 2 {
			change := <-found
			numbers[change.Who] = change.Trigger
		}
		if want := map[string]int64{"ann": done[0].Zxid, "the registry": 0}; !maps.Equal(numbers, want) || done[0].Zxid < 1000000 {
			t.Errorf("the numbers are %v, want %v", numbers, want)
		}
	})
}

// dies loses its session when it removes a record.
type dies struct{ registry.Center }

func (d dies) Commit(ctx context.Context, ops ...registry.Op) ([]registry.Result, error) {
	for _, op := range ops {
		if op.Kind == registry.OpDelete {
			if err := d.Close(); err != nil {
				return nil, err
			}
			return nil, registry.ErrSessionLost
		}
	}
	return d.Center.Commit(ctx, ops...)
}

// TestRecorder_dies: a record that a host has taken and not removed is taken once more, and not lost.
func TestRecorder_dies(t *testing.T) {
	t.Parallel()
	registries.Each(t, func(t *testing.T, dial func() registry.Center) {
		l := &ledger{more: make(chan struct{})}
		begin(t, l, "a", dies{dial()})
		c := dial()
		leave(t, c, "trigger")
		l.until(t, 1)
		begin(t, l, "b", c)
		if all := l.until(t, 2); !slices.Equal(all, []string{"trigger by ann on a", "trigger by ann on b"}) {
			t.Errorf("%v", all)
		}
		none(t, c)
	})
}

// refuses has the first removal of a record fail: its outcome is unknown, and it was not done.
type refuses struct {
	registry.Center
	once sync.Once
}

func (r *refuses) Commit(ctx context.Context, ops ...registry.Op) (results []registry.Result, err error) {
	for _, op := range ops {
		if op.Kind == registry.OpDelete {
			r.once.Do(func() { err = registry.ErrUnknown })
		}
	}
	if err != nil {
		return nil, err
	}
	return r.Center.Commit(ctx, ops...)
}

// TestRecorder_goesOn: a host that could not remove a record does so later, and has recorded it once.
func TestRecorder_goesOn(t *testing.T) {
	t.Parallel()
	registries.Each(t, func(t *testing.T, dial func() registry.Center) {
		l := &ledger{more: make(chan struct{})}
		h := begin(t, l, "a", &refuses{Center: dial()})
		leave(t, h.center, "trigger")
		none(t, h.center)
		if all := l.until(t, 1); !slices.Equal(all, []string{"trigger by ann on a"}) {
			t.Errorf("%v", all)
		}
	})
}
