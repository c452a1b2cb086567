package coordination

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

// A registry's transaction numbers are fence tokens and name trigger rounds: both
// must only grow. In a registry whose nodes were copied from another one they
// begin again. Such a copy is known by its records: each names transactions that
// were before the one that wrote it, so that none of them can be higher. After
// an operator has adopted the copy, hosts add a number to all transactions, the
// base of the namespace.

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

func (a adopted) data() []byte {
	b, err := json.Marshal(a)
	if err != nil { // numbers always marshal
		return nil
	}
	return b
}

// CopiedError says that the registry is a copy that was not adopted.
type CopiedError struct {
	// Record is the path of a record that names the transaction Names, and was
	// itself written by Written, which is lower.
	Record         string
	Names, Written int64
}

func (e *CopiedError) Error() string {
	return fmt.Sprintf("this registry was copied from another one: %s names transaction %d, and transaction %d wrote it; "+
		"fences and trigger rounds would begin anew; run 'wasmjob adopt' (docs/cluster.md, A registry that was copied)", e.Record, e.Names, e.Written)
}

// copied returns a *CopiedError if the record was written by another registry's
// transactions, and nil otherwise. base is the namespace's.
func copied(n registry.Node, base int64) error {
	if names, written := parseRecord(n.Data).names(), n.Mzxid+base; n.Exists && names > written {
		return &CopiedError{Record: n.Path, Names: names, Written: written}
	}
	return nil
}

// names is the highest transaction that the record names. All that it names were
// before the one that wrote it.
func (r Record) names() int64 { return max(r.Trigger, r.After) }

// raised adds a base to all transaction numbers.
type raised struct {
	registry.Center
	base int64
}

// Raised reads the base of a namespace, and returns the session with that added to
// the transaction numbers of what is read and committed. Snapshots of watches
// keep theirs; see [registry.Snapshot.Raise].
func Raised(ctx context.Context, r registry.Center, namespace string) (registry.Center, error) {
	nodes, err := r.Read(ctx, registry.Data(NewLayout(namespace, "").adopted()))
	if err != nil {
		return nil, err
	}
	if base := parseAdopted(nodes[0].Data).Base; base != 0 {
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
func Adopt(namespace string, out *Adoption) Move {
	root := NewLayout(namespace, "").adopted()
	return Move{Name: "adopt", Read: []registry.Query{registry.Data(root), registry.Children(root)}, Then: func(n []registry.Node, _ []registry.Result) (Move, error) {
		*out = Adoption{Jobs: len(n[1].Names)}
		a := adopting{root: n[0], base: parseAdopted(n[0].Data).Base, out: out}
		var read []registry.Query
		for _, job := range n[1].Names {
			l := NewLayout(namespace, job)
			a.layouts = append(a.layouts, l)
			read = append(read, registry.Children(l.details()), registry.Children(l.records()))
		}
		if len(read) == 0 {
			return a.write()
		}
		return Move{Read: read, Then: func(n []registry.Node, _ []registry.Result) (Move, error) {
			var records []registry.Query
			for k, l := range a.layouts {
				if hosts := n[2*k].Names; len(hosts) > 0 {
					return Move{}, fmt.Errorf("host %s is in job %s: stop all hosts of the namespace first", hosts[0], l.Job)
				}
				for _, name := range n[2*k+1].Names {
					records = append(records, registry.Data(l.records()+"/"+name))
				}
			}
			out.Items = len(records)
			return a.look(records)
		}}, nil
	}}
}

// adopting is an Adopt on its way.
type adopting struct {
	root    registry.Node
	base    int64
	layouts []Layout
	copied  bool
	out     *Adoption
}

// recordsAtOnce is how many records one read of Adopt asks for.
const recordsAtOnce = 1000

// look reads the records, some at a time.
func (a adopting) look(records []registry.Query) (Move, error) {
	if len(records) == 0 {
		return a.write()
	}
	part := records[:min(len(records), recordsAtOnce)]
	return Move{Read: part, Then: func(n []registry.Node, _ []registry.Result) (Move, error) {
		for _, record := range n {
			a.out.Highest = max(a.out.Highest, parseRecord(record.Data).names())
			a.copied = a.copied || copied(record, a.base) != nil
		}
		return a.look(records[len(part):])
	}}, nil
}

func (a adopting) write() (Move, error) {
	if !a.copied {
		return Move{}, errors.New("no record names a transaction that this registry has not had: it is no copy, or was adopted already; nothing was changed")
	}
	a.out.Base = (a.out.Highest>>32 + adoptMargin) << 32
	return Move{Commit: []registry.Op{registry.Set(a.root.Path, adopted{a.out.Base}.data(), a.root.Version)},
		Unknown: func() (Move, error) {
			return Move{Read: []registry.Query{registry.Data(a.root.Path)}, Then: func(n []registry.Node, _ []registry.Result) (Move, error) {
				if parseAdopted(n[0].Data).Base == a.out.Base {
					return Done()
				}
				return a.write()
			}}, nil
		}}, nil
}
