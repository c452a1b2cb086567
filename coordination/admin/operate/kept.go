package operate

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/step"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// Kept is what an item keeps from run to run: offset and state.
type Kept struct {
	Item int
	// Data is the item's offset, or a value with its offset and its key/value state.
	// Has is false if there is none.
	Data []byte
	Has  bool
	// Written is when it was written last, zero if it never was.
	Written time.Time
	// RunsOn is the instance that runs the item, empty for none. Fence is the token
	// of the newest run, 0 if that is not known.
	RunsOn string
	Fence  int64
}

// ErrItemRuns refuses to change what an item keeps while it runs.
var ErrItemRuns = errors.New("what a run keeps cannot be changed while it runs")

// keptAtOnce bounds what one read of ReadKept asks for.
const keptAtOnce = 100

// keptQueries are the nodes that keptOf understands, of each item.
func keptQueries(l tree.Layout, items []int) []registry.Query {
	var read []registry.Query
	for _, i := range items {
		read = append(read, registry.Data(l.Item(i)), registry.Data(l.Record(i)), registry.Data(l.Offset(i)), registry.Data(l.ItemRunning(i)))
	}
	return read
}

func keptOf(l tree.Layout, n registry.Snapshot, i int) Kept {
	record, offset, running := n.Data(l.Record(i)), n.Data(l.Offset(i)), n.Data(l.ItemRunning(i))
	k := Kept{Item: i, Data: offset.Data, Has: offset.Exists}
	if offset.Exists {
		k.Written = offset.Mtime
	}
	r := tree.ParseRecord(record.Data)
	k.Fence = r.After
	if r.Open() {
		k.RunsOn, k.Fence = r.Owner, r.Token(record.Mzxid)
	} else if running.Exists {
		k.RunsOn = cmp.Or(string(running.Data), "an unknown host") // Java hosts have no record
	}
	return k
}

// ReadKept reads what items keep: one item, or all with -1. The result omits items that the job does not have.
func ReadKept(ctx context.Context, r registry.Center, l tree.Layout, item int) (all []Kept, err error) {
	err = step.Perform(ctx, r, "read offsets", func(ctx context.Context, x *step.Exchange) error {
		n, err := x.Read(ctx, registry.Data(l.Config()), registry.Children(l.Sharding()))
		if err != nil {
			return err
		}
		if !n.Data(l.Config()).Exists {
			return tree.ErrRemoved
		}
		var items []int
		for _, name := range n.Children(l.Sharding()) {
			if i, ok := tree.ItemNumber(name); ok && (item < 0 || i == item) {
				items = append(items, i)
			}
		}
		slices.Sort(items)
		for part := range slices.Chunk(items, keptAtOnce) {
			if n, err = x.Read(ctx, keptQueries(l, part)...); err != nil {
				return err
			}
			for _, i := range part {
				all = append(all, keptOf(l, n, i))
			}
		}
		return nil
	})
	return all, err
}

// ChangeKept changes what an item keeps. change returns what replaces data, has being false for nothing; it may
// be called several times. now is the registry's clock (coordination.RegistryTime).
//
// The same commit writes the record unchanged, so that the record gets a new version: a host that has read the
// item before must read it again before it begins it, and if a host has begun it meanwhile the commit fails.
// ErrItemRuns says that the item runs, on whatever host.
func ChangeKept(ctx context.Context, r registry.Center, l tree.Layout, item int, now time.Time, change func(data []byte, has bool) ([]byte, error)) (kept Kept, err error) {
	c := keptChange{layout: l, item: item, now: now, change: change}
	err = step.Perform(ctx, r, "change the offset", func(ctx context.Context, x *step.Exchange) error {
		for done := false; !done; {
			n, err := x.Read(ctx, append(keptQueries(l, []int{item}), registry.Data(l.Config()))...)
			if err != nil {
				return err
			}
			if done, err = c.attempt(ctx, x, n); err != nil {
				return err
			}
		}
		n, err := x.Read(ctx, keptQueries(l, []int{item})...)
		kept = keptOf(l, n, item)
		return err
	})
	return kept, err
}

// keptChange is a ChangeKept on its way.
type keptChange struct {
	layout tree.Layout
	item   int
	now    time.Time
	change func(data []byte, has bool) ([]byte, error)
	// unknown is set if the outcome of the last commit is unknown. That commit was to write data over a record
	// of this version.
	unknown bool
	data    []byte
	version int32
}

// attempt commits the change to what was read; done is false if something else was
// written meanwhile.
func (c *keptChange) attempt(ctx context.Context, x *step.Exchange, n registry.Snapshot) (done bool, err error) {
	l, i := c.layout, c.item
	if !n.Data(l.Config()).Exists {
		return false, tree.ErrRemoved
	}
	if !n.Data(l.Item(i)).Exists {
		return false, fmt.Errorf("job %s has no item %d", l.Job, i)
	}
	record, offset := n.Data(l.Record(i)), n.Data(l.Offset(i))
	tookEffect := c.unknown && tree.VersionOf(record) > c.version && offset.Exists && bytes.Equal(offset.Data, c.data)
	if tookEffect {
		return true, nil
	}
	if k := keptOf(l, n, i); k.RunsOn != "" {
		return false, fmt.Errorf("item %d runs on %s: %w; wait for its end, or end it with '%s'; '%s' keeps it from running again meanwhile",
			i, k.RunsOn, ErrItemRuns, words.Command("job kill", l.Job, "--item", strconv.Itoa(i)), words.Command("job pause", l.Job, "--item", strconv.Itoa(i)))
	}
	data, err := c.change(offset.Data, offset.Exists)
	if err != nil {
		return false, err
	}

	ops := []registry.Op{registry.Check(l.Config(), registry.AnyVersion), registry.Absent(l.ItemRunning(i)), registry.Ensure(l.Records()), registry.Ensure(l.Offsets())}
	if record.Exists {
		ops = append(ops, registry.Set(record.Path, record.Data, record.Version))
	} else {
		ops = append(ops, registry.Create(record.Path, tree.Record{Instant: c.now.UnixMilli()}.Data()))
	}
	ops = append(ops, step.Put(offset, data))
	_, err = x.Commit(ctx, ops...)
	if err == nil || !step.Contested(err) {
		return err == nil, err
	}
	c.unknown, c.data, c.version = step.IsUnknown(err), data, tree.VersionOf(record)
	return false, nil
}
