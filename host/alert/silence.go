package alert

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/host/config/ceiling"
	"github.com/wasmjob/wasmjob/internal/labels"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// Silence keeps alerts from being sent until it ends.
type Silence struct {
	ID string `json:"id"`
	// Jobs is a pattern of jobs; "*" also covers alerts without a job. Rules are the selected rules; none is
	// all.
	Jobs  string `json:"jobs"`
	Rules []Rule `json:"rules,omitempty"`
	// Labels are conditions for the job's labels; with conditions alerts without a job are not covered.
	Labels labels.Selector `json:"labels,omitzero"`
	// From is when it was made, Until when it ends.
	From  time.Time `json:"from"`
	Until time.Time `json:"until"`
	// By is who made it, Why the reason that they gave.
	By  string `json:"by"`
	Why string `json:"why,omitempty"`
}

const (
	// shortestSilence and longestSilence bound a silence.
	shortestSilence = time.Minute
	longestSilence  = 90 * 24 * time.Hour
	// longestJobs bounds its pattern, longestWhy its reason, in bytes.
	longestJobs = 1000
	longestWhy  = 500
)

// Check returns what is wrong with a requested silence, and which field.
func (s *Silence) Check() (field, problem string) {
	d := s.Until.Sub(s.From).Round(time.Second)
	unknown := func(r Rule) bool { return !slices.Contains(AllRules(), r) }
	switch i := slices.IndexFunc(s.Rules, unknown); {
	case len(s.Jobs) > longestJobs:
		return "jobs", fmt.Sprintf("found %d bytes, expected at most %d", len(s.Jobs), longestJobs)
	case ceiling.CheckPattern(s.Jobs) != nil:
		return "jobs", ceiling.CheckPattern(s.Jobs).Error()
	case i >= 0:
		return "rules", fmt.Sprintf("found the rule %q%s", words.Clip(string(s.Rules[i])), suggest(string(s.Rules[i]), AllRules()))
	case d < shortestSilence || d > longestSilence:
		return "for", fmt.Sprintf("found %s, expected 1m to 90d", words.Duration(d))
	case len(s.Why) > longestWhy:
		return "why", fmt.Sprintf("found %d bytes, expected at most %d", len(s.Why), longestWhy)
	case strings.TrimSpace(s.By) == "":
		return "by", "is missing, expected who wants the silence"
	}
	return "", ""
}

// Covers reports whether the silence keeps an alert from being sent now.
func (s *Silence) Covers(a *Alert, now time.Time) bool {
	return now.Before(s.Until) && matches(s.Jobs, a.Job) && anyRule(s.Rules, a.Rule) && a.selected(s.Labels)
}
