package chaos

import (
	"fmt"
	"strings"
	"time"
)

const (
	moduleFile = "guest.wasm"
	// drainTimeout of the hosts: longer than the longest item.
	drainTimeout = 10 * time.Second
	// sweepInterval is how often hosts read a job's registry again.
	sweepInterval = time.Minute
)

// job is what the cluster is kept busy with.
type job struct {
	name   string
	cron   string
	period time.Duration // of cron; 0: when it is triggered
	items  int
	// lasts is how long its longest item takes.
	lasts time.Duration
	// more is the rest of the definition.
	more []string
	// fast jobs fire so often that they show when the cluster is back.
	fast bool
	// failover is on: what a host left running is run again.
	failover bool
	// adds: the offset holds a count and a sum.
	adds bool
}

// flexItems are the numbers of items between which an operator changes.
var flexItems = [2]int{3, 6}

// flexPeriod is how often the job fires with which operators deal most.
const flexPeriod = 2 * time.Second

// Names of jobs that operators deal with.
const (
	flexJob    = "flex"
	triggerJob = "manual"
)

// jobs are all of them. Short and long items, items that spin until their time
// is up, items that fail in each way, items that outlive their period, streams
// and commits.
func jobs() []job {
	return []job{
		{name: "tick", cron: "* * * * * ?", period: time.Second, items: 8, lasts: 30 * time.Millisecond, fast: true, failover: true,
			more: []string{"type: SIMPLE", "failover: true", "jobParameter: work:30"}},
		{name: "long", cron: "0/10 * * * * ?", period: 10 * time.Second, items: 4, lasts: 7 * time.Second, failover: true,
			more: []string{"type: SIMPLE", "failover: true", "shardingItemParameters: {0: work:4000, 1: stubborn:4000, 2: work:7000, 3: stubborn:7000}"}},
		{name: "plain", cron: "0/5 * * * * ?", period: 5 * time.Second, items: 4, lasts: 2500 * time.Millisecond,
			more: []string{"type: SIMPLE", "failover: false", "jobParameter: work:2500"}},
		{name: "late", cron: "0/2 * * * * ?", period: 2 * time.Second, items: 2, lasts: 3 * time.Second, failover: true,
			more: []string{"type: SIMPLE", "failover: true", "misfire: true", "jobParameter: work:3000"}},
		{name: "spin", cron: "0/15 * * * * ?", period: 15 * time.Second, items: 2, lasts: 1500 * time.Millisecond, failover: true,
			more: []string{"type: SIMPLE", "failover: true", "timeout: 1500ms", "shardingItemParameters: {0: spin, 1: work:500}"}},
		{name: "fail", cron: "0/3 * * * * ?", period: 3 * time.Second, items: 4, lasts: time.Second, failover: true,
			more: []string{"type: SIMPLE", "failover: true", "retry: {attempts: 3, backoff: 200ms}", "shardingItemParameters: {0: fail, 1: retry, 2: trap, 3: work:10}"}},
		{name: "ledger", cron: "0/3 * * * * ?", period: 3 * time.Second, items: 4, lasts: 3 * time.Second, failover: true, adds: true,
			more: []string{"type: SIMPLE", "failover: true", "jobParameter: ledger:15"}},
		{name: "sum", cron: "0/2 * * * * ?", period: 2 * time.Second, items: 4, lasts: time.Second, fast: true, failover: true, adds: true,
			more: []string{"type: DATAFLOW", "streamingProcess: true", "failover: true", "jobParameter: sum:100"}},
		{name: "stream", cron: "0/20 * * * * ?", period: 20 * time.Second, items: 2, lasts: 16 * time.Second, failover: true, adds: true,
			more: []string{"type: DATAFLOW", "streamingProcess: true", "failover: true", "jobParameter: sum:1500"}},
		{name: flexJob, cron: "0/2 * * * * ?", period: flexPeriod, items: flexItems[0], lasts: 300 * time.Millisecond, failover: true,
			more: []string{"type: SIMPLE", "failover: true", "jobParameter: work:300"}},
		{name: triggerJob, items: 3, lasts: time.Second, failover: true,
			more: []string{"type: SIMPLE", "failover: true", "jobParameter: work:1000"}},
	}
}

func (j job) definition() string {
	lines := []string{"jobName: " + j.name, "module: " + moduleFile, fmt.Sprintf("shardingTotalCount: %d", j.items)}
	if j.cron != "" {
		lines = append(lines, fmt.Sprintf("cron: %q", j.cron))
	}
	// Hosts are killed at will: that two die in a row says nothing of an item.
	lines = append(lines, "maxHostDeaths: 0")
	// What nobody is told of is swept at this interval: soon enough to be seen.
	lines = append(lines, fmt.Sprintf("reconcileIntervalMinutes: %d", int(sweepInterval.Minutes())))
	return strings.Join(append(lines, j.more...), "\n") + "\n"
}

// sumOf is what the guest's sum has to be after so many numbers.
func sumOf(item int, count int64) int64 {
	var sum int64
	for n := int64(1); n <= count; n++ {
		sum += n*n%9973 + int64(item)
	}
	return sum
}

// entry is an offset of a job that adds.
type entry struct{ count, sum, fence int64 }

func parseEntry(data []byte) (entry, error) {
	var e entry
	if _, err := fmt.Sscanf(string(data), "%d %d %d", &e.count, &e.sum, &e.fence); err != nil {
		return e, fmt.Errorf("%q is not count, sum and fence: %w", data, err)
	}
	return e, nil
}

func (e entry) check(item int) error {
	if want := sumOf(item, e.count); e.sum != want {
		return fmt.Errorf("after %d numbers the sum is %d, and must be %d", e.count, e.sum, want)
	}
	return nil
}
