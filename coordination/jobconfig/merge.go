package jobconfig

import (
	"maps"
	"slices"
	"strings"
)

// Merge brings a definition file together with the configuration in the
// registry. base is the definition as it was last applied, mine is the file as
// it is now, theirs is what the registry has.
//
// Without overwrite in mine the rule is three-way, field by field and property
// by property: what changed in the file since base is applied, even if the
// registry changed it too; what changed in the registry only stays. Without a
// base (hasBase false: no file of ours was applied to the job before) the
// registry stays, as with ElasticJob. With overwrite the file always wins.
//
// Two things differ, because of Java hosts in the same job. Properties with
// the prefix "wasm." that the registry does not have are filled in from the
// file, whoever dropped them: a Java host that overwrites drops them all. And
// what a definition file cannot say (thread pool, tracing block, listener
// types) is never taken away by it.
//
// changed are the fields in which the result differs from theirs; kept are
// those in which it differs from mine. Both are in ascending order, with
// properties as "props.KEY". The arguments are not modified, and the result
// shares no memory with them.
func Merge(base Configuration, hasBase bool, mine, theirs Configuration) (result Configuration, changed, kept []string) {
	m := merger{overwrite: mine.Overwrite, hasBase: hasBase}
	result = theirs

	mergeField(&m, "cron", &result.Cron, base.Cron, mine.Cron)
	mergeField(&m, "description", &result.Description, base.Description, mine.Description)
	mergeField(&m, "disabled", &result.Disabled, base.Disabled, mine.Disabled)
	mergeField(&m, "failover", &result.Failover, base.Failover, mine.Failover)
	mergeField(&m, "jobErrorHandlerType", &result.JobErrorHandlerType, base.JobErrorHandlerType, mine.JobErrorHandlerType)
	mergeField(&m, "jobName", &result.JobName, base.JobName, mine.JobName)
	mergeField(&m, "jobParameter", &result.JobParameter, base.JobParameter, mine.JobParameter)
	mergeField(&m, "jobShardingStrategyType", &result.JobShardingStrategyType, base.JobShardingStrategyType, mine.JobShardingStrategyType)
	mergeField(&m, "maxTimeDiffSeconds", &result.MaxTimeDiffSeconds, base.MaxTimeDiffSeconds, mine.MaxTimeDiffSeconds)
	mergeField(&m, "misfire", &result.Misfire, base.Misfire, mine.Misfire)
	mergeField(&m, "monitorExecution", &result.MonitorExecution, base.MonitorExecution, mine.MonitorExecution)
	mergeField(&m, "overwrite", &result.Overwrite, base.Overwrite, mine.Overwrite)
	mergeField(&m, "reconcileIntervalMinutes", &result.ReconcileIntervalMinutes, base.ReconcileIntervalMinutes, mine.ReconcileIntervalMinutes)
	mergeField(&m, "shardingItemParameters", &result.ShardingItemParameters, base.ShardingItemParameters, mine.ShardingItemParameters)
	mergeField(&m, "shardingTotalCount", &result.ShardingTotalCount, base.ShardingTotalCount, mine.ShardingTotalCount)
	mergeField(&m, "staticSharding", &result.StaticSharding, base.StaticSharding, mine.StaticSharding)
	mergeField(&m, "timeZone", &result.TimeZone, base.TimeZone, mine.TimeZone)

	label := labelOf(theirs)
	mergeField(&m, "label", &label, labelOf(base), labelOf(mine))
	result.Label = label.pointer()

	pool := poolOf(theirs)
	if mine.JobExecutorThreadPoolValue != "" {
		mergeField(&m, keyThreadPool, &pool, poolOf(base), poolOf(mine))
	}
	result.JobExecutorThreadPoolKey, result.JobExecutorThreadPoolValue = pool.key, pool.value

	if mine.ExtraConfigurations != "" {
		mergeField(&m, keyExtraConfigurations, &result.ExtraConfigurations, base.ExtraConfigurations, mine.ExtraConfigurations)
	}
	result.JobListenerTypes = slices.Clone(theirs.JobListenerTypes)
	if len(mine.JobListenerTypes) > 0 {
		types := strings.Join(theirs.JobListenerTypes, "\n")
		mergeField(&m, "jobListenerTypes", &types, strings.Join(base.JobListenerTypes, "\n"), strings.Join(mine.JobListenerTypes, "\n"))
		if types != strings.Join(theirs.JobListenerTypes, "\n") {
			result.JobListenerTypes = slices.Clone(mine.JobListenerTypes)
		}
	}
	result.Props = m.props(base.Props, mine.Props, theirs.Props)

	slices.Sort(m.changed)
	slices.Sort(m.kept)
	return result, m.changed, m.kept
}

type merger struct {
	overwrite, hasBase bool
	changed, kept      []string
}

// fileWins reports whether the file's value is applied where the registry has
// another one.
func (m *merger) fileWins(changedInFile bool) bool {
	return m.overwrite || m.hasBase && changedInFile
}

// mergeField decides one field; into begins as the registry's value.
func mergeField[T comparable](m *merger, name string, into *T, base, mine T) {
	switch {
	case mine == *into:
	case m.fileWins(mine != base):
		*into = mine
		m.changed = append(m.changed, name)
	default:
		m.kept = append(m.kept, name)
	}
}

func (m *merger) props(base, mine, theirs map[string]string) map[string]string {
	result := maps.Clone(theirs)
	if result == nil && len(mine) > 0 {
		result = map[string]string{}
	}
	for key := range mine {
		m.property(key, result, base, mine, theirs)
	}
	for key := range theirs {
		if _, done := mine[key]; !done {
			m.property(key, result, base, mine, theirs)
		}
	}
	if len(result) == 0 {
		return nil
	}
	return result
}

func (m *merger) property(key string, into, base, mine, theirs map[string]string) {
	before, b := base[key]
	file, f := mine[key]
	registry, r := theirs[key]
	if f == r && file == registry {
		return
	}
	name := "props." + key
	dropped := f && !r && strings.HasPrefix(key, PropPrefix)
	if !dropped && !m.fileWins(f != b || file != before) {
		m.kept = append(m.kept, name)
		return
	}
	m.changed = append(m.changed, name)
	if f {
		into[key] = file
	} else {
		delete(into, key)
	}
}

type mergeLabel struct {
	stated bool
	text   string
}

func labelOf(c Configuration) mergeLabel {
	if c.Label == nil {
		return mergeLabel{}
	}
	return mergeLabel{true, *c.Label}
}

func (l mergeLabel) pointer() *string {
	if !l.stated {
		return nil
	}
	return &l.text
}

type mergePool struct{ key, value string }

func poolOf(c Configuration) mergePool {
	return mergePool{c.JobExecutorThreadPoolKey, c.JobExecutorThreadPoolValue}
}
