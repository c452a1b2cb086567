package run

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/host/event"
)

// trusting is an owner whose session lives.
type trusting struct {
	Owner
	changed chan struct{}
}

func (o trusting) Trust() (registry.Trust, <-chan struct{}) { return registry.TrustLive, o.changed }

// TestAwaitCancel: a guest that is asked to yield finishes its batch, so what it waits for
// outside goes on; what stops it afterwards is noticed.
func TestAwaitCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &Execution{offsets: newTurn(), fire: &Fire{job: &Job{Owner: trusting{changed: make(chan struct{})}}}}
		over := make(chan struct{})
		go func() { // joined below
			e.AwaitCancel(t.Context())
			close(over)
		}()
		waits := func(what string) {
			t.Helper()
			synctest.Wait()
			select {
			case <-over:
				t.Fatal(what)
			default:
			}
		}
		waits("nothing has happened")
		e.reason.Store(int32(abi.CancelYield))
		e.wake()
		waits("it was to yield")
		e.Cancel(abi.CancelStop)
		<-over

		ctx, cancel := context.WithCancel(t.Context())
		e = &Execution{offsets: newTurn(), fire: e.fire}
		cancel()
		e.AwaitCancel(ctx) // returns
	})
}

// counting is an owner that counts what is logged against the job's quota.
type counting struct {
	trusting
	bytes *int
}

func (o counting) Clock() time.Time { return time.Time{} }
func (o counting) MayLog(bytes int) bool {
	*o.bytes = bytes
	return true
}

// TestLongLines: a line that is longer when what is no text in it was replaced is cut, for
// whatever takes it, and counts with what it has then.
func TestLongLines(t *testing.T) {
	t.Parallel()
	counted := 0
	var lines []event.GuestLog
	j := &Job{Owner: counting{bytes: &counted}, OnLog: func(l event.GuestLog) { lines = append(lines, l) },
		WholeLog: &event.WholeLog{Add: func(_ context.Context, l event.GuestLog) { lines = append(lines, l) }}}
	e := &Execution{offsets: newTurn(), fire: &Fire{job: j}}
	long := strings.Repeat("\x01", abi.MaxLogMessage)
	e.Log(abi.LevelInfo, long, []string{"key", long})
	e.wholeLog().Add(t.Context(), abi.LevelInfo, long, []string{"key", long})
	if len(lines) != 2 || counted < 2*abi.MaxLogMessage-100 || counted > 2*abi.MaxLogMessage+2*event.LineOverhead {
		t.Errorf("%d lines, %d bytes were counted", len(lines), counted)
	}
	for _, l := range lines {
		if len(l.Message) > abi.MaxLogMessage || len(l.Attrs) != 2 || len(l.Attrs[0])+len(l.Attrs[1]) > abi.MaxLogMessage {
			t.Errorf("a message of %d bytes, %d attributes", len(l.Message), len(l.Attrs))
		}
	}
}
