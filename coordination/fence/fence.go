package fence

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/step"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// raised is the data of the namespace's node in our tree. Hosts of earlier versions read
// the base alone.
type raised struct {
	// Base is added to the registry's transaction numbers.
	Base int64 `json:"base,omitempty"`
	// By is who raised it, At is when (Unix milliseconds), and Why says which number was known.
	By  string `json:"raisedBy,omitempty"`
	At  int64  `json:"raisedAt,omitempty"`
	Why string `json:"why,omitempty"`
}

// parseRaised reads the node leniently: it may have been edited.
func parseRaised(data []byte) raised {
	var r raised
	if json.Unmarshal(data, &r) != nil || r.Base < 0 {
		return raised{}
	}
	return r
}

func (r raised) data() []byte {
	b, err := json.Marshal(r)
	if err != nil { // numbers and texts always marshal
		return nil
	}
	return b
}

// margin is how far a raised base is ahead of the greatest known number, in terms of ZooKeeper leaders: greater
// numbers may have been given out unseen. Each leader's numbers begin at a multiple of 1<<32.
const margin = 1024

// baseAbove returns the base that makes numbers continue above n.
func baseAbove(n int64) (int64, error) {
	const most = math.MaxInt64 - 2*margin<<32
	if n > most {
		return 0, fmt.Errorf("number %d: expected %d at most, so that numbers can go on above it", n, int64(most))
	}
	return (n>>32 + margin) << 32, nil
}

// newestNamed returns the greatest transaction that the record names. All of them are older than the
// transaction that wrote the record.
func newestNamed(r tree.Record) int64 { return max(r.Trigger, r.After) }

// numbers is the base of a namespace and the registry's next number.
type numbers struct {
	node   registry.Node // of the namespace
	raised raised
	// next is a number that the registry has just given out, plus the base.
	next int64
}

// ask asks the registry for its next number and for the base. In the same commit it creates the namespace's
// node, and sets a node that does not exist: only a set returns a number.
func ask(ctx context.Context, x *step.Exchange, namespace string) (n numbers, err error) {
	root, probe := tree.NewLayout(namespace, "").NamespaceNode(), tree.NumberPath(namespace)
	results, err := x.Commit(ctx, registry.Ensure(root), registry.Create(probe, nil), registry.Set(probe, nil, registry.AnyVersion), registry.Delete(probe, registry.AnyVersion))
	if err != nil {
		return n, err
	}
	found, err := x.Read(ctx, registry.Data(root))
	if err != nil {
		return n, err
	}
	n.node = found.Data(root)
	n.raised = parseRaised(n.node.Data)
	n.next = results[2].Zxid + n.raised.Base
	return n, nil
}

// raise raises the base once: it changes nothing if the node has changed since it was read.
func (n numbers) raise(ctx context.Context, x *step.Exchange, to raised) error {
	_, err := x.Commit(ctx, registry.Set(n.node.Path, to.data(), n.node.Version))
	return err
}

// lifted adds a base to all transaction numbers.
type lifted struct {
	registry.Center
	base int64
}

// Raised reads the base of a namespace, and returns the session with the base added to the transaction numbers
// of reads and commits. Snapshots of watches keep theirs; see [registry.Snapshot.Raise]. It is for operators;
// hosts call [Enter].
func Raised(ctx context.Context, r registry.Center, namespace string) (registry.Center, error) {
	var base int64
	err := step.Perform(ctx, r, "read the base of the namespace", func(ctx context.Context, x *step.Exchange) error {
		path := tree.NewLayout(namespace, "").NamespaceNode()
		n, err := x.Read(ctx, registry.Data(path))
		base = parseRaised(n.Data(path).Data).Base
		return err
	})
	if err != nil {
		return nil, err
	}
	if base != 0 {
		return lifted{r, base}, nil
	}
	return r, nil
}

func (r lifted) Commit(ctx context.Context, ops ...registry.Op) ([]registry.Result, error) {
	results, err := r.Center.Commit(ctx, ops...)
	for i := range results {
		results[i] = results[i].Raise(r.base)
	}
	return results, err
}

func (r lifted) Read(ctx context.Context, queries ...registry.Query) ([]registry.Node, error) {
	nodes, err := r.Center.Read(ctx, queries...)
	for i := range nodes {
		nodes[i] = nodes[i].Raise(r.base)
	}
	return nodes, err
}

// Adoption is the result of [Adopt].
type Adoption struct {
	// Jobs and Items are how many were read; Highest is the highest transaction that their records name, or the
	// number that the caller passed.
	Jobs, Items int
	Highest     int64
	// Base is what is added to the registry's transaction numbers from now on.
	Base int64
}

// errNotBehind: the base need not be raised.
var errNotBehind = errors.New("no record names a transaction that this registry has not had: it is no copy, or was adopted already; nothing was changed")

// Adopt raises the base of a namespace, so that fences and trigger rounds continue above those that were given
// out before: above the given number, or, if that is 0, above every number in the records. For 0 it reads all
// records, and returns an error if the registry is no copy or was adopted already. Hosts that are in jobs begin
// a new session. by names the operator.
func Adopt(ctx context.Context, r registry.Center, namespace string, above int64, by string) (out Adoption, err error) {
	err = step.Perform(ctx, r, "adopt", func(ctx context.Context, x *step.Exchange) error {
		if above == 0 {
			if err := out.read(ctx, x, namespace); err != nil {
				return err
			}
		} else {
			out.Highest = above
		}
		to := raised{By: by, At: time.Now().UnixMilli(), Why: fmt.Sprintf("an operator adopted the registry: %d was given out before", out.Highest)}
		if to.Base, err = baseAbove(out.Highest); err != nil {
			return err
		}
		for {
			n, err := ask(ctx, x, namespace)
			switch {
			case step.IsUnknown(err):
				continue
			case err != nil:
				return err
			case n.raised.By == to.By && n.raised.At == to.At && n.raised.Base == to.Base: // the answer was lost
				out.Base = to.Base
				return nil
			case above != 0 && n.next > above:
				return fmt.Errorf("the registry gives out %d, which is above %d; nothing was changed", n.next, above)
			case n.raised.Base >= to.Base:
				return errNotBehind // another operator raised it meanwhile
			}
			if err := n.raise(ctx, x, to); err == nil {
				out.Base = to.Base
				return nil
			} else if !step.Contested(err) {
				return err
			}
		}
	})
	return out, err
}

// RaiseAbove raises the base of a namespace unconditionally, so that numbers continue above the given one and
// above those of the registry. It is for a restore from a backup: numbers given out after the backup are
// unknown, and the margin covers them. by names the operator.
func RaiseAbove(ctx context.Context, r registry.Center, namespace string, above int64, by string) (base int64, err error) {
	err = step.Perform(ctx, r, "raise the numbers of the namespace", func(ctx context.Context, x *step.Exchange) error {
		for {
			n, err := ask(ctx, x, namespace)
			if step.IsUnknown(err) {
				continue
			}
			if err != nil {
				return err
			}
			to := raised{By: by, At: time.Now().UnixMilli(), Why: fmt.Sprintf("a backup was restored: %d was given out before", above)}
			if to.Base, err = baseAbove(max(above, n.next)); err != nil {
				return err
			}
			if err = n.raise(ctx, x, to); err == nil {
				base = to.Base
				return nil
			}
			if !step.Contested(err) && !step.IsUnknown(err) {
				return err
			}
		}
	})
	return base, err
}

// recordsAtOnce is how many records one read of Adopt asks for.
const recordsAtOnce = 1000

// read finds the highest number in the records.
func (out *Adoption) read(ctx context.Context, x *step.Exchange, namespace string) error {
	root := tree.NewLayout(namespace, "").NamespaceNode()
	n, err := x.Read(ctx, registry.Data(root), registry.Children(root))
	if err != nil {
		return err
	}
	base := parseRaised(n.Data(root).Data).Base
	jobs := tree.JobsOf(n.Children(root))
	out.Jobs = len(jobs)
	var lists []registry.Query
	for _, job := range jobs {
		lists = append(lists, registry.Children(tree.NewLayout(namespace, job).Records()))
	}
	if n, err = x.Read(ctx, lists...); err != nil {
		return err
	}
	var records []registry.Query
	for _, list := range lists {
		for _, name := range n.Children(list.Path) {
			if _, isItem := tree.ItemNumber(name); !isItem {
				continue
			}
			records = append(records, registry.Data(list.Path+"/"+name))
		}
	}
	out.Items = len(records)
	isCopy := false
	for part := range slices.Chunk(records, recordsAtOnce) {
		n, err := x.Read(ctx, part...)
		if err != nil {
			return err
		}
		for _, record := range n {
			names := newestNamed(tree.ParseRecord(record.Data))
			out.Highest = max(out.Highest, names)
			isCopy = isCopy || (record.Exists && names > record.Mzxid+base)
		}
	}
	if !isCopy {
		return errNotBehind
	}
	return nil
}
