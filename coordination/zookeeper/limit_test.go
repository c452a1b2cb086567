package zookeeper_test

import (
	"errors"
	"strings"
	"testing"

	co "github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/zookeeper"
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
	refused := func(text string, ops ...co.Op) {
		t.Helper()
		before := sent.of("multi")
		_, err := rc.Commit(within(t), append(ops, co.Create(root+"/new", nil))...)
		if !errors.Is(err, co.ErrUnavailable) || errors.Is(err, co.ErrUnknown) || !strings.Contains(err.Error(), text) {
			t.Errorf("the error is %v, and should tell of %s", err, text)
		}
		if n := sent.of("multi") - before; n > 10 {
			t.Errorf("it was tried %d times", n)
		}
		commit(t, rc, co.Absent(root+"/new"))
		select {
		case <-rc.Lost():
			t.Fatal("the session is lost")
		default:
		}
	}
	refused("jute.maxbuffer", co.Set(root, make([]byte, 40_000), co.AnyVersion))
	limits := "/zookeeper/quota" + root + "/zookeeper_limits"
	commit(t, rc, co.Ensure(limits), co.Ensure("/zookeeper/quota"+root+"/zookeeper_stats"),
		co.Set("/zookeeper/quota"+root+"/zookeeper_stats", []byte("count=1,bytes=0"), co.AnyVersion),
		co.Set(limits, []byte("count=-1,bytes=-1,byteHardLimit=-1,countHardLimit=1"), co.AnyVersion))
	for _, op := range []co.Op{co.Create(root+"/a", nil), co.CreateEphemeral(root+"/a", nil), co.Ensure(root + "/a")} {
		_, err := rc.Commit(within(t), op)
		if !errors.Is(err, co.ErrUnavailable) || !strings.Contains(err.Error(), "quota") {
			t.Errorf("%s beyond the quota: %v", op.Kind, err)
		}
	}
	commit(t, rc, co.Set(root, []byte("still"), co.AnyVersion))
	commit(t, rc, co.Delete(limits, co.AnyVersion))
	commit(t, rc, co.Create(root+"/a", nil))
}
