package jobconfig

import (
	"maps"
	"slices"
	"strings"
)

// Merge merges a definition file into the registry's configuration. base is the definition as last applied,
// mine is the file now, theirs is the registry's.
//
// Without overwrite in mine the merge is three-way, field by field and property by property: what changed in
// the file since base is applied, even if the registry changed it too; what changed only in the registry stays.
// Without a base (hasBase false: no file of ours was applied to the job before) the registry stays, as with
// ElasticJob. With overwrite the file always wins.
//
// There are two exceptions, because of Java hosts in the same job. Properties with the prefix "wasm." that the
// registry does not have are filled in from the file, since a Java host that overwrites drops them all. And a
// definition file never removes what it cannot express (thread pool, tracing block, listener types).
//
// changed are the fields in which the result differs from theirs; kept are those in which it differs from mine.
// Both are in ascending order, with properties as "props.KEY". The arguments are not modified, and the result
// shares no memory with them.
func Merge(base Configuration, hasBase bool, mine, theirs Configuration) (result Configuration, changed, kept []string) {
	m := merger{overwrite: mine.Overwrite, hasBase: hasBase}
	result = theirs

	for _, s := range settings {
		if s.Key == "" || s.in == nil {
			continue
		}
		switch into := s.in(&result, nil).(type) {
		case *string:
			mergeField(&m, s.Key, into, *s.in(&base, nil).(*string), *s.in(&mine, nil).(*string))
		case *bool:
			mergeField(&m, s.Key, into, *s.in(&base, nil).(*bool), *s.in(&mine, nil).(*bool))
		case *int:
			mergeField(&m, s.Key, into, *s.in(&base, nil).(*int), *s.in(&mine, nil).(*int))
		}
	}
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
		mergeField(&m, keyListeners, &types, strings.Join(base.JobListenerTypes, "\n"), strings.Join(mine.JobListenerTypes, "\n"))
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

// fileWins reports whether the file's value is applied although the registry has another one.
func (m *merger) fileWins(changedInFile bool) bool {
	return m.overwrite || (m.hasBase && changedInFile)
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
	name := keyProps + "." + key
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
