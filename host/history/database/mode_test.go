package database

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/wasmjob/wasmjob/host/history"
)

// TestModeOfFiles: SQLite's files and the spool are readable for their owner alone; a file that exists
// keeps its mode; a directory that is not there yet is waited for.
func TestModeOfFiles(t *testing.T) {
	t.Parallel()
	dir, spool := t.TempDir(), filepath.Join(t.TempDir(), "spool")
	mode := func(name string) fs.FileMode {
		t.Helper()
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		return info.Mode().Perm()
	}
	path := filepath.Join(dir, "h.db")
	s := openStore(t, "sqlite:"+path, "", spool)
	s.AddEvent(number(0))
	if _, err := s.Events(t.Context(), history.Filter{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{path, path + "-wal", path + "-shm"} {
		if found := mode(name); found != 0o600 {
			t.Errorf("%s has the mode %o", name, found)
		}
	}
	if found := mode(spool); found != 0o700 {
		t.Errorf("the spool has the mode %o", found)
	}
	if err := errors.Join(s.Close(), os.Chmod(path, 0o640)); err != nil {
		t.Fatal(err)
	}
	s = openStore(t, "sqlite:"+path, "", spool)
	if found := mode(path); found != 0o640 {
		t.Errorf("the mode is changed to %o", found)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	late := filepath.Join(dir, "late", "h.db")
	s = openStore(t, "sqlite:"+late, "", spool)
	s.AddEvent(number(1))
	if s.State().Problem == "" {
		t.Error("a directory that is not there is no problem")
	}
	if err := os.Mkdir(filepath.Dir(late), 0o700); err != nil {
		t.Fatal(err)
	}
	await(t, "the file to be made", func() bool { return s.State().Problem == "" })
	if found := mode(late); found != 0o600 {
		t.Errorf("the file that was made late has the mode %o", found)
	}
}

// TestNoFileByAQuery: SQLite itself makes no file, which everybody could read: a connection, of a query for
// example, fails while there is none.
func TestNoFileByAQuery(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "h.db")
	c, err := Parse("sqlite:"+path, "")
	if err != nil {
		t.Fatal(err)
	}
	db, err := c.open()
	if err != nil {
		t.Fatal(err)
	}
	if err := db.PingContext(t.Context()); err == nil {
		t.Error("there is a database")
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file: %v", err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}
