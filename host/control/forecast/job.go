// Package forecast says what a change of jobs' definitions does to their runs before it is made: it simulates
// the definitions before and after with host/schedule/plan, and compares the results.
package forecast

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/host/config/timetable"
	"github.com/wasmjob/wasmjob/host/schedule/due"
	"github.com/wasmjob/wasmjob/host/schedule/plan"
	"github.com/wasmjob/wasmjob/strategy"
)

// Definition is a job as its definition, or the registry, has it.
type Definition struct {
	Configuration jobconfig.Configuration
	// File is its definition file; jobs of one file share the slots of a host.
	File string
}

// Job is a job for a play on hosts of a namespace. The error names the job.
func Job(d Definition, namespace string, hosts int, durations *Durations) (plan.Job, error) {
	c := d.Configuration
	g, err := c.Guest()
	if err != nil {
		return plan.Job{}, fmt.Errorf("job %q: %w", c.JobName, err)
	}
	table, problems := timetable.New(c, namespace)
	if len(problems) > 0 {
		return plan.Job{}, fmt.Errorf("job %q: %w", c.JobName, timetable.Of(problems))
	}
	j := plan.Job{Name: c.JobName, Items: max(c.ShardingTotalCount, 0), After: g.When.After, Policies: due.PoliciesOf(c, g), PauseAfterFailures: g.PauseAfterFailures,
		MaxConcurrency: g.MaxConcurrency, Priority: g.Priority, Group: d.File}
	if c.Disabled {
		j.After = nil // it has no instants
	} else if table != nil {
		j.Schedule = table
	}
	if j.Limits, err = limits(c, g); err != nil {
		return j, fmt.Errorf("job %q: %w", c.JobName, err)
	}
	j.Most = g.Concurrency.Max
	if j.Owners, err = owners(c, hosts); err != nil {
		return j, fmt.Errorf("job %q: %w", c.JobName, err)
	}
	j.Takes, j.ByItem = durations.of(c.JobName, g.Timeout)
	return j, nil
}

// limits are the keys under which the items of a job run; nil if there is no limit.
func limits(c jobconfig.Configuration, g jobconfig.Guest) ([]string, error) {
	if g.Concurrency.Max == 0 {
		return nil, nil
	}
	parameters, err := jobconfig.ParseItemParameters(c.ShardingItemParameters)
	if err != nil {
		return nil, err
	}
	keys := make([]string, max(c.ShardingTotalCount, 0))
	for n := range keys {
		keys[n] = jobconfig.LimitKey(g.Concurrency.Key, parameters[n], c.JobParameter)
	}
	return keys, nil
}

// owners returns the hosts of the items, as the job's strategy assigns them if all hosts are present; nil for
// one host.
func owners(c jobconfig.Configuration, hosts int) ([]int, error) {
	if hosts <= 1 {
		return nil, nil
	}
	divide, _, err := strategy.ByName(c.JobShardingStrategyType)
	if err != nil {
		return nil, err
	}
	names := make([]string, hosts)
	for n := range names {
		names[n] = strconv.Itoa(n)
	}
	names = strategy.Sorted(names)
	list := make([]int, c.ShardingTotalCount)
	for item, host := range divide(c.JobName, names, c.ShardingTotalCount, time.Time{}) {
		list[item] = slices.Index(names, host)
	}
	return list, nil
}
