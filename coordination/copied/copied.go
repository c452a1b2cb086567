package copied

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/step"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// adopted is the data of the namespace's node in our tree.
type adopted struct {
	// Base is added to the registry's transaction numbers.
	Base int64 `json:"base,omitempty"`
}

// parseAdopted reads the node leniently: it may have been edited.
func parseAdopted(data []byte) adopted {
	var a adopted
	if json.Unmarshal(data, &a) != nil || a.Base < 0 {
		return adopted{}
	}
	return a
}

// Base is what is added to the registry's transaction numbers, from the data of the
// namespace's node: 0 but in a copy that was adopted.
func Base(data []byte) int64 { return parseAdopted(data).Base }

func (a adopted) data() []byte {
	b, err := json.Marshal(a)
	if err != nil { // numbers always marshal
		return nil
	}
	return b
}

// Error says that the registry is a copy that was not adopted.
type Error struct {
	// Record is the path of a record that names the transaction Names, and was
	// itself written by Written, which is lower.
	Record         string
	Names, Written int64
}

func (e *Error) Error() string {
	return fmt.Sprintf("this registry was copied from another one: %s names transaction %d, and transaction %d wrote it; "+
		"fences and trigger rounds would begin anew; run 'wasmjob adopt' (docs/cluster.md, A registry that was copied)", e.Record, e.Names, e.Written)
}

// Check returns an *Error if the record was written by another registry's
// transactions, and nil otherwise. base is the namespace's.
func Check(n registry.Node, base int64) error {
	if names, written := newestNamed(tree.ParseRecord(n.Data)), n.Mzxid+base; n.Exists && names > written {
		return &Error{Record: n.Path, Names: names, Written: written}
	}
	return nil
}

// newestNamed is the highest transaction that the record names. All that it names were
// before the one that wrote it.
func newestNamed(r tree.Record) int64 { return max(r.Trigger, r.After) }

// raised adds a base to all transaction numbers.
type raised struct {
	registry.Center
	base int64
}

// Raised reads the base of a namespace, and returns the session with that added to
// the transaction numbers of what is read and committed. Snapshots of watches
// keep theirs; see [registry.Snapshot.Raise].
func Raised(ctx context.Context, r registry.Center, namespace string) (registry.Center, error) {
	var base int64
	err := step.Perform(ctx, r, "read the base of the namespace", func(ctx context.Context, x *step.Exchange) error {
		path := tree.NewLayout(namespace, "").Adopted()
		n, err := x.Read(ctx, registry.Data(path))
		base = parseAdopted(n.Data(path).Data).Base
		return err
	})
	if err != nil {
		return nil, err
	}
	if base != 0 {
		return raised{r, base}, nil
	}
	return r, nil
}

func (r raised) Commit(ctx context.Context, ops ...registry.Op) ([]registry.Result, error) {
	results, err := r.Center.Commit(ctx, ops...)
	for i := range results {
		results[i] = results[i].Raise(r.base)
	}
	return results, err
}

func (r raised) Read(ctx context.Context, queries ...registry.Query) ([]registry.Node, error) {
	nodes, err := r.Center.Read(ctx, queries...)
	for i := range nodes {
		nodes[i] = nodes[i].Raise(r.base)
	}
	return nodes, err
}

// adoptMargin is how many leaders of ZooKeeper the numbers of an adopted copy
// are ahead of the highest one that its records name: runs that were open when
// the copy was made, and what came after a backup, named higher ones. Each
// leader's numbers begin at a multiple of 1<<32.
const adoptMargin = 1024

// Adoption is what became of Adopt.
type Adoption struct {
	// Jobs and Items were looked at; Highest is the highest transaction that
	// their records name.
	Jobs, Items int
	Highest     int64
	// Base is what is added to the registry's transaction numbers from now on.
	Base int64
}

// Adopt makes a namespace of a registry that was copied from another one usable:
// fences and trigger rounds go on above those that were given out before. No host
// of ours may be in any of its jobs. It returns an error if the registry is no
// copy, or was adopted already. Adopt reads all records.
func Adopt(ctx context.Context, r registry.Center, namespace string) (out Adoption, err error) {
	root := tree.NewLayout(namespace, "").Adopted()
	err = step.Perform(ctx, r, "adopt", func(ctx context.Context, x *step.Exchange) error {
		n, err := x.Read(ctx, registry.Data(root), registry.Children(root))
		if err != nil {
			return err
		}
		node := n.Data(root)
		jobs := tree.JobsOf(n.Children(root))
		out.Jobs = len(jobs)
		records, err := allRecords(ctx, x, namespace, jobs)
		if err != nil {
			return err
		}
		out.Items = len(records)
		isCopy := false
		for part := range slices.Chunk(records, recordsAtOnce) {
			n, err := x.Read(ctx, part...)
			if err != nil {
				return err
			}
			for _, record := range n {
				out.Highest = max(out.Highest, newestNamed(tree.ParseRecord(record.Data)))
				isCopy = isCopy || Check(record, parseAdopted(node.Data).Base) != nil
			}
		}
		if !isCopy {
			return errors.New("no record names a transaction that this registry has not had: it is no copy, or was adopted already; nothing was changed")
		}
		out.Base = (out.Highest>>32 + adoptMargin) << 32
		return writeBase(ctx, x, node, out.Base)
	})
	return out, err
}

// recordsAtOnce is how many records one read of Adopt asks for.
const recordsAtOnce = 1000

// allRecords are the records of all items of the jobs, none of which may have a
// host of ours.
func allRecords(ctx context.Context, x *step.Exchange, namespace string, jobs []string) (records []registry.Query, err error) {
	var read []registry.Query
	for _, job := range jobs {
		l := tree.NewLayout(namespace, job)
		read = append(read, registry.Children(l.Details()), registry.Children(l.Records()))
	}
	n, err := x.Read(ctx, read...)
	if err != nil {
		return nil, err
	}
	for _, job := range jobs {
		l := tree.NewLayout(namespace, job)
		if hosts := n.Children(l.Details()); len(hosts) > 0 {
			return nil, fmt.Errorf("host %s is in job %s: stop all hosts of the namespace first", hosts[0], job)
		}
		for _, name := range n.Children(l.Records()) {
			records = append(records, registry.Data(l.Records()+"/"+name))
		}
	}
	return records, nil
}

// writeBase writes the base of a namespace, once.
func writeBase(ctx context.Context, x *step.Exchange, root registry.Node, base int64) error {
	for {
		_, err := x.Commit(ctx, registry.Set(root.Path, adopted{base}.data(), root.Version))
		if !step.IsUnknown(err) {
			return err
		}
		n, err := x.Read(ctx, registry.Data(root.Path))
		if err != nil || parseAdopted(n.Data(root.Path).Data).Base == base {
			return err
		}
	}
}
