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

	"github.com/wasmjob/wasmjob/internal/text/words"
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

// Problems are what is wrong. As an error it has one line for each.
type Problems []Problem

// Error has one line for each problem.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, one := range p {
		lines[i] = one.String()
	}
	return strings.Join(lines, "\n")
}

// List collects problems. It keeps the first [words.MostProblems] and counts the others. The zero value is ready.
type List struct{ few words.Few[Problem] }

// Add adds a problem. Its message is cut.
func (l *List) Add(p Problem) {
	p.Message = words.Reason(p.Message)
	l.few.Add(p)
}

// Take adds what another list has.
func (l *List) Take(other List) { l.few.Take(other.few) }

// Full reports whether the next problem is only counted, so that no message has to be made for it.
func (l *List) Full() bool { return l.few.Full() }

// Len is how many problems there are in all.
func (l *List) Len() int { return l.few.Len() }

// Sorted is the error, [Problems]: nil if there is no problem, else the problems by file and place, and then how
// many others there are.
func (l *List) Sorted() error {
	list := Problems(l.few.Kept())
	if len(list) == 0 {
		return nil
	}
	slices.SortStableFunc(list, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	if more := l.few.More(); more > 0 {
		list = append(slices.Clip(list), Problem{File: list[len(list)-1].File, Message: words.More(more)})
	}
	return list
}

// ReadFile reads a regular file of at most so many bytes. Errors say what is wrong with
// it, without its name.
func ReadFile(name string, most int64) ([]byte, fs.FileInfo, error) {
	// Without O_NONBLOCK a pipe would block.
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

// quiet is an error without a text that still has its kind for errors.Is.
type quiet struct{ error }

func (quiet) Error() string   { return "" }
func (q quiet) Unwrap() error { return q.error }
