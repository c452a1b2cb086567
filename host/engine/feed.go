package engine

import (
	"context"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

// feed is a registry watch that the loop may have open. The zero value is closed.
type feed struct {
	// snapshots is nil while the feed is closed, so that a select does not wait for it. The loop sets it to nil when the
	// registry closes it: the session is over then.
	snapshots <-chan registry.Snapshot
	end       context.CancelFunc
}

// open watches nodes until the feed is closed or ctx is done. The feed must be closed before. After an error it stays
// closed.
func (f *feed) open(ctx context.Context, center registry.Center, queries ...registry.Query) error {
	ctx, cancel := context.WithCancel(ctx)
	snapshots, err := center.Watch(ctx, queries...)
	if err != nil {
		cancel()
		return err
	}
	f.snapshots, f.end = snapshots, cancel
	return nil
}

// opened reports whether the feed was opened and not closed since, even if its session is over.
func (f *feed) opened() bool { return f.end != nil }

// close ends the watch, if there is one. A snapshot that has not been read is lost.
func (f *feed) close() {
	if f.end != nil {
		f.end()
	}
	*f = feed{}
}
