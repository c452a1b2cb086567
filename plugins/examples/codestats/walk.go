package main

import (
	"cmp"
	"context"
	"errors"
	"hash/fnv"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// itemOf is the item that a package belongs to.
func itemOf(pkg string, items int) int {
	h := fnv.New32a()
	_, _ = io.WriteString(h, pkg) // a hash takes everything
	return int(h.Sum32() % uint32(items))
}

// packageOf is the top-level folder of a path.
func packageOf(name string) string {
	pkg, _, below := strings.Cut(name, "/")
	if !below {
		return "."
	}
	return pkg
}

// walk lists the regular files named *.go below root: folder by folder, each
// in the order of its names. It does not follow symbolic links.
type walk struct {
	root  string
	mine  func(pkg string) bool
	last  string   // the path that next returned last
	stack []folder // from root to where the walk is; nil before the first next
	skip  []string // what is left of the path to begin behind, per folder
}

type folder struct {
	path    string // below root, "" is root
	entries []os.DirEntry
}

// open begins a walk behind the file last, which need not exist any more; ""
// is from the beginning. It opens only the folders on the way to last.
func open(root, last string, mine func(pkg string) bool) *walk {
	w := &walk{root: root, mine: mine, last: last}
	if last != "" {
		w.skip = strings.Split(last, "/")
	}
	return w
}

// next returns the next file, as a path below root with slashes, or io.EOF.
func (w *walk) next() (string, error) {
	if w.stack == nil {
		if err := w.enter(""); err != nil {
			return "", err
		}
	}
	for len(w.stack) > 0 {
		top := &w.stack[len(w.stack)-1]
		if len(top.entries) == 0 {
			w.stack = w.stack[:len(w.stack)-1]
			continue
		}
		entry := top.entries[0]
		top.entries = top.entries[1:]
		name := path.Join(top.path, entry.Name())
		switch {
		case entry.IsDir():
			if top.path == "" && !w.mine(name) {
				continue
			}
			if err := w.enter(name); err != nil {
				return "", err
			}
		case entry.Type().IsRegular() && strings.HasSuffix(name, ".go") && (top.path != "" || w.mine(".")):
			w.last = name
			return name, nil
		}
	}
	return "", io.EOF
}

// enter reads a folder and leaves out what lies before the place to begin at.
func (w *walk) enter(name string) error {
	entries, err := os.ReadDir(filepath.Join(w.root, name))
	if err != nil {
		return err
	}
	slices.SortFunc(entries, func(a, b os.DirEntry) int { return cmp.Compare(a.Name(), b.Name()) })
	if len(w.skip) > 0 {
		at := w.skip[0]
		w.skip = w.skip[1:]
		i, found := slices.BinarySearchFunc(entries, at, func(e os.DirEntry, at string) int { return cmp.Compare(e.Name(), at) })
		if found && !(len(w.skip) > 0 && entries[i].IsDir()) {
			i++ // the file itself is done
			found = false
		}
		if !found {
			w.skip = nil // whatever comes now is behind it
		}
		entries = entries[i:]
	}
	w.stack = append(w.stack, folder{name, entries})
	return nil
}

// count walks without reading files.
func count(ctx context.Context, root string, mine func(pkg string) bool) (int64, error) {
	w := open(root, "", mine)
	for files := int64(0); ; files++ {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		_, err := w.next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return 0, unreadable(root, err)
		}
	}
}
