package capability

import (
	"slices"
	"strings"
	"sync"

	"github.com/wasmjob/wasmjob/abi"
)

// Usage counts what a run did outside. It is safe for concurrent use.
type Usage struct {
	mu     sync.Mutex
	byName map[string]*Count
}

// Count is what a run did with one capability: http, net, kv, env, dirs.
type Count struct {
	Calls    int64            `json:"calls"`
	Refused  map[string]int64 `json:"refused,omitempty"` // by reason: denied, quota, …
	Sent     int64            `json:"sent,omitempty"`    // bytes
	Received int64            `json:"received,omitempty"`
	Failed   int64            `json:"failed,omitempty"`  // requests and connections that had no answer
	Targets  []string         `json:"targets,omitempty"` // hosts called, files written: at most maxTargets
}

// maxTargets is how many targets are remembered of each capability.
const maxTargets = 16

func newUsage() *Usage { return &Usage{byName: map[string]*Count{}} }

// Add changes the count of a capability.
func (u *Usage) Add(capability string, change func(*Count)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	c := u.byName[capability]
	if c == nil {
		c = &Count{}
		u.byName[capability] = c
	}
	change(c)
}

// Target remembers what was called or written.
func (c *Count) Target(name string) {
	if len(c.Targets) < maxTargets && !slices.Contains(c.Targets, name) {
		c.Targets = append(c.Targets, name)
	}
}

// All returns a copy, nil if nothing was done.
func (u *Usage) All() map[string]Count {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.byName) == 0 {
		return nil
	}
	all := make(map[string]Count, len(u.byName))
	for name, c := range u.byName {
		all[name] = *c
	}
	return all
}

func nameOf(f *abi.Import) string { return strings.TrimPrefix(f.Module, abi.Module+"_") }

// called counts a call, but for those of handles: they are part of another's.
func (u *Usage) called(f *abi.Import) {
	if f.Module != abi.ModuleIO {
		u.Add(nameOf(f), func(c *Count) { c.Calls++ })
	}
}

func (u *Usage) refused(f *abi.Import, code abi.Code) {
	reason := map[abi.Code]string{abi.ErrDenied: "denied", abi.ErrQuota: "quota", abi.ErrTooLarge: "too large",
		abi.ErrCancelled: "ownership lost or cancelled", abi.ErrInvalid: "invalid"}[code]
	if reason == "" {
		return
	}
	u.Add(nameOf(f), func(c *Count) {
		if c.Refused == nil {
			c.Refused = map[string]int64{}
		}
		c.Refused[reason]++
	})
}
