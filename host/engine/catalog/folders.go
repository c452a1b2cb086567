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
	// mostFolders is how many folders of a plugins directory are read, mostDepth how deep they may lie.
	mostFolders = 1000
	mostDepth   = 8
)

// folders are the folders of a plugins directory, "." first, by slashes; walk calls each with the names in it.
// enters says which folders are read; nil is all. Symbolic links to folders are not followed, and folders whose names begin with a dot are passed over, as files are.
// A folder below the directory that cannot be read is a problem; the rest goes on.
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

// unshownFolder is the problem of a folder whose name could pass for something else; see [unshown].
const unshownFolder = "whose name has a line break, or another character that cannot be shown: rename it"

// readFolder calls each for what is in a folder. Nothing outside of root is opened.
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

// above are the folders of a file, its own first, the plugins directory's last.
func above(name string) (list []string) {
	for folder := path.Dir(name); ; folder = path.Dir(folder) {
		list = append(list, folder)
		if folder == "." {
			return list
		}
	}
}

// beside is a file that a file of the directory names as one in its own folder.
func beside(of, name string) string {
	if name == builtin.HTTP {
		return name
	}
	return path.Join(path.Dir(of), name)
}

// under are the defaults that hold for a definition.
type under struct {
	shared []*definition.Shared // the nearest folder's first
	// key changes with any of them.
	key string
	// problem says that one of them is refused, and none of its earlier versions is known; unread that one
	// was not read yet.
	problem string
	unread  bool
}

// under are the defaults of a definition's folders.
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

// stale reports whether a definition was read with other defaults than there are now.
func (s state) stale(name string, f file) bool {
	if kindOf(name) != aDefinition || f.read.none() {
		return false
	}
	u := s.under(name)
	return !u.unread && u.key != f.under
}

// rooted is the plugins directory that a path of a file is most likely in: its folder, or the highest of those above
// it that all have a file of defaults. name is the path in it.
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

// sharedIn are the defaults of a file of a directory as they are on the disk. It reports false if one of them is not in
// order.
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
