package zookeeper

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

// TestPlaces: reads go at once while there is a place; of those that wait an urgent one and another go in turn, each in its order, and
// one whose context is over, or whose session is, waits no longer.
func TestPlaces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, l := newPlaces(2), newLife(&Options{})
		defer l.end()
		var went []string
		var failed []error
		read := func(ctx context.Context, name string) {
			go func() {
				if err := p.enter(ctx, l); err != nil {
					failed = append(failed, err)
				} else {
					went = append(went, name)
				}
			}()
			synctest.Wait() // it has a place, or stands in its line
		}
		urgent, cancel := context.WithCancel(registry.Urgent(t.Context()))
		for _, name := range []string{"1", "2", "3", "4", "5"} {
			read(t.Context(), name)
		}
		read(registry.Urgent(t.Context()), "a")
		read(urgent, "gives up")
		read(registry.Urgent(t.Context()), "b")
		if want := []string{"1", "2"}; !slices.Equal(went, want) {
			t.Errorf("%q went at once, want %q", went, want)
		}
		cancel()
		synctest.Wait()
		for range 4 {
			p.leave()
			synctest.Wait()
		}
		if want := []string{"1", "2", "a", "3", "b", "4"}; !slices.Equal(went, want) {
			t.Errorf("%q went, want %q", went, want)
		}
		l.stage.Store(lost)
		close(l.lost)
		synctest.Wait()
		if len(failed) != 2 || !errors.Is(failed[0], context.Canceled) || !errors.Is(failed[1], registry.ErrSessionLost) {
			t.Errorf("failed: %v", failed)
		}
		for range 2 {
			p.leave()
		}
		if p.free != 2 || p.waiting[0].Len()+p.waiting[1].Len() != 0 {
			t.Errorf("%d places are free, %d urgent reads and %d others wait", p.free, p.waiting[0].Len(), p.waiting[1].Len())
		}
	})
}
