package cluster

import (
	"context"
	"testing"

	"github.com/wasmjob/wasmjob/host/history"
)

// searched is a store that looks through much and finds nothing.
type searched struct {
	history.Store
	asked int
}

func (s *searched) Lines(context.Context, history.Filter) (history.Page[history.Line], error) {
	s.asked++
	return history.Page[history.Line]{Records: []history.Line{}, Next: history.PositionOf(began.Add(-1), "1").Cursor(history.ListLines)}, nil
}

// TestSearchInParts: an answer looks through a bounded part of a history, and says where to go on.
func TestSearchInParts(t *testing.T) {
	t.Parallel()
	list := newLibraries(t, 1)
	store := &searched{Store: list[0].store}
	h := list.from(0)
	h.Store = store
	found, err := h.Lines(t.Context(), history.Filter{Text: "nowhere"}, nil)
	if err != nil || len(found.Records) != 0 || found.Next == "" || store.asked != mostEmpty {
		t.Errorf("%+v, %v after the store was asked %d times; want a next page after %d", found, err, store.asked, mostEmpty)
	}
}
