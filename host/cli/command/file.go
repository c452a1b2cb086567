package command

import (
	"fmt"
	"io"
	"os"
)

// What files of small things have at most, in bytes.
const (
	MostSecret = 64 << 10 // a password or a key
	MostValue  = 1 << 20  // what a job is given
)

// ReadFile reads a file that was named on the command line, of at most so many bytes. It may be a pipe: a shell gives one for
// the output of a command. Of a device without an end no more is read.
func ReadFile(name string, most int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() // read only: nothing is lost if that fails
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("%s has more than %d bytes", name, most)
	}
	return data, err
}
