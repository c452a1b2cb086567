package capability

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// Usage counts what a run did outside. It is safe for concurrent use.
type Usage struct {
	mu     sync.Mutex
	byName map[string]*abi.OutsideCount
}

// maxTargets is how many targets are kept for each capability, maxTarget how many bytes of each: they are part
// of each run's events.
const (
	maxTargets = 16
	maxTarget  = 256
)

func cut(name string) string {
	if len(name) > maxTarget {
		name = strings.ToValidUTF8(name[:maxTarget-len("…")], "") + "…"
	}
	return name
}

// withTarget adds a target to those that are remembered.
func withTarget(list []string, name string) []string {
	name = cut(name)
	if len(list) >= maxTargets || slices.Contains(list, name) {
		return list
	}
	return append(list, name)
}

func newUsage() *Usage { return &Usage{byName: map[string]*abi.OutsideCount{}} }

// Add changes the count of a capability.
func (u *Usage) Add(capability string, change func(*abi.OutsideCount)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	c := u.byName[capability]
	if c == nil {
		c = &abi.OutsideCount{}
		u.byName[capability] = c
	}
	change(c)
}

// Target remembers what was called or written.
func (u *Usage) Target(capability, name string) {
	u.Add(capability, func(c *abi.OutsideCount) { c.Targets = withTarget(c.Targets, name) })
}

// Failed counts a call of a target that had no answer.
func (u *Usage) Failed(capability, target string) {
	u.Add(capability, func(c *abi.OutsideCount) {
		c.Failed++
		c.FailedTargets = withTarget(c.FailedTargets, target)
	})
}

// Took notes how long a target took for a request or connection. Beyond the limit it drops the fastest target.
func (u *Usage) Took(capability, target string, took time.Duration) {
	target = cut(target)
	u.Add(capability, func(c *abi.OutsideCount) {
		if c.Times == nil {
			c.Times = map[string]abi.TargetTime{}
		}
		t := c.Times[target]
		t.Calls++
		t.Slowest = max(t.Slowest, took)
		c.Times[target] = t
		if len(c.Times) > maxTargets {
			delete(c.Times, fastest(c.Times))
		}
	})
}

func fastest(times map[string]abi.TargetTime) string {
	return slices.MinFunc(slices.Collect(maps.Keys(times)), func(a, b string) int {
		return cmp.Or(cmp.Compare(times[a].Slowest, times[b].Slowest), cmp.Compare(b, a))
	})
}

// slow is from which duration a target may be the cause of a failed run.
const slow = time.Second

// Slow names the slowest target, if it is slow enough to be the cause of a failed run; otherwise it is empty.
func Slow(outside map[string]abi.OutsideCount) string {
	text, worst := "", slow
	for _, name := range slices.Sorted(maps.Keys(outside)) {
		c := outside[name]
		if _, t := c.Slowest(); t.Slowest >= worst {
			text, worst = Slowest(name, c), t.Slowest
		}
	}
	return text
}

// Slowest says which target of a capability was the slowest; it is empty if that is not known.
func Slowest(capability string, c abi.OutsideCount) string {
	target, t := c.Slowest()
	if target == "" {
		return ""
	}
	call := "request"
	if capability == "net" {
		call = "connection"
	}
	return fmt.Sprintf("%s to %s, slowest %s", words.Count(int(t.Calls), call), target, words.Short(t.Slowest))
}

// All returns a copy, nil if nothing was done.
func (u *Usage) All() map[string]abi.OutsideCount {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.byName) == 0 {
		return nil
	}
	all := make(map[string]abi.OutsideCount, len(u.byName))
	for name, c := range u.byName {
		copied := *c
		copied.Refused, copied.Targets, copied.FailedTargets = maps.Clone(c.Refused), slices.Clone(c.Targets), slices.Clone(c.FailedTargets)
		copied.Times = maps.Clone(c.Times)
		all[name] = copied
	}
	return all
}

func nameOf(f *abi.Import) string { return strings.TrimPrefix(f.Module, abi.Module+"_") }

// called counts a call, except calls on handles, which belong to another call.
func (u *Usage) called(f *abi.Import) {
	ofHandle := f.Module == abi.ModuleIO || f.Params[0].Name == "handle"
	if !ofHandle {
		u.Add(nameOf(f), func(c *abi.OutsideCount) { c.Calls++ })
	}
}

// refused counts a call that was answered with a code that refuses it.
func (u *Usage) refused(f *abi.Import, code abi.Code) {
	if reason := reasons[code]; reason != "" {
		u.Refused(nameOf(f), reason)
	}
}

// reasons are why calls are refused, by the codes that say so.
var reasons = map[abi.Code]string{abi.ErrDenied: "denied", abi.ErrQuota: "quota", abi.ErrTooLarge: "too large",
	abi.ErrCancelled: "ownership lost or cancelled", abi.ErrInvalid: "invalid"}

// Reasons lists the reasons for which calls are refused.
func Reasons() []string { return slices.Sorted(maps.Values(reasons)) }

// Refused counts a call that was refused for one of Reasons.
func (u *Usage) Refused(capability, reason string) {
	u.Add(capability, func(c *abi.OutsideCount) {
		if c.Refused == nil {
			c.Refused = map[string]int64{}
		}
		c.Refused[reason]++
	})
}
