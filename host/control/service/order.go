package service

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/wasmjob/wasmjob/host/control/cluster"
)

// jobOrder is how jobs are sorted; equal ones are by name.
func jobOrder(by string) (func(a, b *cluster.Job) int, error) {
	name, last := strings.CutPrefix(by, "-")
	compare, known := map[string]func(a, b *cluster.Job) int{
		"":         func(_, _ *cluster.Job) int { return 0 },
		"name":     func(a, b *cluster.Job) int { return strings.Compare(a.Name, b.Name) },
		"next":     func(a, b *cluster.Job) int { return byTime(a.Next, b.Next) },
		"last":     func(a, b *cluster.Job) int { return byTime(ended(a), ended(b)) },
		"health":   func(a, b *cluster.Job) int { return cmp.Compare(harm(a), harm(b)) },
		"duration": func(a, b *cluster.Job) int { return cmp.Compare(duration(a), duration(b)) },
	}[name]
	if !known {
		return nil, &InputError{"query.sort", fmt.Sprintf("found %q, expected name, next, last, health or duration, with - before it for the reverse", by)}
	}
	if last {
		return func(a, b *cluster.Job) int { return compare(b, a) }, nil
	}
	return compare, nil
}

// byTime has times that are not known last.
func byTime(a, b time.Time) int {
	if a.IsZero() != b.IsZero() {
		if a.IsZero() {
			return 1
		}
		return -1
	}
	return a.Compare(b)
}

func ended(j *cluster.Job) time.Time {
	if j.Last == nil {
		return time.Time{}
	}
	return j.Last.Ended
}

func duration(j *cluster.Job) time.Duration {
	if j.Last == nil {
		return 0
	}
	return j.Last.Duration
}

func harm(j *cluster.Job) int { return slices.Index(cluster.Healths(), j.Health) }

// contains reports whether a text contains another, regardless of case.
func contains(text, part string) bool {
	fold := func(s string) string { return strings.Map(unicode.ToLower, s) }
	return strings.Contains(fold(text), fold(part))
}
