package coordination_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/coordination/copied"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
)

// TestRecordNamesItsPast: every begin and completion notes the transaction that
// wrote the record before, so that the record of a run that has ended names its
// fence, and none names a transaction that comes after its own.
//
// It kills the mutant "record that does not name its past".
func TestRecordNamesItsPast(t *testing.T) {
	t.Parallel()
	c, hosts := group(t, 1, nil)
	h := hosts[0]
	node := func() registry.Node { return c.node(c.layout.Sibling() + "/sharding/0") }
	for n := range 3 {
		before := node().Mzxid
		fence := begin(t, h, c.now.Add(time.Duration(n+1)*time.Second)).Items[0].RecordZxid
		if got := c.record(0).After; got != before {
			t.Errorf("begin %d: the record names %d, expected %d, which wrote it before", n, got, before)
		}
		must(t, h.complete(h.running(), "OK", ""))
		if got := c.record(0).After; got != fence || got >= node().Mzxid {
			t.Errorf("completion %d: the record names %d, expected the fence %d; transaction %d wrote it", n, got, fence, node().Mzxid)
		}
	}
}

// TestAdopt: what is no copy is left alone, and so is a copy with hosts in it; of
// many records the highest number counts.
func TestAdopt(t *testing.T) {
	t.Parallel()
	c, hosts := group(t, 1, func(cfg *jobconfig.Configuration) { cfg.ShardingTotalCount = 2500 })
	adopt := func() (out copied.Adoption, err error) {
		err = c.operate(moves.Adopt(c.layout.Namespace, &out))
		return out, err
	}
	refuses := func(want string) {
		t.Helper()
		if _, err := adopt(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("adopt: %v; expected %q", err, want)
		}
	}
	refuses("stop all hosts")
	must(t, hosts[0].look())
	must(t, hosts[0].perform(moves.Leave(&hosts[0].Member)))
	refuses("it is no copy")

	const last = int64(7)<<32 + 5
	must(t, second(c.op.Commit(c.ctx, registry.Set(c.layout.Sibling()+"/sharding/2100", fmt.Appendf(nil, `{"instant":1,"after":%d}`, last), registry.AnyVersion),
		registry.Set(c.layout.Sibling()+"/sharding/0", fmt.Appendf(nil, `{"instant":1,"trigger":%d}`, last-1), registry.AnyVersion))))
	z := c.addHost("Z", "10.9.9.9")
	_, err := z.join(c.file)
	var copied *copied.Error
	if !errors.As(err, &copied) || copied.Names != last-1 {
		t.Fatalf("a host joins a copy: %v", err)
	}
	out, err := adopt()
	if err != nil || out.Highest != last || out.Items != 2500 || out.Base <= last || out.Base%(1<<32) != 0 {
		t.Errorf("adopted %+v, %v", out, err)
	}
	refuses("adopted already")
	applied, err := z.join(c.file)
	if err != nil || applied.Base != out.Base {
		t.Errorf("a host joins an adopted copy: base %d, %v; expected base %d", applied.Base, err, out.Base)
	}
}
