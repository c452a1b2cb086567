package metrics

import (
	"fmt"
	"strings"

	"github.com/wasmjob/wasmjob/internal/labels"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// JobLabels are names of labels of jobs, in the order in which they were given.
type JobLabels []string

// ParseLabels reads names of labels, separated by commas, at most [labels.Max]. An empty text is none. Two names that
// are one in Prometheus are refused.
func ParseLabels(text string) (JobLabels, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	var list JobLabels
	given := make(map[string]string)
	for name := range strings.SplitSeq(text, ",") {
		name = strings.TrimSpace(name)
		if err := labels.CheckName(name); err != nil {
			return nil, err
		}
		if other, twice := given[labels.InMetrics(name)]; twice {
			return nil, fmt.Errorf("found the labels %q and %q, which are both %s in Prometheus, expected one of them", words.Clip(other), words.Clip(name), words.Clip(labels.InMetrics(name)))
		}
		if len(list) == labels.Max {
			return nil, fmt.Errorf("found more than %d labels, expected at most %d", labels.Max, labels.Max)
		}
		given[labels.InMetrics(name)] = name
		list = append(list, name)
	}
	return list, nil
}

// String is the text that ParseLabels reads.
func (l JobLabels) String() string { return strings.Join(l, ",") }

func (l JobLabels) labels() (list []Label) {
	for _, name := range l {
		list = append(list, Label{Name: labels.InMetrics(name)})
	}
	return list
}

// values are those of a job's labels; empty for one that it does not have.
func (l JobLabels) values(of labels.Set) (list []string) {
	for _, name := range l {
		list = append(list, of[name])
	}
	return list
}
