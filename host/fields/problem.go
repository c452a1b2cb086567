package fields

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
)

// Problem is something wrong in a file.
type Problem struct {
	File string `json:"file"`
	// Line and Column begin with 1; they are 0 if the problem is the file.
	Line   int `json:"line,omitempty"`
	Column int `json:"column,omitempty"`
	// Field is the field's name, such as http.url; empty if the problem is no field's.
	Field string `json:"field,omitempty"`
	// Message names what was found and what was expected.
	Message string `json:"message"`
}

// String is FILE:LINE:COLUMN: FIELD: MESSAGE, as far as they are known.
func (p Problem) String() string {
	s := p.File
	if p.Line > 0 {
		s += fmt.Sprintf(":%d:%d", p.Line, p.Column)
	}
	if p.Field != "" {
		s += ": " + p.Field
	}
	return s + ": " + p.Message
}

// Problems are all that is wrong. As an error it has one line for each.
type Problems []Problem

// Error has one line for each problem.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, one := range p {
		lines[i] = one.String()
	}
	return strings.Join(lines, "\n")
}

// Sorted is the error: nil if there is no problem, else the problems by file and place.
func (p Problems) Sorted() error {
	if len(p) == 0 {
		return nil
	}
	slices.SortStableFunc(p, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return p
}

// ReadFile reads a regular file of at most so many bytes. Errors say what is wrong with
// it, without its name.
func ReadFile(name string, most int64) ([]byte, fs.FileInfo, error) {
	// Without O_NONBLOCK a pipe would hold us up.
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, cannot(err)
	}
	defer f.Close() // read only: nothing is lost if that fails
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, nil, cannot(err)
	case info.IsDir():
		return nil, nil, errors.New("is a directory, expected a file")
	case !info.Mode().IsRegular():
		return nil, nil, errors.New("is no regular file")
	}
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	switch {
	case err != nil:
		return nil, nil, cannot(err)
	case int64(len(data)) > most:
		return nil, nil, fmt.Errorf("has more than %d bytes", most)
	}
	return data, info, nil
}

// cannot leaves the operation and the path out of an error.
func cannot(err error) error {
	var p *fs.PathError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("cannot be read: it does not exist%w", quiet{err})
	case errors.As(err, &p):
		return fmt.Errorf("cannot be read: %w", p.Err)
	}
	return fmt.Errorf("cannot be read: %w", err)
}

// quiet is an error without a text, for those who ask what kind it is.
type quiet struct{ error }

func (quiet) Error() string   { return "" }
func (q quiet) Unwrap() error { return q.error }
