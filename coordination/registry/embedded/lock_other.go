//go:build !unix

package embedded

import "os"

// drop closes a file that bbolt will not close any more.
func drop(file *os.File) { _ = file.Close() }

// takeLock leaves the lock to bbolt, which has one that belongs to the open file here.
func takeLock(*os.File) (free bool, err error) { return false, nil }
