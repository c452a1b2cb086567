//go:build !unix

package dial

import "errors"

// writeNow fails with [errors.ErrUnsupported]: hosts run on Unix systems.
func writeNow(uintptr, []byte) (int, error) { return 0, errors.ErrUnsupported }
