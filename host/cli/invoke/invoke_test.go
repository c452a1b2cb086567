package invoke

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/abi"
)

func TestAGuestIsAskedToEndBeforeItIsEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stop := make(chan struct{})
		r := &Run{Plan: Plan{JobName: "j", Timeout: 10 * time.Second}, Stop: stop}
		ctx, cancel, h, inv := r.begin(t.Context(), 3, time.Now())
		defer cancel()
		if d, ok := ctx.Deadline(); !ok || !d.Equal(time.Now().Add(10*time.Second)) || !inv.Context.Deadline.Equal(d) {
			t.Errorf("deadline %s", d)
		}
		time.Sleep(8*time.Second - time.Millisecond)
		if got := h.Cancelled(); got != abi.CancelNone {
			t.Errorf("before: %d", got)
		}
		time.Sleep(time.Millisecond)
		if got := h.Cancelled(); got != abi.CancelDeadline || ctx.Err() != nil {
			t.Errorf("at four fifths: %d, %v", got, ctx.Err())
		}
		close(stop)
		if got := h.Cancelled(); got != abi.CancelStop {
			t.Errorf("after Ctrl-C: %d", got)
		}
	})
}
