package run

import (
	"context"
	"slices"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/internal/slots"
)

// listening is an executor whose module has a listener, and of which nothing else runs.
type listening struct {
	inTurn
	results []abi.Result
	stop    func() // called by each run of the listener; may be nil
}

func (x *listening) HasListener(export string) bool { return export == abi.ExportBefore }
func (x *listening) NewWorker(context.Context) (abi.Worker, error) {
	return &listener{x: x}, nil
}

type listener struct {
	abi.Worker
	x *listening
}

func (l *listener) Close() error { return nil }
func (l *listener) Listen(context.Context, string, *abi.Invocation) abi.Result {
	if l.x.stop != nil {
		l.x.stop()
	}
	r := l.x.results[0]
	l.x.results = l.x.results[1:]
	return r
}

// listened keeps events, and errors that were reported.
type listened struct {
	quietOwner
	events []event.Event
	failed int
}

func (o *listened) Emit(e event.Event)                                                    { o.events = append(o.events, e) }
func (o *listened) Listens()                                                              {}
func (o *listened) HandleError(jobconfig.Configuration, string, abi.Result, ...zap.Field) { o.failed++ }

// TestListenerWorkerEnded: a listener whose worker process ends runs again at once, once, as an
// item does, unless it is to end.
func TestListenerWorkerEnded(t *testing.T) {
	t.Parallel()
	died, ok := abi.Result{Outcome: abi.OutcomeWorker, Message: "the worker process ended"}, abi.Result{Outcome: abi.OutcomeOK}
	fails := abi.Result{Outcome: abi.OutcomeFail}
	for name, c := range map[string]struct {
		results []abi.Result
		stopped bool
		again   []bool // of each run
		failed  int
	}{
		"not":                  {[]abi.Result{ok}, false, []bool{false}, 0},
		"once":                 {[]abi.Result{died, ok}, false, []bool{true, false}, 0},
		"twice":                {[]abi.Result{died, died}, false, []bool{true, false}, 1},
		"once, and then fails": {[]abi.Result{died, fails}, false, []bool{true, false}, 1},
		"it fails":             {[]abi.Result{fails}, false, []bool{false}, 1},
		"when it is to end":    {[]abi.Result{died}, true, []bool{false}, 1},
	} {
		x := &listening{results: c.results}
		f, quiet, _ := fireInTurn(slots.New(1), 1, &x.inTurn, time.Millisecond)
		o := &listened{quietOwner: quietOwner{ended: quiet.ended}}
		f.job.Owner, f.job.Slots, f.Exec = o, 1, x
		ctx, cancel := context.WithCancel(t.Context())
		if c.stopped {
			x.stop = cancel
		}
		f.listen(ctx, abi.ExportBefore)
		cancel()
		var again []bool
		for _, e := range o.events {
			again = append(again, e.Again)
		}
		if !slices.Equal(again, c.again) || o.failed != c.failed || len(x.results) != 0 {
			t.Errorf("%s: %+v, %d failures, %d left", name, o.events, o.failed, len(x.results))
		}
	}
}
