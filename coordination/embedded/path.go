package embedded

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/wasmjob/wasmjob/coordination"
)

// maxPath is the longest path in bytes: what a key of the store can hold.
const maxPath = 32768

// checkPath demands what ZooKeeper demands, so that a path which works here
// works there. The root is a path.
func checkPath(path string) error {
	bad := func(why string) error {
		return fmt.Errorf("registry: path %q: %s", path, why)
	}
	switch {
	case path == "":
		return bad("is empty, expected one that starts with /")
	case path[0] != '/':
		return bad("does not start with /")
	case path == "/":
		return nil
	case path[len(path)-1] == '/':
		return bad("ends with /")
	case len(path) > maxPath:
		return fmt.Errorf("%w: a path of %d bytes, the limit is %d", coordination.ErrTooLarge, len(path), maxPath)
	}
	start := 1 // of the current segment
	for i := 1; i <= len(path); i++ {
		if i < len(path) && path[i] != '/' {
			if c := path[i]; c < 0x20 || c >= 0x7f {
				if err := checkRune(path, i); err != nil {
					return err
				}
			}
			continue
		}
		switch path[start:i] {
		case "":
			return bad("has an empty segment")
		case ".", "..":
			return bad("has a segment . or ..")
		}
		start = i + 1
	}
	return nil
}

// checkRune judges the character at i if i is where it starts.
func checkRune(path string, i int) error {
	if !utf8.RuneStart(path[i]) {
		// Either inside a character, which was judged at its start, or a
		// stray byte, which the character before it does not cover.
		for j := i - 1; j >= 0 && j > i-utf8.UTFMax; j-- {
			if utf8.RuneStart(path[j]) {
				if _, n := utf8.DecodeRuneInString(path[j:]); j+n > i {
					return nil
				}
				break
			}
		}
		return fmt.Errorf("registry: path %q: is not UTF-8", path)
	}
	r, n := utf8.DecodeRuneInString(path[i:])
	switch {
	case r == utf8.RuneError && n <= 1:
		return fmt.Errorf("registry: path %q: is not UTF-8", path)
	case r < 0x20, r >= 0x7f && r <= 0x9f, r >= 0xd800 && r <= 0xf8ff, r >= 0xfff0 && r <= 0xffff:
		return fmt.Errorf("registry: path %q: holds the character %U", path, r)
	}
	return nil
}

// split returns the parent's path and the last segment. The root has neither.
func split(path string) (parent, name string) {
	i := strings.LastIndexByte(path, '/')
	if i == 0 {
		return "/", path[1:]
	}
	return path[:i], path[i+1:]
}

// checkOps refuses what no tree could make possible: wrong paths, unknown
// kinds, and a commit over the limit.
func checkOps(ops []coordination.Op, limit int) error {
	size := 0
	for i := range ops {
		op := &ops[i]
		path := op.Path
		if op.Kind == coordination.OpSequential {
			path += "0" // a prefix may end with /
		}
		if op.Kind == 0 || op.Kind > coordination.OpEnsure {
			return fmt.Errorf("registry: op %d: kind %d is unknown", i, op.Kind)
		}
		if err := checkPath(path); err != nil {
			return fmt.Errorf("op %d (%s): %w", i, op.Kind, err)
		}
		if path == "/" && op.Kind == coordination.OpDelete {
			return fmt.Errorf("registry: op %d: the root cannot be deleted", i)
		}
		size += opSize(op)
	}
	if size > limit {
		return fmt.Errorf("%w: %d ops of %d bytes together, the limit is %d", coordination.ErrTooLarge, len(ops), size, limit)
	}
	return nil
}

// opSize is about what the op takes in a ZooKeeper request, so that a commit
// which passes here is not refused there.
func opSize(op *coordination.Op) int {
	const header, text, access = 9, 4, 31
	size := header + text + len(op.Path) + 4
	switch op.Kind {
	case coordination.OpCreate, coordination.OpEphemeral, coordination.OpSequential:
		size += text + len(op.Data) + access
	case coordination.OpEnsure:
		size += text + access
	case coordination.OpSet:
		size += text + len(op.Data)
	case coordination.OpAbsent: // a create and a delete
		size = 2*size + text + access
	}
	return size
}
