package coordination_test

import (
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/registrytest"
)

// TestUnknownItemsInAHostsOwnListAreNotReadOneByOne: it finds out when it writes
// the list, and strikes them out.
func TestUnknownItemsInAHostsOwnListAreNotReadOneByOne(t *testing.T) {
	t.Parallel()
	c, h := group(t, 2, failoverOn)
	c.edited = true
	list := c.layout.Sibling() + "/runs/" + h[0].Self.ID
	c.hand(registry.Set(list, []byte(everything), registry.AnyVersion))
	counter := &reader{Center: h[0].rc.Unwrap()}
	before := h[0].rc
	h[0].rc = registrytest.Faulty(counter, func(int, string) registrytest.Fault { return registrytest.NoFault })
	c.pass(10 * time.Second)
	h[0].rc = before
	if counter.queries > 500 {
		t.Errorf("%d nodes were read", counter.queries)
	}
	if n := len(c.node(list).Data); n > 200 {
		t.Errorf("the list has %d bytes", n)
	}
	c.settle()
	c.finish()
}
