//go:build !unix || aix || solaris

package filelock

import (
	"errors"
	"os"
)

// Take does not exist here.
func Take(*os.File) (free bool, err error) { return false, errors.ErrUnsupported }
