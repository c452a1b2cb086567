package console

import (
	"context"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/control/service/servicetest"
	"github.com/wasmjob/wasmjob/host/engine"
)

// TestKillListener: a listener that runs after all items have ended is shown, and the job can be killed as long as it
// runs.
func TestKillListener(t *testing.T) {
	t.Parallel()
	began := make(chan struct{})
	listens := func(ctx context.Context, _ *abi.Invocation) abi.Result {
		close(began)
		<-ctx.Done()
		return abi.Result{Outcome: abi.OutcomeCancelled}
	}
	job := servicetest.Listening(servicetest.Job("sums", "", 2, servicetest.OK), abi.ExportAfter, listens)
	s := open(t, servicetest.Options{Jobs: []engine.Job{job}})
	s.get(jobPath("sums")).lacks(t, "Kill runs")
	s.post(jobPath("sums", "trigger"), "back", "/")
	<-began
	a := s.until(jobPath("sums"), "listener "+abi.ExportAfter+" runs")
	a.has(t, 200, "Kill runs")
	s.post(jobPath("sums", "kill"), "back", "/", "grace", "0s")
	s.Until("it has ended", func() bool {
		return !strings.Contains(s.get(jobPath("sums")).text(), "listener "+abi.ExportAfter+" runs")
	})
	s.get(jobPath("sums")).lacks(t, "Kill runs")
}
