package zookeeper_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/zookeeper"
	"github.com/wasmjob/wasmjob/test/zkserver"
)

// watches is how many a server holds.
func watches(t *testing.T, e *zkserver.Ensemble) int {
	t.Helper()
	text, err := e.Ask(within(t), 0, "mntr")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text) {
		if name, value, _ := strings.Cut(strings.TrimSpace(line), "\t"); name == "zk_watch_count" {
			n, err := strconv.Atoi(value)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("the server tells of no watches: %s", text)
	return 0
}

// TestNoWatchIsLeftOnWhatNobodyWatches: a job that leaves and comes back in one
// session watches nodes of another id each time, and stands in line behind
// nodes that go for ever.
func TestNoWatchIsLeftOnWhatNobodyWatches(t *testing.T) {
	t.Parallel()
	e := zkserver.ForTest(t, fast(1))
	var sent counter
	rc := dial(t, zookeeper.Options{Connect: e.Connect() + "/below/here", OnOperation: sent.count})
	root := fresh(t, rc)
	commit(t, rc, registry.Ensure(root+"/trigger"), registry.Ensure(root+"/latch"), registry.Ensure(root+"/config"))

	stay, stop := context.WithCancel(t.Context())
	defer stop()
	kept := watch(t, rc, stay, registry.Data(root+"/config"), registry.Children(root+"/trigger"), registry.Children(root+"/absent"), registry.Data(root+"/absent"))
	before := watches(t, e)
	const rounds = 50
	for i := range rounds {
		ctx, leave := context.WithCancel(stay)
		first := fmt.Sprintf("%s/latch/%d", root, i)
		commit(t, rc, registry.Create(first, nil))
		ch := watch(t, rc, ctx, registry.Data(root+"/config"), registry.Data(fmt.Sprintf("%s/trigger/%d", root, i)), registry.Data(first), registry.Children(first),
			registry.Data(root+"/absent"), registry.Data(root+"/trigger"))
		commit(t, rc, registry.Delete(first, registry.AnyVersion))
		for s := range ch {
			if !s.Data(first).Exists {
				break
			}
		}
		leave()
		for range ch { // until it is closed
		}
	}
	deadline := time.Now().Add(long)
	after := watches(t, e)
	for after > before+1 && time.Now().Before(deadline) { // the last requests may be on their way
		commit(t, rc, registry.Set(root, nil, registry.AnyVersion))
		after = watches(t, e)
	}
	// Whether there is something to be told of the node itself is not known of
	// one whose children are watched: it keeps its watch.
	t.Logf("%d watches before, %d after %d rounds; %d requests removed some", before, after, rounds, sent.of("removeWatches"))
	if after > before+1 {
		t.Errorf("%d watches became %d", before, after)
	}

	// What is still watched is told, and what is watched again.
	commit(t, rc, registry.Create(root+"/absent", nil))
	commit(t, rc, registry.Create(root+"/absent/x", nil), registry.Set(root+"/config", []byte("new"), registry.AnyVersion), registry.Create(root+"/trigger/49", nil))
	for s := range kept {
		if len(s.Children(root+"/absent")) == 1 && string(s.Data(root+"/config").Data) == "new" && len(s.Children(root+"/trigger")) == 1 {
			break
		}
	}
	again := watch(t, rc, stay, registry.Data(root+"/trigger/49"))
	commit(t, rc, registry.Delete(root+"/trigger/49", registry.AnyVersion))
	for s := range again {
		if !s.Data(root + "/trigger/49").Exists {
			break
		}
	}
	if c := rc.About().Connections; c != 1 {
		t.Errorf("there were %d connections", c)
	}
}

// TestAWatchThatComesBackIsNotRemoved: one caller ceases to watch, and another
// begins, again and again; every change is told.
func TestAWatchThatComesBackIsNotRemoved(t *testing.T) {
	t.Parallel()
	e := zkserver.ForTest(t, fast(1))
	rc := dial(t, zookeeper.Options{Connect: e.Connect()})
	root := fresh(t, rc)
	for i := range 300 {
		ctx, leave := context.WithCancel(t.Context())
		ch := watch(t, rc, ctx, registry.Data(root+"/x"), registry.Children(root))
		want := i%2 == 0
		if want {
			commit(t, rc, registry.Create(root+"/x", nil))
		} else {
			commit(t, rc, registry.Delete(root+"/x", registry.AnyVersion))
		}
		for s := range ch {
			if s.Data(root+"/x").Exists == want && (len(s.Children(root)) == 1) == want {
				break
			}
		}
		leave()
		if t.Failed() {
			return
		}
	}
}

func watch(t *testing.T, rc registry.Center, ctx context.Context, queries ...registry.Query) <-chan registry.Snapshot {
	t.Helper()
	ch, err := rc.Watch(ctx, queries...)
	if err != nil {
		t.Fatal(err)
	}
	return ch
}
