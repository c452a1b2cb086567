//go:build !unix

package embedded

import "os"

// drop closes a file that bbolt will not close any more.
func drop(file *os.File) { _ = file.Close() }
