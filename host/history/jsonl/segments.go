package jsonl

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A segment is a file of older events beside the history NAME: NAME.7.gz is newer
// than NAME.6.gz. NAME.7, without the ending, is being compressed, or a crash came
// in between; as soon as NAME.7.gz is there it has the same events.

const compressed = ".gz"

type segment struct {
	name   string
	number int
	size   int64
}

// segmentNumber returns the number of a segment of the history with that path.
func segmentNumber(path, name string) (number int, ok bool) {
	text, ok := strings.CutPrefix(name, path+".")
	if !ok {
		return 0, false
	}
	number, err := strconv.Atoi(strings.TrimSuffix(text, compressed))
	return number, err == nil && number > 0
}

// Base returns the history that a file belongs to: for a segment, the file beside it; otherwise the file
// itself.
func Base(name string) string {
	dot := strings.LastIndexByte(strings.TrimSuffix(name, compressed), '.')
	if dot > 0 {
		if _, ok := segmentNumber(name[:dot], name); ok {
			return name[:dot]
		}
	}
	return name
}

// Segments are the files of older events of a history, oldest first, without the
// file itself. There may be none.
func Segments(path string) ([]string, error) {
	list, err := segments(path)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(list))
	for i, s := range list {
		names[i] = s.name
	}
	return names, nil
}

func segments(path string) ([]segment, error) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	found := make(map[int]segment)
	for _, entry := range entries {
		name := filepath.Join(filepath.Dir(path), entry.Name())
		number, ok := segmentNumber(filepath.Clean(path), name)
		if !ok || !entry.Type().IsRegular() || (found[number].name != "" && !strings.HasSuffix(name, compressed)) {
			continue
		}
		info, err := entry.Info()
		if errors.Is(err, os.ErrNotExist) {
			continue // compressed, or removed, meanwhile
		}
		if err != nil {
			return nil, err
		}
		found[number] = segment{name, number, info.Size()}
	}
	list := make([]segment, 0, len(found))
	for _, s := range found {
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b segment) int { return a.number - b.number })
	return list, nil
}

// OpenFile opens a history or one of its segments for reading its lines. One that
// was compressed since it was listed is found.
func OpenFile(name string) (io.ReadCloser, error) {
	f, err := os.Open(name)
	if errors.Is(err, os.ErrNotExist) && Base(name) != name && !strings.HasSuffix(name, compressed) {
		name += compressed
		f, err = os.Open(name)
	}
	if err != nil || !strings.HasSuffix(name, compressed) {
		return f, err
	}
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", name, err), f.Close())
	}
	return &unzipped{z, f}, nil
}

// unzipped reads a compressed file.
type unzipped struct {
	*gzip.Reader
	file *os.File
}

func (u *unzipped) Close() error { return errors.Join(u.Reader.Close(), u.file.Close()) }

// shrink compresses what is not compressed yet, and removes the oldest segments
// until all of them take room at most. It reads and writes two parts of the file's
// size, and removes nothing before what replaces it is whole.
func shrink(path string, room int64) error {
	list, err := segments(path)
	if err != nil {
		return err
	}
	total := int64(0)
	for _, s := range list {
		total += s.size
	}
	for len(list) > 0 && total > room {
		if err := os.Remove(list[0].name); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		total -= list[0].size
		list = list[1:]
	}
	for _, s := range list {
		plain := strings.TrimSuffix(s.name, compressed)
		if plain == s.name {
			if err := compress(plain); err != nil {
				return err
			}
		}
		// What a crash has left beside the compressed one.
		if err := os.Remove(plain); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// compress writes NAME.gz.
func compress(name string) (err error) {
	in, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	half := name + compressed + ".tmp"
	out, err := os.OpenFile(half, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	z, err := gzip.NewWriterLevel(out, gzip.BestSpeed)
	if err == nil {
		_, err = io.Copy(z, in)
		err = errors.Join(err, z.Close())
	}
	if err = errors.Join(err, out.Close()); err != nil {
		return errors.Join(err, os.Remove(half))
	}
	return os.Rename(half, name+compressed)
}
