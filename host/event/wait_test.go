package event

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

func TestAWaitErrorSaysWhatAndHowLong(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("begin: %w", &WaitError{What: WaitRegistry, For: "an answer", Then: "trying again", After: 10 * time.Second, Err: registry.ErrUnknown})
	var w *WaitError
	if !errors.Is(err, ErrWaited) || !errors.Is(err, registry.ErrUnknown) || !errors.As(err, &w) || w.What != WaitRegistry || w.After != 10*time.Second {
		t.Errorf("%#v does not tell what it is", err)
	}
	if want := "begin: waited 10s for an answer; trying again: registry: outcome unknown"; err.Error() != want {
		t.Errorf("%q, want %q", err, want)
	}
	late := &WaitError{What: WaitListener, For: "others", After: time.Minute, Err: context.DeadlineExceeded}
	if want := "waited 1m0s for others"; late.Error() != want || !errors.Is(late, context.DeadlineExceeded) {
		t.Errorf("%q, want %q", late, want)
	}
}
