package catalog

import (
	"strings"

	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/host/config/timetable"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// circular are the jobs that each job of the definitions comes after, of those that may come after themselves. Those of other hosts
// only the registry knows.
func (s state) circular() map[string][]string {
	after := make(map[string][]string)
	for _, f := range s.files {
		for _, d := range f.docs {
			for _, a := range timetable.After(d.Configuration) {
				after[d.Configuration.JobName] = append(after[d.Configuration.JobName], a.Job)
			}
		}
	}
	return coordination.Circular(after)
}

// inChain refuses the claim of a job that would come after itself, over others.
func inChain(c claim, after map[string][]string) claim {
	if len(after) == 0 || c.lacks != "" {
		return c
	}
	if path := coordination.Cycle(c.doc.Configuration.JobName, func(job string) []string { return after[job] }); path != nil {
		c.lacks = "after: the jobs would come after each other: " + words.Clip(strings.Join(path, " -> "))
	}
	return c
}
