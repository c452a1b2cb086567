//go:build !(darwin || linux)

package plugin

// On this system guests' memory is on Go's heap; see linearMemory.

func reserve(uint64) []byte { return nil }
func use([]byte) bool       { return false }
func unreserve([]byte)      {}

func addressLimit() (limit, taken uint64, ok bool) { return 0, 0, false }
