package operate

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/step"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

const (
	// nodeBytes is about how much memory of a registry a node takes besides its path and data.
	nodeBytes = 256
	// sizesAtOnce bounds what one read of Size asks for.
	sizesAtOnce = 1000
)

// Size is about how many bytes all nodes of a job take in a registry's memory; 0 for a job that does not exist.
func Size(ctx context.Context, r registry.Center, l tree.Layout) (bytes int64, err error) {
	err = step.Perform(ctx, r, "measure a job", func(ctx context.Context, x *step.Exchange) error {
		paths, err := subtrees(ctx, x, []string{l.Root(), l.Sibling()})
		if err != nil {
			return err
		}
		for some := range slices.Chunk(paths, sizesAtOnce) {
			read := make([]registry.Query, len(some))
			for i, p := range some {
				read[i] = registry.Data(p)
			}
			n, err := x.Read(ctx, read...)
			if err != nil {
				return err
			}
			for _, p := range some {
				bytes += int64(nodeBytes + len(p) + len(n.Data(p).Data))
			}
		}
		return nil
	})
	return bytes, err
}

// ErrStays is why ForgetUnused keeps a job.
var ErrStays = errors.New("the job stays")

// ForgetUnused deletes a job entirely as Forget does, unless it has an instance, is removed, or an operator has
// stopped or disabled it, since that must hold when the job comes back. The error is then ErrStays. No host may
// join the job meanwhile.
func ForgetUnused(ctx context.Context, r registry.Center, l tree.Layout) error {
	return step.Perform(ctx, r, "forget an unused job", func(ctx context.Context, x *step.Exchange) error {
		return remove(ctx, x, l, func() (ops []registry.Op, roots []string, err error) {
			n, err := x.Read(ctx, registry.Data(l.Wanted()), registry.Children(l.Instances()))
			if err != nil {
				return nil, nil, err
			}
			if len(n.Children(l.Instances())) > 0 || operatorsWish(tree.ParseWanted(n.Data(l.Wanted()).Data)) {
				return nil, nil, ErrStays
			}
			return nil, []string{l.Root(), l.Sibling()}, nil
		})
	})
}

// operatorsWish reports whether an operator has set something for the job that no definition file has.
func operatorsWish(w tree.Wanted) bool {
	if w.Removed != nil {
		return true
	}
	for _, words := range []tree.Words{w.Stopped, w.Disabled} {
		for _, word := range words {
			if !strings.HasPrefix(word.By, tree.ByFile) {
				return true
			}
		}
	}
	return false
}
