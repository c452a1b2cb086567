package rate

import (
	"context"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/step"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// Turn is a host's view of a key: the node as it knows it, and what the host wants of it. A begin adds
// [Turn.Op] to its commit. One goroutine uses it at a time.
type Turn struct {
	// Path of the node; see [Path].
	Path string
	// Key, Rate and Owner say which key and for which job and host.
	Key   string
	Rate  jobconfig.Rate
	Owner Owner
	// Window is what the node holds, Version its version; [tree.NoVersion]: there is no node.
	Window  Window
	Version int32
	// Wrote is when the node was last written, Unix milliseconds; 0 without a node.
	Wrote int64
	// Known is set if the three are the node as this host last saw it. It is false after a commit that shows
	// that the node has changed.
	Known bool
	// Waiting is how many more items of the job want a place.
	Waiting int
	// Now is the time at which items begin.
	Now int64
}

// Path is the path of a key's node.
func Path(l tree.Layout, key string) string { return tree.Rate(l.Namespace, key) }

// after returns the window after n more items have begun.
func (t *Turn) after(n int) Window {
	w := t.Window.Begin(t.Rate, t.Owner, n, t.Waiting, t.Now)
	w.Key = t.Key
	return w
}

// Op returns the op that writes the key's node when n items begin. It proves that the node is as the host knows
// it. The node must exist.
func (t *Turn) Op(n int) registry.Op { return registry.Set(t.Path, t.after(n).Data(), t.Version) }

// Took records that the op for n items took effect.
func (t *Turn) Took(n int, result registry.Result) { t.took(t.after(n), result) }

func (t *Turn) took(w Window, result registry.Result) {
	t.Window, t.Version, t.Wrote, t.Known = w, result.Version, result.Time.UnixMilli(), true
}

// Read refreshes turns, in one request.
func Read(ctx context.Context, r registry.Center, turns ...*Turn) error {
	return step.Perform(ctx, r, "read when items began under a rate", func(ctx context.Context, x *step.Exchange) error {
		return read(ctx, x, turns)
	})
}

func read(ctx context.Context, x *step.Exchange, turns []*Turn) error {
	queries := make([]registry.Query, len(turns))
	for k, t := range turns {
		queries[k] = registry.Data(t.Path)
	}
	n, err := x.Read(ctx, queries...)
	if err != nil {
		return err
	}
	for _, t := range turns {
		node := n.Data(t.Path)
		t.Window, t.Version, t.Wrote, t.Known = Parse(node.Data, t.Now), tree.VersionOf(node), 0, true
		if node.Exists {
			t.Wrote = node.Mtime.UnixMilli()
		}
	}
	return nil
}

// Stand gives waiting items their places, and creates missing nodes: in one commit unless others write the
// nodes at the same time.
func Stand(ctx context.Context, r registry.Center, turns ...*Turn) error {
	return change(ctx, r, "stand in line for a rate", turns, func(t *Turn) Window { return t.after(0) })
}

// Pause pauses the keys until a time, in Unix milliseconds: nothing begins under them before. A longer pause stays.
func Pause(ctx context.Context, r registry.Center, until int64, turns ...*Turn) error {
	return change(ctx, r, "pause the key of a rate", turns, func(t *Turn) Window { return t.after(0).Pause(until, t.Owner.Job) })
}

func change(ctx context.Context, r registry.Center, name string, turns []*Turn, to func(*Turn) Window) error {
	return step.Perform(ctx, r, name, func(ctx context.Context, x *step.Exchange) error {
		for len(turns) > 0 {
			done, err := write(ctx, x, turns, to)
			if err != nil {
				return err
			}
			turns = turns[done:]
		}
		return nil
	})
}

// write writes as many of the turns as fit one commit, and returns how many; 0: write them again.
func write(ctx context.Context, x *step.Exchange, turns []*Turn, to func(*Turn) Window) (done int, err error) {
	var ops, missing []registry.Op
	var windows []Window
	for _, t := range turns {
		if t.Version == tree.NoVersion || !t.Known {
			missing = append(missing, registry.Ensure(t.Path))
		}
		w := to(t)
		ops, windows = append(ops, registry.Set(t.Path, w.Data(), t.Version)), append(windows, w)
		if step.Size(ops) > step.Budget/2 {
			break
		}
	}
	if len(missing) > 0 {
		if _, err := x.Commit(ctx, missing...); err != nil {
			return 0, err
		}
		return 0, read(ctx, x, turns)
	}
	results, err := x.Commit(ctx, ops...)
	if err == nil {
		for k := range ops {
			turns[k].took(windows[k], results[k])
		}
		return len(ops), nil
	}
	for _, t := range turns {
		t.Known = false
	}
	if !step.Contested(err) {
		return 0, err
	}
	return 0, read(ctx, x, turns)
}
