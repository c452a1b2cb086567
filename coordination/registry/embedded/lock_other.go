//go:build !unix

package embedded

import "os"

// drop closes a file that bbolt will no longer close.
func drop(file *os.File) { _ = file.Close() }

// takeLock leaves locking to bbolt, whose lock belongs to the open file on this system.
func takeLock(*os.File) (free bool, err error) { return false, nil }
