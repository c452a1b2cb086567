package coordination

import (
	"maps"
	"slices"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

// SaveOffsets makes offsets of running items durable. The record's version
// proves that the item is still the host's own, as long as the host's list of
// runs is there: a job that was purged and recreated has no such list, while its
// records may have come to the same versions.
type SaveOffsets struct {
	Layout Layout
	Items  map[int]Ended // Offset and State are used; all are of one host
}

// Saved is what became of SaveOffsets.
type Saved struct {
	Items map[int]ItemState
	Lost  Items
}

// Move writes all offsets: in one commit, or several if they do not fit one.
func (s SaveOffsets) Move(out *Saved) Move {
	*out = Saved{Items: make(map[int]ItemState)}
	s.Items = maps.Clone(s.Items)
	return s.next(slices.Sorted(maps.Keys(s.Items)), out)
}

func (s SaveOffsets) next(todo Items, out *Saved) Move {
	l := s.Layout
	b := commit{}
	var items Items
	owner := ""
	for _, i := range todo {
		e := s.Items[i]
		item := commit{}
		item.add(roleRecord, i, registry.Check(l.record(i), e.State.RecordVersion))
		if e.State.HasOffset {
			item.add(roleOffset, i, registry.Set(l.offset(i), e.Offset, e.State.OffsetVersion))
		} else {
			item.add(roleOffset, i, registry.Create(l.offset(i), e.Offset))
		}
		if size(b.ops)+size(item.ops) > commitBudget && len(items) > 0 {
			break
		}
		b.join(item)
		items, owner = append(items, i), e.State.Record.Owner
	}
	rest := todo[len(items):]
	if len(items) == 0 {
		return Move{Name: "save offsets"}
	}
	b.add(roleRuns, -1, registry.Check(l.runsOf(owner), registry.AnyVersion))
	// look finds items that were lost, and offsets that were saved though the
	// answer was not heard: writing the same bytes again does no harm.
	look := func() (Move, error) {
		read := []registry.Query{registry.Data(l.runsOf(owner))}
		for _, i := range items {
			read = append(read, registry.Data(l.record(i)), registry.Data(l.offset(i)))
		}
		return Move{Read: read, Then: func(n []registry.Node, _ []registry.Result) (Move, error) {
			var again Items
			for k, i := range items {
				record, offset, e := n[1+2*k], n[2+2*k], s.Items[i]
				run := parseRecord(record.Data)
				if versionOf(record) != e.State.RecordVersion || run.Owner != owner || run.Begun != e.State.Record.Begun {
					out.Lost = append(out.Lost, i)
					continue
				}
				if !n[0].Exists {
					return Move{}, gone(n[0])
				}
				e.State.Offset, e.State.OffsetVersion, e.State.HasOffset = offset.Data, offset.Version, offset.Exists
				s.Items[i] = e
				again = append(again, i)
			}
			return s.next(slices.Concat(again, rest), out), nil
		}}, nil
	}
	return Move{
		Name: "save offsets", Commit: b.ops,
		Then: func([]registry.Node, []registry.Result) (Move, error) {
			for _, i := range items {
				e := s.Items[i]
				out.Items[i] = e.State.saved(e.Offset)
			}
			return s.next(rest, out), nil
		},
		Else:    func(*registry.OpError) (Move, error) { return look() },
		Unknown: look,
	}
}
