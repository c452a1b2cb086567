package metrics

import (
	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/sandbox/capability"
)

// outsideMetrics count what guests do outside of their sandbox. The labels have few
// values: capabilities and reasons are the host's own words. Targets have no label,
// since a job may have very many; events and status name them.
type outsideMetrics struct {
	calls, failed, sent, received *jobCounter // capability
	refused                       *jobCounter // capability, reason
}

// networks are the capabilities whose calls can fail because of others, capabilities are
// all.
var (
	networks     = []string{"http", "net"}
	capabilities = []string{"http", "net", "kv", "env", "dir"}
)

func (o *outsideMetrics) init(m *Metrics) {
	of := Label{"capability", capabilities}
	o.calls = m.byJob("outside_calls_total", "Calls of guests to the world outside of their sandbox, by capability.", of)
	o.failed = m.byJob("outside_failed_total", "Requests and connections of guests that had no answer, by capability.", of)
	o.sent = m.byJob("outside_sent_bytes_total", "Bytes that guests sent or wrote, by capability.", of)
	o.received = m.byJob("outside_received_bytes_total", "Bytes that guests received or read, by capability.", of)
	o.refused = m.byJob("outside_refused_total", "Calls of guests that the host refused, by capability and reason.", of, refusals())
}

// appear makes the series by which alerts go, also of jobs that never use them.
func (o *outsideMetrics) appear(job string) {
	for _, name := range networks {
		o.calls.add(0, job, name)
		o.failed.add(0, job, name)
	}
}

// observe counts what one attempt, or one listener, did.
func (o *outsideMetrics) observe(job string, outside map[string]abi.OutsideCount) {
	for name, c := range outside {
		o.calls.add(float64(c.Calls), job, name)
		o.failed.add(float64(c.Failed), job, name)
		o.sent.add(float64(c.Sent), job, name)
		o.received.add(float64(c.Received), job, name)
		for _, reason := range capability.Reasons() {
			o.refused.add(float64(c.Refused[reason]), job, name, reason)
		}
	}
}
