package coordination_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	co "github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// denying is a session that is not permitted to write some nodes.
type denying struct {
	registry.Center
	paths []string
}

func (d denying) Commit(ctx context.Context, ops ...registry.Op) ([]registry.Result, error) {
	for i, op := range ops {
		if slices.Contains(d.paths, op.Path) {
			return nil, &registry.DeniedError{Index: i, Op: op, Err: registry.ErrUnavailable}
		}
	}
	return d.Center.Commit(ctx, ops...)
}

// TestDenied: a step goes on without the items of which the registry denies something, and
// names them. What concerns all items ends it.
func TestDenied(t *testing.T) {
	t.Parallel()
	const bad = 2
	at := func(c *chronicle) time.Time { return c.now.Add(time.Second) }
	items := tree.Items{0, 1, bad, 3, 4, 5}
	rest := func(denied co.Denials, done map[int]co.ItemState) bool {
		return len(denied) == 1 && denied[bad] != nil && len(done) == len(items)-1 && done[bad].RecordVersion == 0
	}
	ended := func(states map[int]co.ItemState) map[int]co.Ended {
		ends := make(map[int]co.Ended)
		for i, state := range states {
			ends[i] = co.Ended{State: state, Outcome: "OK", Offset: []byte("7"), HasOffset: true}
		}
		return ends
	}
	states := func(h *simHost) map[int]co.ItemState {
		all := make(map[int]co.ItemState)
		for i, it := range h.items {
			all[i] = it.state
		}
		return all
	}
	for name, tc := range map[string]struct {
		path, all func(c *chronicle, h *simHost) string
		step      func(c *chronicle, h *simHost, deny func()) (rest bool, err error)
	}{
		"begin": {
			path: func(c *chronicle, _ *simHost) string { return c.layout.Record(bad) },
			all:  func(c *chronicle, h *simHost) string { return c.layout.RunsOf(h.Self.ID) },
			step: func(c *chronicle, h *simHost, deny func()) (bool, error) {
				deny()
				out, err := h.Begin(c.ctx, co.Beginning{Fire: tree.Fire{Instant: at(c).UnixMilli(), Source: "schedule"}, Items: states(h), Now: at(c)})
				return rest(out.Denied, out.Items) && len(out.Refused) == 0, err
			},
		},
		"complete": {
			path: func(c *chronicle, _ *simHost) string { return c.layout.Offset(bad) },
			all:  func(c *chronicle, h *simHost) string { return c.layout.RunsOf(h.Self.ID) },
			step: func(c *chronicle, h *simHost, deny func()) (bool, error) {
				ends := ended(begin(t, h, at(c)).Items)
				deny()
				out, err := h.Complete(c.ctx, co.Completing{Items: ends, Marked: true, Now: at(c)})
				return rest(out.Denied, out.Items) && len(out.Lost) == 0, err
			},
		},
		"offsets": {
			path: func(c *chronicle, _ *simHost) string { return c.layout.Offset(bad) },
			all:  func(c *chronicle, h *simHost) string { return c.layout.RunsOf(h.Self.ID) },
			step: func(c *chronicle, h *simHost, deny func()) (bool, error) {
				ends := ended(begin(t, h, at(c)).Items)
				deny()
				out, err := co.SaveOffsets(c.ctx, h.Registry, c.layout, ends)
				return rest(out.Denied, out.Items) && len(out.Lost) == 0, err
			},
		},
		"misfire marks": {
			path: func(c *chronicle, _ *simHost) string { return c.layout.ItemMisfire(bad) },
			step: func(c *chronicle, h *simHost, deny func()) (bool, error) {
				deny()
				err := co.MarkMisfire(c.ctx, h.Registry, c.layout, items)
				var denied *registry.DeniedError
				if !errors.As(err, &denied) {
					return false, err
				}
				for _, i := range items {
					if c.node(c.layout.ItemMisfire(i)).Exists != (i != bad) {
						return false, nil
					}
				}
				return true, nil
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, of := range []func(*chronicle, *simHost) string{tc.path, tc.all} {
				if of == nil {
					continue
				}
				c, hosts := group(t, 1, nil)
				h := hosts[0]
				path := of(c, h)
				ok, err := tc.step(c, h, func() { h.Registry = denying{h.Registry, []string{path}} })
				var denied *registry.DeniedError
				switch ofItem := path == tc.path(c, h); {
				case ofItem && (err != nil || !ok):
					t.Errorf("%s is denied: the other items were not written alone: %v", path, err)
				case !ofItem && !errors.As(err, &denied):
					t.Errorf("%s is denied: found error %v, expected that", path, err)
				}
			}
		})
	}
}
