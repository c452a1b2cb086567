package registry

import (
	"fmt"
	"unicode/utf8"
)

// CheckPath applies ZooKeeper's rules for paths, so that a path is valid with every registry or with none. The
// root is a path.
func CheckPath(path string) error {
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
		// Either inside a character, which was checked at its start, or a stray byte that the character before
		// does not cover.
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
	case r < 0x20, r >= 0x7f && r <= 0x9f, r >= 0xd800 && r <= 0xf8ff, r >= 0xfff0:
		return fmt.Errorf("registry: path %q: holds the character %U", path, r)
	}
	return nil
}

// CheckOps refuses ops that could never succeed: unknown kinds and invalid paths.
func CheckOps(ops []Op) error {
	for i := range ops {
		op := &ops[i]
		path := op.Path
		if op.Kind == OpSequential {
			path += "0" // a prefix may end with /
		}
		if op.Kind == 0 || op.Kind > OpEnsure {
			return fmt.Errorf("registry: op %d: kind %d is unknown", i, op.Kind)
		}
		if err := CheckPath(path); err != nil {
			return fmt.Errorf("op %d (%s): %w", i, op.Kind, err)
		}
		if path == "/" && op.Kind == OpDelete {
			return fmt.Errorf("registry: op %d: the root cannot be deleted", i)
		}
	}
	return nil
}
