package step

import "github.com/wasmjob/wasmjob/coordination/registry"

// Budget is the size in bytes above which a step splits its writes into several commits: a little more than
// half of ZooKeeper's default request limit, so that 1,000 items begin in one.
const Budget = 544 << 10

// Size estimates the bytes of a request with these ops, to compare with the Budget.
func Size(ops []registry.Op) int {
	n := 0
	for _, op := range ops {
		n += opSize(op)
	}
	return n
}

// opSize is the size of an op in a ZooKeeper multi: its header, the lengths, the version, and for a create its
// flags and one short ACL entry.
func opSize(op registry.Op) int {
	const header, makes = 21, 35
	n := header + len(op.Path) + len(op.Data)
	switch op.Kind {
	case registry.OpCreate, registry.OpEphemeral, registry.OpSequential, registry.OpEnsure:
		n += makes
	case registry.OpAbsent: // a create and a delete
		n += header + len(op.Path) + makes
	}
	return n
}

// Parts splits ops into parts of about limit bytes. A check stays with the op that follows it, and a delete
// with the create of the same path.
func Parts(ops []registry.Op, limit int) func(yield func([]registry.Op) bool) {
	return func(yield func([]registry.Op) bool) {
		start, bytes := 0, 0
		for i, op := range ops {
			together := i > 0 && (ops[i-1].Kind == registry.OpCheck || (ops[i-1].Kind == registry.OpDelete && ops[i-1].Path == op.Path))
			if bytes+opSize(op) > limit && i > start && !together {
				if !yield(ops[start:i]) {
					return
				}
				start, bytes = i, 0
			}
			bytes += opSize(op)
		}
		if start < len(ops) {
			yield(ops[start:])
		}
	}
}

// FirstPart returns the first of Parts within the Budget: as much as fits a commit.
func FirstPart(ops []registry.Op) []registry.Op {
	for part := range Parts(ops, Budget) {
		return part
	}
	return nil
}

// Put makes a persistent node, or sets the one that was read.
func Put(n registry.Node, data []byte) registry.Op {
	if n.Exists {
		return registry.Set(n.Path, data, n.Version)
	}
	return registry.Create(n.Path, data)
}
