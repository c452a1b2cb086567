package coordination

import (
	"context"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/step"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// reading is a list of queries with the item of each, like commit for ops.
type reading struct {
	queries []registry.Query
	items   []int
}

// newReading has room for about n queries.
func newReading(n int) reading {
	return reading{make([]registry.Query, 0, n), make([]int, 0, n)}
}

// add asks for nodes of an item, or of all items if that is below 0.
func (r *reading) add(item int, queries ...registry.Query) {
	for _, q := range queries {
		r.queries, r.items = append(r.queries, q), append(r.items, item)
	}
}

// do reads the nodes in one request. Items with a node that the registry does not permit to read are noted in
// denials; a denied node that belongs to no item is an error.
func (r *reading) do(ctx context.Context, x *step.Exchange, denials *Denials) (registry.Snapshot, error) {
	found, denied, err := x.ReadSome(ctx, r.queries...)
	if err == nil {
		err = r.note(denied, denials)
	}
	if err != nil {
		return nil, err
	}
	return found, nil
}

// list is do for very many nodes: it returns them in the order in which they were added. What cannot be read is there
// with Unread.
func (r *reading) list(ctx context.Context, x *step.Exchange, denials *Denials) ([]registry.Node, error) {
	nodes, denied, err := x.ReadList(ctx, r.queries...)
	if err == nil {
		err = r.note(denied, denials)
	}
	if err != nil {
		return nil, err
	}
	if len(denied) > 0 {
		for k, q := range r.queries {
			if why := denied[q]; why != nil {
				nodes[k] = registry.Node{Query: q, Unread: why}
			}
		}
	}
	return nodes, nil
}

// note notes what the registry does not permit to read.
func (r *reading) note(denied map[registry.Query]error, denials *Denials) error {
	if len(denied) == 0 {
		return nil
	}
	for k, q := range r.queries {
		if denied[q] == nil {
			continue
		}
		unreadable := &registry.UnreadableError{Denied: map[registry.Query]error{q: denied[q]}}
		if r.items[k] < 0 {
			return unreadable
		}
		denials.note(r.items[k], unreadable)
	}
	return nil
}

// note notes why an item is denied.
func (d *Denials) note(item int, err error) {
	if *d == nil {
		*d = make(Denials)
	}
	(*d)[item] = err
}

// without returns the items that are not denied.
func (d Denials) without(items tree.Items) tree.Items {
	if len(d) == 0 {
		return items
	}
	var rest tree.Items
	for _, i := range items {
		if d[i] == nil {
			rest = append(rest, i)
		}
	}
	return rest
}
