package tree

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

// Kill is one operator's wish: an entry of node kill/{id}.
type Kill struct {
	// By says who asked, in words; it may be empty.
	By string `json:"by,omitempty"`
	// At is when, by the clock of the one who asked, Unix milliseconds.
	At int64 `json:"at"`
	// Grace is how long guests may go on after they have been asked to end,
	// milliseconds.
	Grace int64     `json:"graceMs"`
	Runs  []KillRun `json:"runs"`
}

// KillRun is a set of items that were begun by one commit.
type KillRun struct {
	Fence int64 `json:"fence"`
	Items Items `json:"items"`
}

// Reason is why a run was killed, for its record and its events.
func (k Kill) Reason() string {
	who := "an operator killed it"
	if k.By != "" {
		who += " (" + k.By + ")"
	}
	return who + " at " + time.UnixMilli(k.At).UTC().Format(time.RFC3339)
}

// Kills are what operators have asked of one host.
type Kills []Kill

// Of is the newest kill of an item's run.
func (k Kills) Of(item int, fence int64) (Kill, bool) {
	for _, kill := range slices.Backward(k) {
		for _, run := range kill.Runs {
			if run.Fence == fence && run.Items.Contains(item) {
				return kill, true
			}
		}
	}
	return Kill{}, false
}

// ReadKills understands node kill/{id} leniently: what cannot be read asks for nothing.
func ReadKills(n registry.Node) Kills {
	var k Kills
	if json.Unmarshal(n.Data, &k) != nil {
		return nil
	}
	return k
}

// Data is what the node holds, JSON.
func (k Kills) Data() []byte {
	b, err := json.Marshal(k)
	if err != nil { // numbers and strings always marshal
		return nil
	}
	return b
}

// With adds a kill; what it names is taken out of the older ones.
func (k Kills) With(kill Kill) Kills {
	var kills Kills
	for _, old := range k {
		var left []KillRun
		for _, run := range old.Runs {
			items := slices.DeleteFunc(slices.Clone(run.Items), func(i int) bool {
				_, again := Kills{kill}.Of(i, run.Fence)
				return again
			})
			if len(items) > 0 {
				left = append(left, KillRun{run.Fence, items})
			}
		}
		if old.Runs = left; len(left) > 0 {
			kills = append(kills, old)
		}
	}
	return append(kills, kill)
}

// KillQuery is the node that a host watches for kills of its runs.
func KillQuery(l Layout, self JobInstance) registry.Query { return registry.Data(l.Kill(self.ID)) }
