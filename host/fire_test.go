package host

import (
	"testing"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination"
)

// An item that owes an instant and is refused for a trigger, because it has run
// in the round already, still owes the instant.
func TestATriggerAnswersNoInstant(t *testing.T) {
	t.Parallel()
	scheduled := coordination.Fire{Instant: 1000, Source: string(abi.SourceCatchUp)}
	trigger := coordination.Fire{Instant: 1500, Trigger: 7, Source: string(abi.SourceTrigger)}
	for name, tc := range map[string]struct {
		due, answer coordination.Fire
		owes        bool
	}{
		"a trigger, of an instant": {scheduled, trigger, true},
		"a newer instant":          {scheduled, coordination.Fire{Instant: 2000}, true},
		"the instant itself":       {scheduled, coordination.Fire{Instant: 1000, Source: string(abi.SourceMisfire)}, false},
		"the round, some time on":  {trigger, coordination.Fire{Instant: 1700, Trigger: 7}, false},
		"an instant, of a trigger": {trigger, scheduled, true},
	} {
		it := &item{due: &tc.due}
		if it.answered(tc.answer); (it.due != nil) != tc.owes {
			t.Errorf("%s: still owed: %t, want %t", name, it.due != nil, tc.owes)
		}
	}
}
