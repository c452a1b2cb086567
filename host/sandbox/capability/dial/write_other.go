//go:build !unix

package dial

import "errors"

// writeNow is not implemented: no host runs on such a system.
func writeNow(uintptr, []byte) (int, error) { return 0, errors.ErrUnsupported }
