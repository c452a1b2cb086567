package console

import (
	"strings"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
)

// deepest is how far the jobs of a chain are indented at most; app.css has a class for each.
const deepest = 8

// Deep is how far a job of a chain is indented. It is called by templates.
func (r *reader) Deep(depth int) int { return min(depth, deepest) }

// After says which jobs a job comes after, and what is demanded of each. It is called by templates.
func (r *reader) After(list []jobconfig.After) string {
	names := make([]string, 0, len(list))
	for _, a := range list {
		on := r.T("on.success")
		switch a.On {
		case jobconfig.OnFailure:
			on = r.T("on.failure")
		case jobconfig.OnAlways:
			on = r.T("on.always")
		}
		names = append(names, a.Job+" ("+on+")")
	}
	return r.T("job.chain.after", strings.Join(names, ", "))
}
