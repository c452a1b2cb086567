package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/sandbox/capability"
)

// outsideMetrics count what guests do outside of their sandbox. The labels have few
// values: capabilities and reasons are the host's own words. Targets have no label,
// since a job may have very many; events and status name them.
type outsideMetrics struct {
	calls, failed, sent, received *prometheus.CounterVec // job, capability
	refused                       *prometheus.CounterVec // job, capability, reason
}

// networks are the capabilities whose calls can fail because of others, capabilities are
// all.
var (
	networks     = []string{"http", "net"}
	capabilities = []string{"http", "net", "kv", "env", "dir"}
)

func (o *outsideMetrics) init(m *Metrics) {
	of := Label{"capability", capabilities}
	o.calls = m.counters("outside_calls_total", "Calls of guests to the world outside of their sandbox, by capability.", jobName(), of)
	o.failed = m.counters("outside_failed_total", "Requests and connections of guests that had no answer, by capability.", jobName(), of)
	o.sent = m.counters("outside_sent_bytes_total", "Bytes that guests sent or wrote, by capability.", jobName(), of)
	o.received = m.counters("outside_received_bytes_total", "Bytes that guests received or read, by capability.", jobName(), of)
	o.refused = m.counters("outside_refused_total", "Calls of guests that the host refused, by capability and reason.", jobName(), of, refusals())
}

// appear makes the series by which alerts go, also of jobs that never use them.
func (o *outsideMetrics) appear(job string) {
	for _, name := range networks {
		o.calls.WithLabelValues(job, name)
		o.failed.WithLabelValues(job, name)
	}
}

// observe counts what one attempt, or one listener, did.
func (o *outsideMetrics) observe(job string, outside map[string]abi.OutsideCount) {
	for name, c := range outside {
		o.calls.WithLabelValues(job, name).Add(float64(c.Calls))
		o.failed.WithLabelValues(job, name).Add(float64(c.Failed))
		o.sent.WithLabelValues(job, name).Add(float64(c.Sent))
		o.received.WithLabelValues(job, name).Add(float64(c.Received))
		for _, reason := range capability.Reasons() {
			o.refused.WithLabelValues(job, name, reason).Add(float64(c.Refused[reason]))
		}
	}
}
