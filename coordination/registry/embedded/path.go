package embedded

import (
	"fmt"
	"strings"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

// maxPath is the longest path in bytes: what a key of the store can hold.
const maxPath = 32768

// checkPath is registry.CheckPath with the store's limit.
func checkPath(path string) error {
	if len(path) > maxPath {
		return fmt.Errorf("%w: a path of %d bytes, the limit is %d", registry.ErrTooLarge, len(path), maxPath)
	}
	return registry.CheckPath(path)
}

// split returns the parent's path and the last segment. The root has neither.
func split(path string) (parent, name string) {
	i := strings.LastIndexByte(path, '/')
	if i == 0 {
		return "/", path[1:]
	}
	return path[:i], path[i+1:]
}

// checkOps refuses ops that could never succeed, and a commit over the limit.
func checkOps(ops []registry.Op, limit int) error {
	if err := registry.CheckOps(ops); err != nil {
		return err
	}
	size := 0
	for i := range ops {
		op := &ops[i]
		if len(op.Path) > maxPath {
			return fmt.Errorf("op %d (%s): %w: a path of %d bytes, the limit is %d", i, op.Kind, registry.ErrTooLarge, len(op.Path), maxPath)
		}
		size += opSize(op)
	}
	if size > limit {
		return fmt.Errorf("%w: %d ops of %d bytes together, the limit is %d", registry.ErrTooLarge, len(ops), size, limit)
	}
	return nil
}

// opSize estimates the op's size in a ZooKeeper request, so that a commit that passes here is not refused
// there.
func opSize(op *registry.Op) int {
	const header, text, access = 9, 4, 31
	size := header + text + len(op.Path) + 4
	switch op.Kind {
	case registry.OpCreate, registry.OpEphemeral, registry.OpSequential:
		size += text + len(op.Data) + access
	case registry.OpEnsure:
		size += text + access
	case registry.OpSet:
		size += text + len(op.Data)
	case registry.OpAbsent: // a create and a delete
		size = 2*size + text + access
	}
	return size
}
