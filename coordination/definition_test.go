package coordination_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	co "github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/admin/operate"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// TestSupersededList: the list of superseded definitions is bounded, names each
// once and never the one in force, and outlives the job.
func TestSupersededList(t *testing.T) {
	t.Parallel()
	c, h := group(t, 1, nil)
	node := c.layout.Sibling() + "/superseded"
	list := func() (digests []string) {
		t.Helper()
		if n := c.node(node); len(n.Data) > 0 {
			must(t, json.Unmarshal(n.Data, &digests))
		}
		return digests
	}
	apply := func(description string) (applied co.Applied) {
		t.Helper()
		mine := c.file
		mine.Description = description
		must(t, h[0].perform(moves.ApplyDefinition(c.layout, mine, "", nil, &applied)))
		return applied
	}
	for n := range 3 {
		apply(fmt.Sprint(n))
		if got := len(list()); got != n+1 {
			t.Errorf("after %d changes: %d superseded definitions, expected %d", n+1, got, n+1)
		}
	}
	if a := apply("1"); !a.Superseded || len(a.Changed) > 0 {
		t.Errorf("a superseded definition: %+v", a)
	}
	if a := apply("2"); a.Superseded || len(list()) != 3 {
		t.Errorf("the definition in force: %+v, and %d are superseded", a, len(list()))
	}
	for n := range 120 {
		apply(fmt.Sprint(3 + n))
	}
	if got := len(list()); got != 100 {
		t.Errorf("%d superseded definitions are kept, expected 100", got)
	}
	if a := apply("1"); a.Superseded {
		t.Error("a definition that the list has forgotten is still superseded")
	}
	for _, purge := range []bool{false, true} {
		must(t, c.operate(moves.Remove(c.layout, purge)))
		b := c.addHost(fmt.Sprint("Z", purge), "10.9.9.9")
		mine, last := c.file, c.file
		last.Description = "122"
		if purge {
			last.Description = "purge false"
		}
		if err := second(b.join(last)); !errors.Is(err, tree.ErrRemoved) {
			t.Errorf("purge %v: a host with the definition that was in force makes the job again: %v", purge, err)
		}
		mine.Description = fmt.Sprint("purge ", purge)
		must(t, second(b.join(mine)))
		if got := len(list()); got != 100 {
			t.Errorf("purge %v: %d superseded definitions are known of a job that was made anew, expected 100", purge, got)
		}
	}
}

// TestEditedOutside: only the write of another program counts as one, not that of a definition
// file, also if the file has not changed and wins over the registry.
func TestEditedOutside(t *testing.T) {
	t.Parallel()
	c, h := group(t, 1, nil)
	outside := func() (found bool) {
		t.Helper()
		change := c.node(c.layout.Config()).Mzxid
		must(t, c.operate(func(ctx context.Context, r registry.Center) (err error) {
			found, err = operate.EditedOutside(ctx, r, c.layout, change)
			return err
		}))
		return found
	}
	mine := c.file
	mine.Overwrite = true
	for _, description := range []string{"new", "new", "newer"} {
		mine.Description = description
		must(t, h[0].perform(moves.ApplyDefinition(c.layout, mine, "", nil, nil)))
		if outside() {
			t.Errorf("the definition with the description %q counts as another program", description)
		}
		theirs := mine
		theirs.Description = "theirs"
		must(t, c.operate(func(ctx context.Context, r registry.Center) error {
			_, err := r.Commit(ctx, registry.Set(c.layout.Config(), theirs.YAML(), registry.AnyVersion))
			return err
		}))
		if !outside() {
			t.Error("the write of another program does not count as one")
		}
	}
}
