package catalog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/wasmjob/wasmjob/host/config/builtin"
	"github.com/wasmjob/wasmjob/host/config/definition"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

const (
	// mostFolders is how many folders of a plugins directory are read, mostDepth how deep they may be nested.
	mostFolders = 1000
	mostDepth   = 8
)

// folders returns the folders of a plugins directory, "." first, with slashes, and calls each for every name in them.
// enters says which folders are read; nil means all. It does not follow symbolic links to folders, and ignores folders
// whose names begin with a dot. A folder that cannot be read is a problem; the others are still read.
func folders(root *os.Root, enters func(folder string) bool, each func(folder, name string)) (list, problems []string, err error) {
	list = []string{"."}
	more := 0
	for i := 0; i < len(list); i++ {
		folder := list[i]
		err := readFolder(root, folder, func(e fs.DirEntry) {
			name := e.Name()
			switch {
			case !e.IsDir() || kindOf(name) != ignored:
				each(folder, name)
			case enters != nil && !enters(path.Join(folder, name)):
			case strings.HasPrefix(name, ".") || strings.HasPrefix(name, "#") || name == "lost+found":
			case shownName(name) != name:
				problems = append(problems, fmt.Sprintf("has a folder %s %s", shownName(path.Join(folder, name)), unshownFolder))
			case strings.Count(folder, "/")+1 >= mostDepth && folder != ".", len(list) >= mostFolders:
				more++
			default:
				list = append(list, path.Join(folder, name))
			}
		})
		if err != nil && i == 0 {
			return nil, nil, err
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			problems = append(problems, fmt.Sprintf("has a folder %s that cannot be read: %v", words.Clip(folder), plain(err)))
		}
	}
	if more > 0 {
		problems = append(problems, fmt.Sprintf("has more than %d folders, or deeper ones than %d: %d are not read", mostFolders, mostDepth, more))
	}
	return list, problems, nil
}

// unshownFolder is the problem of a folder whose name could be taken for something else; see [unshown].
const unshownFolder = "whose name has a line break, or another character that cannot be shown: rename it"

// readFolder calls each for every entry of a folder. It opens nothing outside root.
func readFolder(root *os.Root, folder string, each func(fs.DirEntry)) error {
	d, err := root.Open(folder)
	if err != nil {
		return err
	}
	defer d.Close() // read only: nothing is lost if that fails
	for {
		some, err := d.ReadDir(1024)
		for _, e := range some {
			each(e)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// above returns the folders above a file, from its own to the plugins directory.
func above(name string) (list []string) {
	for folder := path.Dir(name); ; folder = path.Dir(folder) {
		list = append(list, folder)
		if folder == "." {
			return list
		}
	}
}

// beside returns the path of a file that is named in another file, in that file's folder.
func beside(of, name string) string {
	if name == builtin.HTTP {
		return name
	}
	return path.Join(path.Dir(of), name)
}

// under are the defaults that apply to a definition.
type under struct {
	shared []*definition.Shared // the nearest folder's first
	// key changes with each of them.
	key string
	// problem says that one of them is refused and has no valid earlier version. unread says that one was not read yet.
	problem string
	unread  bool
}

// under returns the defaults of a definition's folders.
func (s state) under(name string) (u under) {
	for _, folder := range above(name) {
		at := path.Join(folder, definition.DefaultsFile)
		f, there := s.files[at]
		switch {
		case !there:
			continue
		case f.shared != nil:
			u.shared = append(u.shared, f.shared)
			u.key += at + "=" + f.sharedDigest + "\n"
		case f.unread():
			u.unread = true
		default:
			u.problem = fmt.Sprintf("the defaults of its folder, %s, are refused", at)
			u.key += at + " is refused\n"
		}
	}
	return u
}

// stale reports whether a definition was read with other defaults than the present ones.
func (s state) stale(name string, f file) bool {
	if kindOf(name) != aDefinition || f.read.none() {
		return false
	}
	u := s.under(name)
	return !u.unread && u.key != f.under
}

// rooted returns the probable plugins directory of a file: its folder, or the highest folder above it such that all
// folders in between have a file of defaults. name is the path in it.
func rooted(file string) (dir, name string) {
	dir, name = filepath.Dir(file), filepath.Base(file)
	for {
		up := filepath.Join(dir, "..")
		if info, err := os.Stat(filepath.Join(up, definition.DefaultsFile)); err != nil || !info.Mode().IsRegular() {
			return dir, name
		}
		whole, err := filepath.Abs(dir)
		if err != nil || whole == filepath.Dir(whole) {
			return dir, name
		}
		dir, name = up, path.Join(filepath.Base(whole), name)
	}
}

// sharedIn returns the defaults for a file of a directory, from the disk. It returns false if one of them is invalid.
func sharedIn(dir, name string) (list []*definition.Shared, ok bool) {
	for _, folder := range above(name) {
		at := path.Join(folder, definition.DefaultsFile)
		text, there := readIn(dir, at, definition.MaxSize)
		if !there {
			continue
		}
		shared, err := definition.ParseShared(at, text)
		if err != nil {
			return nil, false
		}
		list = append(list, shared)
	}
	return list, true
}
