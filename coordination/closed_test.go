package coordination_test

import (
	"fmt"
	"testing"
	"time"

	co "github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/admin/operate"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/registrytest"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// TestCompletionOfAClosedRun: others take a host for dead that lives, and close its run. The host is told
// with what outcome, and not that its completion took effect, also if the item has been begun since; while a
// completion of its own whose answer is lost did take effect.
func TestCompletionOfAClosedRun(t *testing.T) {
	t.Parallel()
	for _, outcome := range []string{tree.OutcomeLost, tree.OutcomeCancelled} {
		for _, begunSince := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, begun since %v", outcome, begunSince), func(t *testing.T) {
				t.Parallel()
				c, h := group(t, 2, nil)
				c.edited = true
				a, b := h[0], h[1]
				begin(t, a, c.now.Add(time.Second))
				item := a.running()[0]
				if outcome == tree.OutcomeCancelled {
					must(t, c.operate(moves.AskKill(c.killing(item, 0), new([]operate.KillTarget))))
				}
				c.hand(registry.Delete(c.layout.Instance(a.Self.ID), registry.AnyVersion), registry.Delete(c.layout.Detail(a.Self.ID), registry.AnyVersion))
				must(t, b.look())
				for !b.View.IsJanitor() {
					must(t, second(b.step()))
					must(t, b.look())
				}
				must(t, second(b.recover(a.Self.ID, true, 100)))
				if begunSince {
					for range 2 {
						must(t, second(b.step()))
						must(t, b.look())
					}
					must(t, b.readShare())
					begin(t, b, c.now.Add(2*time.Second))
				}
				var done co.Completed
				must(t, a.perform(moves.Complete(&a.Member, co.Completing{Items: map[int]co.Ended{item: {State: a.items[item].state, Outcome: "OK", Offset: []byte("42"), HasOffset: true}}, Marked: true, Now: c.now}, &done)))
				if _, took := done.Items[item]; took || !done.Lost.Contains(item) || done.Closed[item].Outcome != outcome {
					t.Errorf("the completion returned %+v, lost %v, closed %+v; the record is %+v", done.Items, done.Lost, done.Closed, c.record(item))
				}
				if c.node(c.layout.Offset(item)).Exists {
					t.Error("its offset is there")
				}
			})
		}
	}
	t.Run("its own", func(t *testing.T) {
		t.Parallel()
		_, h := group(t, 1, nil)
		begin(t, h[0], h[0].now.Add(time.Second))
		h[0].nextCommit(registrytest.LostAnswer)
		must(t, h[0].complete(tree.Items{0}, "OK", "42"))
		if h[0].items[0].running {
			t.Error("the completion is reported to have had no effect")
		}
	})
}
