//go:build !unix || aix || solaris

package filelock

import (
	"errors"
	"os"
)

// Take is not implemented on this platform.
func Take(*os.File) (free bool, err error) { return false, errors.ErrUnsupported }
