package history

import (
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
)

// TestJoin_lag: a fire of which two stores know is as late as its first begin, as in one store
// that has all of it, and not as a takeover later on.
func TestJoin_lag(t *testing.T) {
	t.Parallel()
	at := time.Now()
	begun := Fire{Instant: at, Source: abi.SourceSchedule, Begun: at.Add(time.Millisecond), Lag: time.Millisecond, Items: []int{0, 1}}
	taken := Fire{Instant: at, Source: abi.SourceFailover, Begun: at.Add(time.Minute), Lag: time.Minute, Items: []int{1}}
	for _, f := range []Fire{Join(begun, taken), Join(taken, begun)} {
		if f.Lag != begun.Lag || !f.Begun.Equal(begun.Begun) {
			t.Errorf("%s late, begun at %s", f.Lag, f.Begun)
		}
	}
}
