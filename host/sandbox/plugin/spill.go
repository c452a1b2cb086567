package plugin

import (
	"errors"
	"fmt"
	"os"
)

// spilled is a module's bytes, which are needed only to compile it and to load it from the cache: they are in
// an unlinked file, if there is a directory for it, and otherwise in memory. It is safe for concurrent use.
type spilled struct {
	size  int
	file  *os.File // nil: bytes has them
	bytes []byte
}

// spill writes the bytes to a file in dir that only this process can reach, and that the system removes when
// the process ends. If dir is empty or cannot be written to, they stay in memory.
func spill(dir string, bytes []byte) *spilled {
	s := &spilled{size: len(bytes), bytes: bytes}
	if dir == "" {
		return s
	}
	f, err := os.CreateTemp(dir, "module-*")
	if err != nil {
		return s
	}
	_, err = f.Write(bytes)
	if err = errors.Join(err, os.Remove(f.Name())); err != nil {
		f.Close()
		os.Remove(f.Name()) // an open file cannot be removed everywhere
		return s
	}
	s.file, s.bytes = f, nil
	return s
}

// read returns the bytes, which must not be changed.
func (s *spilled) read() ([]byte, error) {
	if s.file == nil {
		return s.bytes, nil
	}
	b := make([]byte, s.size)
	if _, err := s.file.ReadAt(b, 0); err != nil {
		return nil, fmt.Errorf("read the module again: %w", err)
	}
	return b, nil
}

func (s *spilled) close() {
	if s.file != nil {
		s.file.Close()
	}
}
