package coordination

import (
	"context"
	"maps"
	"slices"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/step"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// Saved is the result of SaveOffsets.
type Saved struct {
	Items map[int]ItemState
	Lost  tree.Items
	// Denied are neither saved nor lost: the registry does not permit it.
	Denied Denials
}

// SaveOffsets makes offsets of running items durable, in one commit, or several if they do not fit one. It uses
// Offset and State of each item; all items are of one host.
//
// The record's version proves that the item is still the host's, as long as the host's list of runs exists: a
// job that was purged and recreated has no such list, while its records may have reached the same versions.
func SaveOffsets(ctx context.Context, r registry.Center, l tree.Layout, items map[int]Ended) (Saved, error) {
	s := saving{layout: l, items: maps.Clone(items), todo: slices.Sorted(maps.Keys(items)), out: Saved{Items: make(map[int]ItemState)}}
	err := step.Perform(ctx, r, "save offsets", s.run)
	return s.out, err
}

// saving is a SaveOffsets on its way.
type saving struct {
	layout tree.Layout
	items  map[int]Ended
	todo   tree.Items
	out    Saved
}

func (s *saving) run(ctx context.Context, x *step.Exchange) error {
	for len(s.todo) > 0 {
		c, part := s.next()
		_, err := x.Commit(ctx, c.ops...)
		if err == nil {
			for _, i := range part {
				s.out.Items[i] = s.items[i].State.saved(s.items[i].Offset)
			}
			s.todo = s.todo[len(part):]
			continue
		}
		if i, ok := c.denied(err, &s.out.Denied); ok {
			s.todo = without(s.todo, i)
			continue
		}
		if !step.Contested(err) {
			return err
		}
		if err := s.look(ctx, x, part); err != nil {
			return err
		}
	}
	return nil
}

// next saves as many offsets as fit one commit.
func (s *saving) next() (c commit, part tree.Items) {
	l, owner := s.layout, ""
	for _, i := range s.todo {
		e := s.items[i]
		item := commit{}
		item.add(roleRecord, i, registry.Check(l.Record(i), e.State.RecordVersion))
		item.add(roleOffset, i, e.State.setOffset(l.Offset(i), e.Offset))
		if step.Size(c.ops)+step.Size(item.ops) > step.Budget && len(part) > 0 {
			break
		}
		c.join(item)
		part, owner = append(part, i), e.State.Record.Owner
	}
	c.add(roleRuns, -1, registry.Check(l.RunsOf(owner), registry.AnyVersion))
	return c, part
}

// look finds items that were lost, and offsets that were saved although the commit's outcome was unknown:
// writing the same bytes again is harmless.
func (s *saving) look(ctx context.Context, x *step.Exchange, part tree.Items) error {
	l := s.layout
	owner := s.items[part[len(part)-1]].State.Record.Owner
	read := newReading(1 + 2*len(part))
	read.add(-1, registry.Data(l.RunsOf(owner)))
	for _, i := range part {
		read.add(i, registry.Data(l.Record(i)), registry.Data(l.Offset(i)))
	}
	n, err := read.do(ctx, x, &s.out.Denied)
	if err != nil {
		return err
	}

	var again tree.Items
	for _, i := range s.out.Denied.without(part) {
		record, offset, e := n.Data(l.Record(i)), n.Data(l.Offset(i)), s.items[i]
		run := tree.ParseRecord(record.Data)
		e.State, _ = e.State.killed(record)
		if tree.VersionOf(record) != e.State.RecordVersion || run.Owner != owner || run.Begun != e.State.Record.Begun {
			s.out.Lost = append(s.out.Lost, i)
			continue
		}
		if own := n.Data(l.RunsOf(owner)); !own.Exists {
			return gone(own)
		}
		e.State.Offset, e.State.OffsetVersion, e.State.HasOffset = offset.Data, offset.Version, offset.Exists
		s.items[i] = e
		again = append(again, i)
	}
	s.todo = slices.Concat(again, s.todo[len(part):])
	return nil
}
