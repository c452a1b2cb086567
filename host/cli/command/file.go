package command

import (
	"fmt"
	"io"
	"os"
)

// The largest files of small inputs, in bytes.
const (
	MostSecret = 64 << 10 // a password or a key
	MostValue  = 1 << 20  // what a job is given
)

// ReadFile reads a file that the command line names, of at most most bytes. The file may be a pipe, such as a shell makes
// for the output of a command. It reads no more than that from an endless device.
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
