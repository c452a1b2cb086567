package engine

import (
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// admission is what limits and rates use of their job's loop: the items that are due, and whether they may begin.
type admission struct {
	job     *access
	guest   *jobconfig.Guest
	items   *items
	reports itemReports
	// owe records that an item must run for a fire later. parameter returns the job parameter of a fire.
	owe       func(it *item, id tree.Fire)
	parameter func(id tree.Fire) string
	// stillWaits reports whether an item that waits for a permit or a turn would begin if it got one.
	stillWaits func(now moment, it *item) bool
	// parameters are the item parameters, parsed from the text from.
	parameters map[int]string
	from       string
}

// keyFor returns the key that a template gives for an item and a fire.
func (a *admission) keyFor(template string, item int, id tree.Fire) string {
	if text := a.job.member.View.Config.ShardingItemParameters; a.parameters == nil || a.from != text {
		a.parameters, _ = jobconfig.ParseItemParameters(text) // what cannot be read is refused before
		a.from = text
	}
	return jobconfig.LimitKey(template, a.parameters[item], a.parameter(id))
}
