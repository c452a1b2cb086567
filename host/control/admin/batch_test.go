package admin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/wasmjob/wasmjob/host/engine"
)

// TestBatch: an operation over many jobs works on some at once, says at any time how far it is, leaves out what was said since, and
// says of how many it knows that nothing was done to them.
func TestBatch(t *testing.T) {
	t.Parallel()
	const jobs = 3 * atOnce
	var names []string
	for i := range jobs {
		names = append(names, fmt.Sprintf("job-%02d", i))
	}
	broken := errors.New("broken")
	begun, goOn := make(chan string, jobs), make(chan struct{})
	var mu sync.Mutex
	done := make(map[string]bool)
	b := NewBatch(names, func(_ context.Context, job string) error {
		begun <- job
		<-goOn
		mu.Lock()
		defer mu.Unlock()
		done[job] = true
		switch job {
		case "job-01":
			return broken
		case "job-02":
			return fmt.Errorf("job %q: %w", job, engine.ErrNoJob)
		}
		return nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	for range atOnce {
		<-begun
	}
	if n, of, err := b.State(); n != 0 || of != jobs || err != nil {
		t.Errorf("of jobs that are under way it says: %d of %d are done, error %v", n, of, err)
	}
	left := names[atOnce]
	b.LeaveOut(left)
	for range atOnce {
		goOn <- struct{}{}
	}
	for range atOnce {
		<-begun
	}
	if n, of, err := b.State(); n != atOnce+1 || of != jobs || !errors.Is(err, broken) {
		t.Errorf("it says that %d of %d are done, want %d with the one that was left out; error %v", n, of, atOnce+1, err)
	}
	cancel()
	close(goOn)
	err := <-ended
	nothing := jobs - (2*atOnce + 1)
	if want := fmt.Sprintf("nothing was done to %d of %d jobs", nothing, jobs); err == nil || !strings.Contains(err.Error(), want) || !errors.Is(err, broken) || !errors.Is(err, context.Canceled) {
		t.Errorf("found error %v, want %q and %v", err, want, broken)
	}
	if done[left] || len(done) != 2*atOnce {
		t.Errorf("%d jobs were done, %s among them: %v", len(done), left, done[left])
	}
}
