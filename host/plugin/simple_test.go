package plugin

import (
	"context"
	"testing"

	"github.com/wasmjob/wasmjob/abi"
)

func TestSimpleSmoke(t *testing.T) {
	t.Parallel()
	bothEngines(t, func(t *testing.T, r *Runtime) {
		w := newWorker(t, load(t, r, guest(t, "c/guest")), Settings{Type: TypeSimple})
		for p, want := range map[string]abi.Outcome{"ok": abi.OutcomeOK, "error": abi.OutcomeFail, "trap": abi.OutcomeTrap, "exit:0": abi.OutcomeExit} {
			got := w.Execute(context.Background(), item(newRecorder(), p))
			if got.Outcome != want {
				t.Errorf("%s: %+v, want %s", p, got, want)
			}
		}
	})
}
