package capability

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/wasmjob/wasmjob/abi"
)

// Usage counts what a run did outside. It is safe for concurrent use.
type Usage struct {
	mu     sync.Mutex
	byName map[string]*abi.OutsideCount
}

// maxTargets is how many targets are remembered of each capability, maxTarget how many
// bytes of each: they are in the events of each run.
const (
	maxTargets = 16
	maxTarget  = 256
)

// withTarget adds a target to those that are remembered.
func withTarget(list []string, name string) []string {
	if len(name) > maxTarget {
		name = strings.ToValidUTF8(name[:maxTarget-len("…")], "") + "…"
	}
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
		all[name] = copied
	}
	return all
}

func nameOf(f *abi.Import) string { return strings.TrimPrefix(f.Module, abi.Module+"_") }

// called counts a call, but for those of handles: they are part of another's.
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
