package coordination

import (
	"context"
	"maps"
	"slices"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/step"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// ReadKills reads which of this host's runs operators have killed. running are the states of the items that it
// runs; the returned ones have the kill in their record. Items whose record cannot be read are omitted.
func (m *Member) ReadKills(ctx context.Context, running map[int]ItemState) (killed map[int]ItemState, denied Denials, err error) {
	items := slices.Sorted(maps.Keys(running))
	read := newReading(len(items))
	for _, i := range items {
		read.add(i, registry.Data(m.Layout.Record(i)))
	}
	killed = make(map[int]ItemState)
	err = m.perform(ctx, "read kills", func(ctx context.Context, x *step.Exchange) error {
		n, err := read.do(ctx, x, &denied)
		for _, i := range items {
			if state, is := running[i].killed(n.Data(m.Layout.Record(i))); is {
				killed[i] = state
			}
		}
		return err
	})
	return killed, denied, err
}

// killed reports whether the record is that of this state's open run and has been killed since. It returns the
// state with the kill.
func (s ItemState) killed(record registry.Node) (ItemState, bool) {
	r := tree.ParseRecord(record.Data)
	is := r.Kill.Asked() && r.Owner == s.Record.Owner && r.Begun == s.Record.Begun && r.After == s.RecordZxid
	if is {
		s.Record, s.RecordVersion = r, record.Version
	}
	return s, is
}
