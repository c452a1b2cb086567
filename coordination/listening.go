package coordination

import (
	"context"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/step"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// NoteListener records that this host runs a listener, so that operators find it and can kill it. name is
// unique in this session. It may be called again after an error. If the job was removed it does nothing.
func (m *Member) NoteListener(ctx context.Context, name string, l tree.Listening) error {
	return m.perform(ctx, "note a listener", func(ctx context.Context, x *step.Exchange) error {
		_, err := x.Commit(ctx, registry.Check(m.Layout.Config(), registry.AnyVersion), registry.Ensure(m.Layout.Listeners()), registry.CreateEphemeral(m.Layout.Listener(name), l.Data()))
		return unlessThere(err)
	})
}

// EndListener removes what NoteListener wrote. It may be called again after an error.
func (m *Member) EndListener(ctx context.Context, name string) error {
	return m.perform(ctx, "note the end of a listener", func(ctx context.Context, x *step.Exchange) error {
		_, err := x.Commit(ctx, registry.Delete(m.Layout.Listener(name), registry.AnyVersion))
		return unlessThere(err)
	})
}

// unlessThere returns the error of a commit, nil for a conflict: the desired state exists already, or the job
// was removed.
func unlessThere(err error) error {
	if step.ConflictOf(err) != nil {
		return nil
	}
	return err
}

// ReadListenerKills reads which listeners operators have killed, by the names given to NoteListener.
func (m *Member) ReadListenerKills(ctx context.Context, names []string) (killed map[string]tree.Kill, err error) {
	killed = make(map[string]tree.Kill)
	read := make([]registry.Query, len(names))
	for i, name := range names {
		read[i] = registry.Data(m.Layout.Listener(name))
	}
	err = m.perform(ctx, "read kills of listeners", func(ctx context.Context, x *step.Exchange) error {
		n, err := x.Read(ctx, read...)
		for i, name := range names {
			if l, ok := tree.ParseListening(n[read[i]].Data); ok && l.Kill.Asked() {
				killed[name] = l.Kill
			}
		}
		return err
	})
	return killed, err
}
