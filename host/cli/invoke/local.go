package invoke

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/cli/terminal"
	"github.com/wasmjob/wasmjob/host/event"
)

// localHost is the host's side of one invocation.
type localHost struct {
	run                *Run
	job, taskID, runID string
	item               int
	soft               time.Time // when the guest is asked to end; zero is never
	done, total        atomic.Int64

	mu        sync.Mutex
	offset    []byte
	committed bool
	metrics   map[string]int64
	kinds     map[string]int
}

// Log implements [abi.Host].
func (h *localHost) Log(level int, msg string, kv []string) {
	terminal.GuestLog(h.run.Log, event.GuestLog{Job: h.job, TaskID: h.taskID, RunID: h.runID, Item: h.item, Level: level, Message: msg, Attrs: kv})
}

// LogEnabled implements [abi.Host].
func (h *localHost) LogEnabled(level int) bool { return h.run.Level.Enabled(terminal.ZapLevel(level)) }

// Progress implements [abi.Host].
func (h *localHost) Progress(done, total int64) {
	h.done.Store(done)
	h.total.Store(total)
}

// Metric implements [abi.Host]: counters and histograms are summed up, of a
// gauge the last value is kept.
func (h *localHost) Metric(kind int, name string, value int64) abi.Code {
	if (kind != abi.MetricCounter && kind != abi.MetricGauge && kind != abi.MetricHistogram) || (kind == abi.MetricCounter && value < 0) {
		return abi.ErrInvalid
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	before, known := h.kinds[name]
	switch {
	case known && before != kind:
		return abi.ErrInvalid
	case !known && len(h.kinds) >= abi.MaxMetricNames:
		return abi.ErrQuota
	case h.kinds == nil:
		h.kinds, h.metrics = make(map[string]int), make(map[string]int64)
	}
	h.kinds[name] = kind
	if kind == abi.MetricGauge {
		h.metrics[name] = value
	} else {
		h.metrics[name] += value
	}
	return abi.OK
}

// CommitOffset implements [abi.Host].
func (h *localHost) CommitOffset(_ context.Context, offset []byte) abi.Code {
	h.keep(offset)
	return abi.OK
}

// StageOffset implements [abi.Host].
func (h *localHost) StageOffset(_ context.Context, offset []byte) abi.Code {
	h.keep(offset)
	return abi.OK
}

// Pause implements [abi.Host].
func (h *localHost) Pause(context.Context) {}

// Cancelled implements [abi.Host].
func (h *localHost) Cancelled() abi.Cancel {
	switch {
	case h.run.stopping():
		return abi.CancelStop
	case !h.soft.IsZero() && !time.Now().Before(h.soft):
		return abi.CancelDeadline
	}
	return abi.CancelNone
}

func (h *localHost) keep(offset []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.offset, h.committed = slices.Clone(offset), true
}

func (h *localHost) kept() ([]byte, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.offset, h.committed
}

func (h *localHost) values() map[string]int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.metrics)
}
