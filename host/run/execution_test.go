package run

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/registry"
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
		e := &Execution{fire: &Fire{job: &Job{Owner: trusting{changed: make(chan struct{})}}}}
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
		e = &Execution{fire: e.fire}
		cancel()
		e.AwaitCancel(ctx) // returns
	})
}
