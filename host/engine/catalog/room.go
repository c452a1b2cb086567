package catalog

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/wasmjob/wasmjob/host/config/ceiling"
	"github.com/wasmjob/wasmjob/host/config/definition"
)

// mostInherited is how many bytes the jobs of a host have from files of defaults: each has a copy of its own, in the
// registry and here.
const mostInherited = 64 << 20

// room counts the jobs of a host and their items against the ceilings that bound all of them
// together. Each pattern of a ceiling is counted apart.
type room struct {
	ceilings ceiling.List
	taken    map[ceiling.Name]map[string]int64 // by the pattern that decides
	// inherited is how many bytes jobs have from files of defaults.
	inherited int
}

// roomFor counts the jobs in force at their present size. Other jobs, and jobs that grow, get the
// rest of the ceilings.
func (s state) roomFor(claims map[string][]claim) *room {
	r := &room{ceilings: s.ceilings, taken: map[ceiling.Name]map[string]int64{ceiling.Jobs: {}, ceiling.Items: {}}}
	for job := range claims {
		if b := s.jobs[job]; b != nil {
			r.add(job, 1, items(b))
			r.inherited += inherited(b)
		}
	}
	return r
}

// items returns how many items the definition of a job in force has; 0 without a job.
func items(b *binding) int64 {
	if b == nil {
		return 0
	}
	return int64(b.doc.Configuration.ShardingTotalCount)
}

// inherited is how many bytes a job in force has from files of defaults.
func inherited(b *binding) int {
	if b == nil {
		return 0
	}
	return b.doc.InheritedSize
}

func (r *room) add(job string, jobs, items int64) {
	r.taken[ceiling.Jobs][r.ceilings.Of(job, ceiling.Jobs).Jobs] += jobs
	r.taken[ceiling.Items][r.ceilings.Of(job, ceiling.Items).Jobs] += items
}

// full says why there is no room for a job; empty if there is. A job in force has room unless
// it wants more items than it has.
func (r *room) full(doc definition.Definition, before *binding) string {
	c := doc.Configuration
	most := r.ceilings.Of(c.JobName, ceiling.Jobs)
	if before == nil && most.Beyond(r.taken[ceiling.Jobs][most.Jobs]+1) {
		return fmt.Sprintf("is one too many, %s; %s raises it", most, most.Flag())
	}
	most = r.ceilings.Of(c.JobName, ceiling.Items)
	more := int64(c.ShardingTotalCount) - items(before)
	if more > 0 && most.Beyond(r.taken[ceiling.Items][most.Jobs]+more) {
		return fmt.Sprintf("has %d items, for which there is no room, %s in all; %s raises it", c.ShardingTotalCount, most, most.Flag())
	}
	if more := doc.InheritedSize - inherited(before); more > 0 && r.inherited+more > mostInherited {
		return fmt.Sprintf("has %d bytes from files of defaults, for which there is no room, expected at most %d for all jobs of a host", doc.InheritedSize, mostInherited)
	}
	return ""
}

// take has a job take what it has from now on, or will have when its module is compiled, in
// place of what it had before.
func (r *room) take(job string, before *binding, a attempt, now *binding, owner claim) {
	if before != nil {
		r.add(job, -1, -items(before))
		r.inherited -= inherited(before)
	}
	n, has := items(now), inherited(now)
	if a.open() {
		n, has = max(n, int64(owner.doc.Configuration.ShardingTotalCount)), max(has, owner.doc.InheritedSize)
	}
	if now != nil || a.open() {
		r.add(job, 1, n)
		r.inherited += has
	}
}

// inOrder are the jobs in the order in which they get room: first those in force, of these first
// those that do not want more items than they have, and then by name.
func (s state) inOrder(claims map[string][]claim) []string {
	rank := func(job string) int {
		b := s.jobs[job]
		switch {
		case b == nil:
			return 2
		case int64(choose(claims[job], b, "").doc.Configuration.ShardingTotalCount) > items(b):
			return 1
		}
		return 0
	}
	return slices.SortedFunc(maps.Keys(claims), func(a, b string) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), strings.Compare(a, b))
	})
}
