//go:build !unix || aix || solaris

package filelock

import (
	"errors"
	"os"
)

// Take fails with [errors.ErrUnsupported]: the systems of this file have no flock.
func Take(*os.File) (free bool, err error) { return false, errors.ErrUnsupported }
