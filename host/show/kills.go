package show

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/admin"
	"github.com/wasmjob/wasmjob/host/console"
	"github.com/wasmjob/wasmjob/host/words"
)

// Kills lists what became of runs and listeners that were to end.
func Kills(s console.Style, all []*admin.Kills) string {
	t := console.NewTable(s, "RUN", "HOST", "STATE", "OUTCOME", "REASON")
	t.Spare = []string{"HOST"}
	for _, k := range all {
		for _, r := range k.Runs {
			state, outcome := console.Coloured(string(r.State), console.Yellow), console.Coloured(words.Dash(r.Outcome), console.Grey)
			reason := r.Reason
			switch r.State {
			case admin.KillEnded:
				state.Colour = console.Green
				if r.Listener != "" {
					reason = "the listener has ended"
				} else if r.Outcome != "" {
					outcome.Colour = outcomeColour(abi.Outcome(r.Outcome))
				} else {
					reason = "the item has begun again since; '" + words.Command("runs", k.Job, "--item", strconv.Itoa(r.Item)) + "' says how this run ended"
				}
			case admin.KillAsked:
				reason = "its host has not reported the end; see its log"
			case admin.KillGone:
				reason = "its host has died, and there is no failover of what was killed"
			case admin.KillOlder:
				state.Colour, reason = console.Red, "its host is of an earlier version and does not find the kill: upgrade it, and kill again"
			case admin.KillJava:
				state.Colour, reason = console.Red, "it is no host of wasmjob: stop its process"
			}
			what := cmp.Or(r.RunID, k.Job+", item "+strconv.Itoa(r.Item))
			if r.Listener != "" {
				what = strings.TrimSuffix(r.RunID, "/-1") + ", listener " + r.Listener
			}
			t.Add(console.Coloured(what, console.Bold), console.Plain(r.Host), state, outcome, console.Plain(words.Dash(reason)))
		}
	}
	return t.String()
}
