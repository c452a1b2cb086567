package show

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/cli/terminal"
	"github.com/wasmjob/wasmjob/host/control/admin"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// Kills lists what became of runs and listeners that were to end.
func Kills(s terminal.Style, all []*admin.Kills) string {
	t := terminal.NewTable(s, "RUN", "HOST", "STATE", "OUTCOME", "REASON")
	t.Spare = []string{"HOST"}
	for _, k := range all {
		for _, r := range k.Runs {
			state, outcome := terminal.Coloured(string(r.State), terminal.Yellow), terminal.Coloured(words.Dash(r.Outcome), terminal.Grey)
			reason := r.Reason
			switch r.State {
			case admin.KillEnded:
				state.Colour = terminal.Green
				if r.Listener != "" {
					reason = "the listener has ended"
				} else if r.Outcome != "" {
					outcome.Colour = outcomeColour(abi.Outcome(r.Outcome))
				} else {
					reason = "the item has begun again since; '" + words.Command("job runs", k.Job, "--item", strconv.Itoa(r.Item)) + "' says how this run ended"
				}
			case admin.KillAsked:
				reason = "its host has not reported the end; see its log"
			case admin.KillGone:
				reason = "its host has died, and there is no failover of what was killed"
			case admin.KillOlder:
				state.Colour, reason = terminal.Red, "its host is of an earlier version and does not find the kill: upgrade it, and kill again"
			case admin.KillJava:
				state.Colour, reason = terminal.Red, "it is no host of wasmjob: stop its process"
			}
			what := cmp.Or(r.RunID, k.Job+", item "+strconv.Itoa(r.Item))
			if r.Listener != "" {
				what = strings.TrimSuffix(r.RunID, "/-1") + ", listener " + r.Listener
			}
			t.Add(terminal.Coloured(what, terminal.Bold), terminal.Plain(r.Host), state, outcome, terminal.Plain(words.Dash(reason)))
		}
	}
	return t.String()
}
