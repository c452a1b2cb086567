//go:build !unix

package deadman

import (
	"errors"
	"os"
)

// lock does not exist here.
func lock(*os.File) (free bool, err error) { return false, errors.ErrUnsupported }
