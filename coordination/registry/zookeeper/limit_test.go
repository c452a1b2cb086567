package zookeeper_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/zookeeper"
	"github.com/wasmjob/wasmjob/test/zkserver"
)

// TestServerLimits: servers that take smaller requests than usual, and no more
// nodes than their quota, say so in an error that names the cause. Nothing was
// written, and the session is as good as before.
func TestServerLimits(t *testing.T) {
	t.Parallel()
	o := fast(1)
	o.JavaArgs = []string{"-Djute.maxbuffer=32768", "-Dzookeeper.enforceQuota=true"}
	e := zkserver.ForTest(t, o)
	var sent counter
	rc := dial(t, zookeeper.Options{Connect: e.Connect(), OnOperation: sent.count})
	root := fresh(t, rc)
	refused := func(text string, ops ...registry.Op) {
		t.Helper()
		before := sent.of("multi")
		_, err := rc.Commit(within(t), append(ops, registry.Create(root+"/new", nil))...)
		if !errors.Is(err, registry.ErrUnavailable) || errors.Is(err, registry.ErrUnknown) || !strings.Contains(err.Error(), text) {
			t.Errorf("the error is %v, and should tell of %s", err, text)
		}
		if n := sent.of("multi") - before; n > 10 {
			t.Errorf("it was tried %d times", n)
		}
		commit(t, rc, registry.Absent(root+"/new"))
		select {
		case <-rc.Lost():
			t.Fatal("the session is lost")
		default:
		}
	}
	refused("jute.maxbuffer", registry.Set(root, make([]byte, 40_000), registry.AnyVersion))
	limits := "/zookeeper/quota" + root + "/zookeeper_limits"
	commit(t, rc, registry.Ensure(limits), registry.Ensure("/zookeeper/quota"+root+"/zookeeper_stats"),
		registry.Set("/zookeeper/quota"+root+"/zookeeper_stats", []byte("count=1,bytes=0"), registry.AnyVersion),
		registry.Set(limits, []byte("count=-1,bytes=-1,byteHardLimit=-1,countHardLimit=1"), registry.AnyVersion))
	for _, op := range []registry.Op{registry.Create(root+"/a", nil), registry.CreateEphemeral(root+"/a", nil), registry.Ensure(root + "/a")} {
		_, err := rc.Commit(within(t), op)
		if !errors.Is(err, registry.ErrUnavailable) || !strings.Contains(err.Error(), "quota") {
			t.Errorf("%s beyond the quota: %v", op.Kind, err)
		}
	}
	commit(t, rc, registry.Set(root, []byte("still"), registry.AnyVersion))
	commit(t, rc, registry.Delete(limits, registry.AnyVersion))
	commit(t, rc, registry.Create(root+"/a", nil))
}
