package show

import (
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/host/cli/terminal"
	"github.com/wasmjob/wasmjob/host/control/admin"
)

// TestKills_begunAgain: of a run of which it is not known how it ended, it is said where to see that.
func TestKills_begunAgain(t *testing.T) {
	t.Parallel()
	got := Kills(terminal.Style{}, []*admin.Kills{{Job: "cities", Runs: []admin.Kill{{Item: 3, RunID: "cities/t1/3", State: admin.KillEnded}}}})
	if want := "the item has begun again since; 'wasmjob job runs cities --item 3' says how this run ended"; !strings.Contains(got, want) {
		t.Errorf("found\n%s\nexpected %s", got, want)
	}
}
