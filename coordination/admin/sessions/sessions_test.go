package sessions_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/coordination/admin/sessions"
	"github.com/wasmjob/wasmjob/coordination/registry"
)

// session is one that can be lost.
type session struct {
	registry.Center
	lost chan struct{}
}

func (s *session) Lost() <-chan struct{} { return s.lost }

// TestEach: what is to be done in each session is done in the newest, once more after a
// while if it ends, and never in one that is over.
func TestEach(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := sessions.New()
		var mu sync.Mutex
		var seen []registry.Center
		ends := make(chan struct{})
		ctx, stop := context.WithCancel(context.Background())
		var run sync.WaitGroup
		run.Go(func() {
			n.Each(ctx, func(ctx context.Context, c registry.Center) {
				mu.Lock()
				seen = append(seen, c)
				mu.Unlock()
				select {
				case <-ends:
				case <-ctx.Done():
				case <-c.Lost():
				}
			})
		})
		expect := func(when string, want ...registry.Center) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if len(seen) != len(want) {
				t.Fatalf("%s: called %d times, expected %d", when, len(seen), len(want))
			}
			for i := range want {
				if seen[i] != want[i] {
					t.Errorf("%s: call %d was in another session", when, i)
				}
			}
		}
		first, second, third := &session{lost: make(chan struct{})}, &session{lost: make(chan struct{})}, &session{lost: make(chan struct{})}
		expect("without a session")
		n.Begun(first)
		expect("the first session", first)
		ends <- struct{}{}
		time.Sleep(sessions.RetryAfter - time.Millisecond)
		expect("a moment after it returned", first)
		time.Sleep(time.Millisecond)
		expect("a second after it returned", first, first)
		n.Begun(second)
		n.Begun(third) // nobody looked at the second
		expect("while the first goes on", first, first)
		close(first.lost)
		expect("the first is over", first, first, third)
		stop()
		run.Wait()
	})
}
