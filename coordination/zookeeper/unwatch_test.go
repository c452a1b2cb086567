package zookeeper_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	co "github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/zookeeper"
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
	commit(t, rc, co.Ensure(root+"/trigger"), co.Ensure(root+"/latch"), co.Ensure(root+"/config"))

	stay, stop := context.WithCancel(t.Context())
	defer stop()
	kept := watch(t, rc, stay, co.Data(root+"/config"), co.Children(root+"/trigger"), co.Children(root+"/absent"), co.Data(root+"/absent"))
	before := watches(t, e)
	const rounds = 50
	for i := range rounds {
		ctx, leave := context.WithCancel(stay)
		first := fmt.Sprintf("%s/latch/%d", root, i)
		commit(t, rc, co.Create(first, nil))
		ch := watch(t, rc, ctx, co.Data(root+"/config"), co.Data(fmt.Sprintf("%s/trigger/%d", root, i)), co.Data(first), co.Children(first),
			co.Data(root+"/absent"), co.Data(root+"/trigger"))
		commit(t, rc, co.Delete(first, co.AnyVersion))
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
		commit(t, rc, co.Set(root, nil, co.AnyVersion))
		after = watches(t, e)
	}
	// Whether there is something to be told of the node itself is not known of
	// one whose children are watched: it keeps its watch.
	t.Logf("%d watches before, %d after %d rounds; %d requests removed some", before, after, rounds, sent.of("removeWatches"))
	if after > before+1 {
		t.Errorf("%d watches became %d", before, after)
	}

	// What is still watched is told, and what is watched again.
	commit(t, rc, co.Create(root+"/absent", nil))
	commit(t, rc, co.Create(root+"/absent/x", nil), co.Set(root+"/config", []byte("new"), co.AnyVersion), co.Create(root+"/trigger/49", nil))
	for s := range kept {
		if len(s.Children(root+"/absent")) == 1 && string(s.Data(root+"/config").Data) == "new" && len(s.Children(root+"/trigger")) == 1 {
			break
		}
	}
	again := watch(t, rc, stay, co.Data(root+"/trigger/49"))
	commit(t, rc, co.Delete(root+"/trigger/49", co.AnyVersion))
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
		ch := watch(t, rc, ctx, co.Data(root+"/x"), co.Children(root))
		want := i%2 == 0
		if want {
			commit(t, rc, co.Create(root+"/x", nil))
		} else {
			commit(t, rc, co.Delete(root+"/x", co.AnyVersion))
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

func watch(t *testing.T, rc co.RegistryCenter, ctx context.Context, queries ...co.Query) <-chan co.Snapshot {
	t.Helper()
	ch, err := rc.Watch(ctx, queries...)
	if err != nil {
		t.Fatal(err)
	}
	return ch
}
