package sdk

import (
	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/sdk/internal/border"
)

// Progress reports how far the item is: done of total, in units of the job's
// own. A total of 0 or less is "unknown". The host keeps the latest.
func Progress(done, total int64) { border.Progress(done, total) }

// Counter adds to a counter. Names match [a-z][a-z0-9_]{0,63}, a job has at
// most 64 of them, and the host adds labels for job and item. The error is
// ErrInvalid for a bad name and ErrQuota for one name too many; it is safe to
// ignore.
func Counter(name string, add int64) error { return metric(abi.MetricCounter, name, add) }

// Gauge sets a gauge. For names and errors see [Counter].
func Gauge(name string, value int64) error { return metric(abi.MetricGauge, name, value) }

// Histogram observes one value. For names and errors see [Counter].
func Histogram(name string, value int64) error { return metric(abi.MetricHistogram, name, value) }

func metric(kind int32, name string, value int64) error {
	return check("metric "+name, border.Metric(kind, name, value))
}
