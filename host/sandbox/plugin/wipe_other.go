//go:build !linux

package plugin

// wipe makes memory zero again, which is worth it only where the system reports
// which of it was touched.
func wipe([]byte, int, int) (resident int, ok bool) { return 0, false }
