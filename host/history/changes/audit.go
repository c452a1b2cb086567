// Package changes copies records of changes from the registry into the history of one host of a namespace. The
// records are of changes made without a host's API; see coordination/admin/changelog.
package changes

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/coordination/admin/changelog"
	"github.com/wasmjob/wasmjob/coordination/admin/sessions"
	"github.com/wasmjob/wasmjob/coordination/fence"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/history"
)

// Recorder copies the records of a namespace, unless another host does. It is safe for concurrent use.
//
// It adds a record to the history before it removes it from the registry. If the host dies in between, its
// successor adds the record once more; none is lost.
type Recorder struct {
	namespace         string
	changes, recorder string // paths
	add               func(history.Change)
	log               *zap.Logger
	sessions          *sessions.Newest
	id                string // of this host, while it runs
	taken             string // the record taken last; only Run uses it
}

// New makes a recorder; add takes a record into the history and does not block. Nothing happens
// before Run.
func New(namespace string, add func(history.Change), log *zap.Logger) *Recorder {
	return &Recorder{namespace: namespace, changes: tree.ClusterChanges(namespace), recorder: tree.ClusterRecorder(namespace), add: add, log: log, sessions: sessions.New(), id: rand.Text()}
}

// Begun hands over a new session with the registry. It does not block.
func (r *Recorder) Begun(c registry.Center) { r.sessions.Begun(c) }

// Run takes records until ctx is done.
func (r *Recorder) Run(ctx context.Context) error {
	r.sessions.Each(ctx, func(ctx context.Context, c registry.Center) {
		if err := r.follow(ctx, c); err != nil && ctx.Err() == nil {
			r.log.Debug("records of changes wait in the registry", zap.Error(err))
		}
	})
	return nil
}

// follow watches for records in one session, and takes them while this host is the recorder.
func (r *Recorder) follow(ctx context.Context, c registry.Center) error {
	snapshots, err := c.Watch(ctx, registry.Children(r.changes), registry.Data(r.recorder))
	if err != nil {
		return fmt.Errorf("watch %s: %w", r.changes, err)
	}
	for s := range snapshots {
		waiting, recorder := s.Children(r.changes), s.Data(r.recorder)
		if len(waiting) == 0 || (recorder.Exists && string(recorder.Data) != r.id) {
			continue
		}
		if !recorder.Exists {
			_, err := c.Commit(ctx, registry.CreateEphemeral(r.recorder, []byte(r.id)))
			if errors.Is(err, registry.ErrConflict) {
				continue // another host was first, as the next snapshot says
			}
			if err != nil {
				return fmt.Errorf("make %s: %w", r.recorder, err)
			}
		}
		for _, id := range waiting {
			if err := r.take(ctx, c, id); err != nil {
				return err
			}
		}
	}
	return nil
}

// take takes one record.
func (r *Recorder) take(ctx context.Context, c registry.Center, id string) error {
	query := registry.Data(r.changes + "/" + id)
	var nodes []registry.Node
	raised, err := fence.Raised(ctx, c, r.namespace) // as the numbers of fires are
	if err == nil {
		nodes, err = raised.Read(ctx, query)
	}
	if err != nil {
		return fmt.Errorf("read a record: %w", err)
	}
	for _, n := range nodes {
		if !n.Exists || r.taken == id {
			continue
		}
		var change history.Change
		if err := json.Unmarshal(n.Data, &change); err != nil {
			r.log.Warn("a record of a change in the registry cannot be read, and is removed", zap.String("node", n.Path), zap.Error(err))
		} else {
			if change.Trigger == changelog.OfThisCommit {
				change.Trigger = n.Czxid
			}
			r.add(change)
		}
		r.taken = id
	}
	_, err = c.Commit(ctx, registry.Delete(query.Path, registry.AnyVersion))
	if err != nil && !errors.Is(err, registry.ErrConflict) { // else it is gone
		return fmt.Errorf("remove a record: %w", err)
	}
	return nil
}
