package failures

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/host/event"
)

func TestFailuresOfTheRegistryAreCounted(t *testing.T) {
	t.Parallel()
	var c Counts
	for _, err := range []error{
		nil, &registry.OpError{}, registry.ErrSessionLost, registry.ErrClosed, context.Canceled, context.DeadlineExceeded, // not counted
		&event.WaitError{Err: registry.ErrUnknown}, fmt.Errorf("%w: x", registry.ErrUnknown), registry.ErrSuspect, registry.ErrUnavailable,
		registry.ErrUnavailable, registry.ErrTooLarge, errors.New("what is this"),
	} {
		c.Note(err)
	}
	want := map[string]int64{"timeout": 1, "unknown": 1, "suspect": 1, "unavailable": 2, "too_large": 1, "other": 1}
	if got := c.ByReason(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", got, want)
	}
}
