// Package strategy decides which instance runs which sharding item.
//
// A strategy is a pure function: the same job name, the same instances in the
// same order, the same count and the same instant give the same answer on
// every host and in ElasticJob, whose strategies these are. Nothing here keeps
// state; everything may be called from any number of goroutines.
//
// The order of the instances is part of the input. ElasticJob's order is that
// of [Sorted]; the caller sorts, once, before it asks a strategy.
//
// To add a strategy: one file with its function, one line in the list of
// [Names].
package strategy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/internal/text/words"
)

// Strategy spreads the items 0 to shardingTotalCount-1 of the named job over the instances, in the given order.
// The instant at is used only by SINGLE_SHARDING_BALANCE. The instances are not changed.
type Strategy func(jobName string, instances []string, shardingTotalCount int, at time.Time) Assignment

// Assignment is the result of a strategy: index = item, value = the instance that runs it. So each item has
// exactly one owner. It is nil when there are no instances, or no items.
type Assignment []string

// Items are the items of one instance, ascending; nil when it has none.
func (a Assignment) Items(instance string) []int {
	var items []int
	for item, owner := range a {
		if owner == instance {
			items = append(items, item)
		}
	}
	return items
}

// The names by which a job's configuration chooses its strategy.
const (
	AvgAllocation         = "AVG_ALLOCATION"
	Odevity               = "ODEVITY"
	RoundRobin            = "ROUND_ROBIN"
	SingleShardingBalance = "SINGLE_SHARDING_BALANCE"
)

// strategies lists every strategy: its name, its function, and the simple names of ElasticJob's Java classes
// for it.
func strategies() []entry {
	return []entry{
		{AvgAllocation, avgAllocation, []string{"AverageAllocationJobShardingStrategy"}},
		{Odevity, odevity, []string{"OdevitySortByNameJobShardingStrategy"}},
		{RoundRobin, roundRobin, []string{"RotateServerByNameJobShardingStrategy", "RoundRobinByNameJobShardingStrategy"}},
		{SingleShardingBalance, singleShardingBalance, []string{"SingleShardingBalanceJobShardingStrategy"}},
	}
}

type entry struct {
	name     string
	strategy Strategy
	classes  []string
}

// packages are the Java packages in which ElasticJob kept its strategies, from
// 1.x to 3.x.
func packages() []string {
	return []string{
		"com.dangdang.ddframe.job.plugin.sharding.strategy",
		"com.dangdang.ddframe.job.lite.api.strategy.impl",
		"io.elasticjob.lite.api.strategy.impl",
		"org.apache.shardingsphere.elasticjob.lite.api.strategy.impl",
		"org.apache.shardingsphere.elasticjob.infra.handler.sharding.impl",
		"org.apache.shardingsphere.elasticjob.kernel.internal.sharding.strategy.type",
	}
}

// Names are the names of all strategies, the default first.
func Names() []string {
	var names []string
	for _, e := range strategies() {
		names = append(names, e.name)
	}
	return names
}

// ByName finds a strategy by its name, in upper or lower case, or by the Java class that ElasticJob 1.x to 3.x
// used for it, with its package or without. Empty is AVG_ALLOCATION. The second result is the name to store. An
// unknown name is an error that lists the known ones and suggests the nearest.
func ByName(name string) (Strategy, string, error) {
	all := strategies()
	if name == "" {
		return all[0].strategy, all[0].name, nil
	}
	class := name
	if dot := strings.LastIndexByte(name, '.'); dot >= 0 && slices.Contains(packages(), name[:dot]) {
		class = name[dot+1:]
	}
	for _, e := range all {
		if strings.EqualFold(name, e.name) || slices.Contains(e.classes, class) {
			return e.strategy, e.name, nil
		}
	}
	return nil, "", unknown(name, all)
}

func unknown(name string, all []entry) error {
	nearest, least := "", len(name)
	simple := strings.ToUpper(name[strings.LastIndexByte(name, '.')+1:])
	simple = simple[:min(len(simple), 100)] // longer names match nothing
	for _, e := range all {
		// A misspelt class name means its strategy.
		for _, known := range append(e.classes, e.name) {
			if d := words.Edits(simple, strings.ToUpper(known)); d < least && d <= len(known)/3 {
				nearest, least = e.name, d
			}
		}
	}
	suggestion := ""
	if nearest != "" {
		suggestion = fmt.Sprintf(" (did you mean %s?)", nearest)
	}
	return fmt.Errorf("unknown sharding strategy %q%s; known are %s", words.ClipTo(name, 40), suggestion, strings.Join(Names(), ", "))
}
